"""The payloads of every activity: the requests to a cluster's worker, and its answers."""
