"""What brokers, queues and the watchdog ask of Temporal and the cluster."""
