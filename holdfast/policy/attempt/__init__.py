"""One attempt: its health, start order and success, and what happens to its components while it lives."""
