"""The resources of this machine that the local stack uses: processes, ports, files, locks."""
