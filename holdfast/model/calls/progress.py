"""What the worker is asked about a workload's steps, and what it answers (rows P1, P2)."""

from __future__ import annotations

from holdfast.model.calls.cluster import Target
from holdfast.model.life.progress import StepRecord
from holdfast.model.observation import Failure, Payload
from holdfast.model.spec.progress import Progress


class FollowInput(Payload):
    """Follow the steps of an attempt's pods, round after round.

    It returns when there is something to tell: a stall, or at most once a minute a new standing. What it has learned
    also survives its worker, in its heartbeats.
    """

    target: Target
    attempt: int
    progress: Progress
    known: StepRecord | None = None
    """What was known before it began."""
    stalled: bool = False
    """Whether the workflow knows that they stand still: then it returns once they no longer do."""


class Followed(Payload):
    """The standing of the steps, and the failure if they stand still; without one, a stall that was told is over."""

    record: StepRecord | None = None
    failure: Failure | None = None
