"""Interprets failures: which rule matches one, what caused it, and which node is blamed for it."""
