"""The Kubernetes client: requests, errors, pages, discovery, blindness."""
