"""The watch of a cluster: informers in, signals out."""
