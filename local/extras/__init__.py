"""What a stack has on request: Kueue, two Temporal servers, copies of its data."""
