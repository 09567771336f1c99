"""Troubles that block new components and pods for a time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from holdfast.simulation.script.clock import START
from holdfast.simulation.script.events import LaunchFails

EVER = START + timedelta(days=366_000)
"""The end of a trouble that lasts for good."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """A trouble that lasts for a time, for one component or for all."""

    component: str | None
    until: datetime
    reason: str = ""
    launch: LaunchFails | None = None
    """The launch failure of new pods, if the trouble is one."""
