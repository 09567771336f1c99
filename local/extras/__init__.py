"""Optional features of a stack: Kueue, two Temporal servers, copies of its data."""
