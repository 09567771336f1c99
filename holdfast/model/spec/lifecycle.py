"""How long a workload may live: bounded by a walltime, without end, or without end and sized by its own autoscaler."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from holdfast.model.base import Duration, Model, format_duration


class Bounded(Model):
    """A workload that ends by itself, or by its walltime (rows L18 to L20).

    The walltime counts from when an attempt first runs, anew for each attempt, and not while it is suspended in place.
    """

    kind: Literal["Bounded"] = "Bounded"
    """Ends by itself, within its walltime if it has one."""
    walltime: Duration = timedelta(0)
    """How long an attempt may run before it is ended and the workload fails; 0: as long as it takes."""
    extendable_to: Annotated[Duration | None, Field(exclude_if=lambda value: value is None)] = None
    """The longest walltime to which it may be extended while it runs; none: no extension.

    The backstop on its nodes, `activeDeadlineSeconds`, covers this time: on a running pod it can only be lowered."""

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
    """A workload that runs until a user ends it: a service."""

    kind: Literal["Unbounded"] = "Unbounded"
    """Has no end."""


class Reactive(Model):
    """A workload that runs until a user ends it, and whose own autoscaler sets the number of its pods.

    `min` pods are expected, as its components declare; pods above `min` come and go, and never count as missing. An
    autoscaler among its components must keep to `max`.
    """

    kind: Literal["Reactive"] = "Reactive"
    """Has no end, and between `min` and `max` pods."""
    min: Annotated[int, Field(ge=0, le=1_000_000)]
    """The number of pods that its components declare."""
    max: Annotated[int, Field(ge=1, le=1_000_000)]
    """The highest number of pods that its own autoscaler may reach."""

    @model_validator(mode="after")
    def _is_a_range(self) -> Self:
        if self.max < self.min:
            raise ValueError(f"max: {self.max}: expected at least min, {self.min}")
        return self


Lifecycle = Annotated[Bounded | Unbounded | Reactive, Field(discriminator="kind")]
"""How long a workload may live."""
