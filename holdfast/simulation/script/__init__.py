"""The script of a simulation's events, and the virtual clock."""
