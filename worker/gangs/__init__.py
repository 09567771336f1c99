"""The gangs that a worker serves."""
