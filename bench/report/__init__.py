"""From samples to tables, plots and docs/performance.md."""
