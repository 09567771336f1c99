"""The spec that a user submits: a workload, its components and its failure policy."""
