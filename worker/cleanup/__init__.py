"""The sweep, namespaces, and taking Holdfast off a cluster."""
