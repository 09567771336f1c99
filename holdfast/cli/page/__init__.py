"""Pages about workloads: the drawing of a life, the report of one, and the local web page of a cluster."""
