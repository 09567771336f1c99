"""What is asked of a cluster's worker and what it answers: the payloads of every activity."""
