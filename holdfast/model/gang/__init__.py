"""Elastic gangs: their memory, the orders for their members, and the wire between them."""
