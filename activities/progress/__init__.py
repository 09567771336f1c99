"""Follows the steps of a workload's pods: reads what they tell, round after round (rows P1, P2)."""
