"""A workload's objects: from template to what is sent, made once, found again."""
