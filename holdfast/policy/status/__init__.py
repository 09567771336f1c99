"""What a workload tells: people, its cluster, its graph, its queue, its audit."""
