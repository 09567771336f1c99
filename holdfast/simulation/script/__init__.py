"""A script of what goes wrong, and the clock it runs by."""
