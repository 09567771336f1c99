"""One file per measure: each runs every system it is about, in turn and repeated, and records samples."""
