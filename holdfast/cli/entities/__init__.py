"""Commands about queues, graphs, brokers and nodes."""
