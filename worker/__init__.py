"""The worker process: settings, roles, the watch, metrics, health."""
