"""Finds, downloads or builds the programs of the stack."""
