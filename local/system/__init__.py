"""What the local stack needs of this machine: processes, ports, files, locks."""
