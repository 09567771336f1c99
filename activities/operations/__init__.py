"""The operations on a workload, one per file."""
