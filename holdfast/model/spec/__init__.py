"""What is submitted: a workload, its components, and how its failures are ruled."""
