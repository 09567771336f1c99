"""Holdfast measured beside the controllers it replaces: `python -m bench` runs, docs/performance.md tells."""
