"""Measurements: printed, never asserted by a timed test."""
