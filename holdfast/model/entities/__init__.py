"""What else lives as a workflow: queues, graphs, the broker, and the services of nodes."""
