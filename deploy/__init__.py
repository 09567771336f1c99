"""What a cluster needs from us: custom resource definitions and RBAC, as YAML files that are read as package data."""
