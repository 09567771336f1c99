"""The only code that talks to Kubernetes on a workload's behalf; `contract` is all that workflows import."""
