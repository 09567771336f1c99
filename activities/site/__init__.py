"""The worker's standing in a cluster: the workload's anchor, and who may do what."""
