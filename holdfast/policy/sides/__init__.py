"""A workload's side of what it meets: its gang, its probe, its data sets, its queue's demand."""
