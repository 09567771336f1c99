"""The client of the workflows that serve many workloads: queues, graphs, a cluster's broker and provisioner."""
