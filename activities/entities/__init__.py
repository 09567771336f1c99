"""Requests of brokers, queues and the watchdog to Temporal and the cluster."""
