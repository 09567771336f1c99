"""Shared by all commands: options, output, and the translation of errors."""
