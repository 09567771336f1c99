"""A workload's side of its gang, its probes and its data sets, and its demand on its queue."""
