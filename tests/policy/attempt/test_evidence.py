"""Which removals keep evidence, of which pods, and what remains of it in a workload's memory (row P3)."""
