"""The models of one workload's life: its state, its status, its report, its history."""
