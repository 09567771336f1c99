"""Extracts the facts that decisions use from raw objects. Pure."""
