"""How a workload tells its step, and how long it may stand still (rows P1, P2, P4)."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, model_validator

from holdfast.model.base import Duration, Model, format_duration

_SHORTEST_PERIOD = timedelta(seconds=1)
PERIODS_IN_A_BOUND = 4
"""How many rounds the shortest bound must hold: one round that is late must not look like a stall."""


class ProgressSource(StrEnum):
    """Where the worker reads the step of a pod."""

    ANNOTATION = "annotation"
    """The pod's annotation `holdfast.dev/step`."""
    HTTP = "http"
    """A GET to the pod's own address: an agent, a sidecar or the program itself answers."""


class Progress(Model):
    """How the steps of a workload are followed, and when standing still is a failure."""

    source: ProgressSource = ProgressSource.ANNOTATION
    port: Annotated[int | None, Field(ge=1, le=65535, exclude_if=lambda value: value is None)] = None
    """Port of the endpoint in each pod; only for source http."""
    path: Annotated[str, Field(min_length=1, max_length=256, pattern=r"^/[!-~]*$")] = "/progress"
    """Path of the endpoint; only for source http."""
    components: Annotated[tuple[str, ...], Field(exclude_if=lambda value: not value)] = ()
    """Components whose pods tell their step; empty: all components with pods."""
    period: Duration = timedelta(seconds=15)
    """Time from the start of one round of reads to the start of the next."""
    bound: Annotated[Duration | None, Field(exclude_if=lambda value: value is None)] = None
    """The longest time without a new step; none: it is learned."""
    multiple: Annotated[int, Field(ge=3, le=1000)] = 12
    """A learned bound is this many times the median step."""
    minimum: Duration = timedelta(minutes=3)
    """A learned bound is never shorter."""
    first_step: Duration = timedelta(minutes=30)
    """The longest time until the second step of new pods, and between steps while too few are known to learn from."""
    phase_bound: Duration = timedelta(hours=1)
    """The longest time in a declared phase that names no bound of its own."""
    poison_limit: Annotated[int, Field(ge=2, le=100)] = 3
    """How many failures in a row at the same step fail the workload."""
    executions: Annotated[int, Field(ge=1, le=10_000)] = 100
    """The most attempts and restarts in place, whatever renews its budgets; restarts alone count for what restarts."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.source is ProgressSource.HTTP and self.port is None:
            raise ValueError("port: missing: source http asks each pod at its own address and this port")
        if self.source is ProgressSource.ANNOTATION and self.port is not None:
            raise ValueError(f"port: {self.port}: expected none, since source annotation asks no endpoint")
        if self.period < _SHORTEST_PERIOD:
            raise ValueError(f"period: {format_duration(self.period)}: expected at least 1s")
        least = PERIODS_IN_A_BOUND * self.period
        spans = {
            "bound": self.bound,
            "minimum": self.minimum,
            "firstStep": self.first_step,
            "phaseBound": self.phase_bound,
        }
        for name, span in spans.items():
            if span is not None and span < least:
                raise ValueError(
                    f"{name}: {format_duration(span)}: expected at least {format_duration(least)}, four periods"
                )
        return self
