"""The base of every role of the worker: settings, logs, metrics, the Kubernetes client."""
