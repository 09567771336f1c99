"""The demos and the local stack."""
