"""Submissions: the files they are read from, what they will make, and their later changes."""
