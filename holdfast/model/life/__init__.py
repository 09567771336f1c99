"""What is remembered and told of one workload: its state, its status, its report, its history."""
