"""Data sets: the store, the cache, staging."""
