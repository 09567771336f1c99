"""The real node: a kubelet and a containerd."""
