"""The messages of a workload to people, its cluster, its graph, its queue and its audit."""
