"""How long a workload is to live: bounded by a walltime, for as long as it takes, or as its own autoscaler says."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from holdfast.model.base import Duration, Model, format_duration


class Bounded(Model):
    """It ends by itself, or by its walltime (rows L18 to L20).

    Counted from when an attempt first runs, of each attempt anew, and not while it is suspended in place.
    """

    kind: Literal["Bounded"] = "Bounded"
    walltime: Duration = timedelta(0)
    """How long an attempt may run before it is ended, and the workload has failed; 0: as long as it takes."""
    extendable_to: Annotated[Duration | None, Field(exclude_if=lambda value: value is None)] = None
    """Up to what the walltime may be extended while it runs; none: not at all.

    The backstop on its nodes, `activeDeadlineSeconds`, covers it: of a pod that runs it can only be lowered."""

    @model_validator(mode="after")
    def _extends(self) -> Self:
        if self.extendable_to is None:
            return self
        given = format_duration(self.extendable_to)
        if not self.walltime:
            raise ValueError(f"extendableTo: {given}: expected none, since a walltime of 0s is no bound")
        if self.extendable_to < self.walltime:
            raise ValueError(f"extendableTo: {given}: expected at least the walltime, {format_duration(self.walltime)}")
        return self


class Unbounded(Model):
    """It runs until somebody ends it: a service."""

    kind: Literal["Unbounded"] = "Unbounded"


class Reactive(Model):
    """It runs until somebody ends it, and its own autoscaler decides how many pods it has.

    `min` pods are expected, as its components say; what is above that comes and goes and is never missed. An autoscaler
    among its components must keep to `max`.
    """

    kind: Literal["Reactive"] = "Reactive"
    min: Annotated[int, Field(ge=0, le=1_000_000)]
    max: Annotated[int, Field(ge=1, le=1_000_000)]

    @model_validator(mode="after")
    def _is_a_range(self) -> Self:
        if self.max < self.min:
            raise ValueError(f"max: {self.max}: expected at least min, {self.min}")
        return self


Lifecycle = Annotated[Bounded | Unbounded | Reactive, Field(discriminator="kind")]
"""How long a workload is to live."""
