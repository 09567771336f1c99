"""What a person meets at the prompt of a shell before any workload runs."""
