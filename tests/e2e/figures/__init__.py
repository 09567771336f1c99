"""What lives and clusters cost, and what their metrics say, on real servers."""
