"""Commands for the operator of a cluster."""
