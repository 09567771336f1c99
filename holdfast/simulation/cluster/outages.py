"""What is in the way of new components and pods for a time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from holdfast.simulation.script.clock import START
from holdfast.simulation.script.events import LaunchFails

EVER = START + timedelta(days=366_000)
"""When something ends that lasts for good."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something that is so for a time, for one component or for all."""

    component: str | None
    until: datetime
    reason: str = ""
    launch: LaunchFails | None = None
    """What nodes cannot do for new pods, where it is that."""
