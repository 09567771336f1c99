"""The entities of a cluster: started, watched over, restarted."""
