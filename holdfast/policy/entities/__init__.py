"""The rules of queues, graphs, the broker and the front door, and what is done when one is not healthy."""
