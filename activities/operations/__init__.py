"""The operations on a workload, one a file."""
