"""Decides what happens to a workload: one verdict per file, and the decision that combines them."""
