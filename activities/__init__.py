"""The only code that talks to Kubernetes on a workload's behalf. Workflows call it by `holdfast.model.calls`."""
