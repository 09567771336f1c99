"""What is to become of a workload: one verdict a file, and the decision over all of them."""
