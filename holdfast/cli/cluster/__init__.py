"""Commands for whoever operates a cluster."""
