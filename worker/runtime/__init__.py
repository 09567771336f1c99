"""What every role of the worker stands on: settings, logs, metrics, its Kubernetes client."""
