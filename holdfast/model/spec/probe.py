"""How a workload without end is probed for whether it still serves (row L28)."""

from __future__ import annotations

import re
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from holdfast.model.base import Duration, Model, format_duration

_PATH = re.compile(r"^/[!-~]*\Z")
_SHORTEST = timedelta(seconds=1)


class ProbeKind(StrEnum):
    """The kind of check."""

    TCP = "TCP"
    """The pod must accept a connection."""
    HTTP = "HTTP"
    """The pod must answer a GET with a status from 200 to 399; a redirect counts as an answer, and is not followed."""


class Probe(Model):
    """The probe that the worker sends to each running pod, only at the pod's own address.

    Defaults are Lattice's (lattice-failure-modes.md, service failure detection).
    """

    kind: ProbeKind = ProbeKind.TCP
    """How its pods are asked."""
    port: Annotated[int, Field(ge=1, le=65535)]
    """The port that is asked."""
    path: Annotated[str, Field(max_length=256, exclude_if=lambda value: value == "/")] = "/"
    """Path of the GET."""
    components: Annotated[tuple[str, ...], Field(exclude_if=lambda value: not value)] = ()
    """Components whose pods are probed; empty: all components with pods."""
    initial_delay: Duration = timedelta(seconds=10)
    """How long a pod must run before it is probed."""
    period: Duration = timedelta(seconds=30)
    """Time from the start of one round to the start of the next."""
    timeout: Duration = timedelta(seconds=5)
    """How long an answer may take."""
    failure_threshold: Annotated[int, Field(ge=1, le=100)] = 3
    """How many times in a row one pod must fail for the workload to have failed."""

    @field_validator("path")
    @classmethod
    def _is_a_path(cls, value: str) -> str:
        if not _PATH.match(value):
            raise ValueError(f"{value!r}: expected a path that begins with / and has no spaces, such as /healthz")
        return value

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.kind is ProbeKind.TCP and self.path != "/":
            raise ValueError(f"path: {self.path!r}: expected only where kind is HTTP")
        for name in ("period", "timeout"):
            span: timedelta = getattr(self, name)
            if span < _SHORTEST:
                raise ValueError(f"{name}: {format_duration(span)}: expected at least 1s")
        if self.timeout > self.period:
            given = format_duration(self.timeout)
            raise ValueError(f"timeout: {given}: expected at most the period, {format_duration(self.period)}")
        return self

    @property
    def words(self) -> str:
        """The check in words: `GET :8080/healthz`."""
        return f"GET :{self.port}{self.path}" if self.kind is ProbeKind.HTTP else f"connection to port {self.port}"
