"""Temporal workflows: they carry out decisions, nothing else."""
