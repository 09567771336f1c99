"""The tests. A package, so that tests share code as `tests.<folder>.<module>` without a path on sys.path."""
