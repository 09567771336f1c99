"""One attempt: its health, its order, its success, and what is done to its components while it lives."""
