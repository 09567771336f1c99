"""The watch of nodes and their leases."""
