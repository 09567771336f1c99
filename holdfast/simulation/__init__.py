"""Simulates a policy: runs the pure decisions on virtual time, against a small cluster that a script makes fail."""

from holdfast.simulation.limits import refused
from holdfast.simulation.run import simulate
from holdfast.simulation.script.read import Script, read_script
from holdfast.simulation.timeline import Entry, EntryKind, Expected, Simulation, Summary

__all__ = ["Entry", "EntryKind", "Expected", "Script", "Simulation", "Summary", "read_script", "refused", "simulate"]
