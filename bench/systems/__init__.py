"""What is compared, behind one interface: plain Kubernetes, the AppWrapper controller, Holdfast."""

from bench.systems.base import System
from bench.systems.opened import ALL, opened

__all__ = ["ALL", "System", "opened"]
