"""One turn of a workload's life: fold events into the state, take decisions, return the next step."""
