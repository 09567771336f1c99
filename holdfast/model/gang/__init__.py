"""Elastic gangs: what one remembers, what its members are told, and the wire between them."""
