"""The node monitor and the provisioner of the nodes' machines."""
