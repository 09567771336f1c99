"""The sweep, namespaces, and uninstalling Holdfast from a cluster."""
