"""How the workload's workflow carries out an operation."""
