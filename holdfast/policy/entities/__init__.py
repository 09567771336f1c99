"""The rules of queues, graphs, the broker and the front door, and the repair of an unhealthy entity."""
