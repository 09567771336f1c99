"""The worker's access to a cluster: the workload's anchor, and who may do what."""
