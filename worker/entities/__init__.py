"""The entities of a cluster: begun, watched over, begun anew."""
