"""What is kept of a failed attempt before anything of it is deleted (row P3)."""
