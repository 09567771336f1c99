"""Nodes and their machines: marks, taints, power."""
