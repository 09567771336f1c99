"""The monitor of nodes and the provisioner of their machines."""
