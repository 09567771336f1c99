"""The programs of the stack: found, downloaded or built."""
