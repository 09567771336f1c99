"""What is compared, behind one interface: plain Kubernetes, the AppWrapper controller, Holdfast."""

from bench.systems.base import Controller, System
from bench.systems.opened import CONTROLLERS, SYSTEMS, in_turn

__all__ = ["CONTROLLERS", "SYSTEMS", "Controller", "System", "in_turn"]
