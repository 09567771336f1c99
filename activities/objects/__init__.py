"""A workload's objects: built from templates, created once, and found again."""
