"""What the workflow is to carry out next, as values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from holdfast.model import OperationKind, Phase


@dataclass(frozen=True, slots=True)
class Run:
    """Start this operation; `until` is when it is to come back even if it is not done."""

    kind: OperationKind
    why: str
    until: datetime | None = None
    audits: str = ""
    """What it writes down, so that it can be done then (reports of sensitive workloads)."""
    decides: bool = False
    """Whether what it confirms is acted on at once (looks)."""


@dataclass(frozen=True, slots=True)
class Interrupt:
    """Break off the operation under way, and wait until it has ended."""

    why: str


@dataclass(frozen=True, slots=True)
class Sleep:
    """Wait for news, at most until `until`."""

    until: datetime | None
    why: str


@dataclass(frozen=True, slots=True)
class End:
    """Nothing is left to do: end the workflow with this outcome."""

    outcome: Phase


Step = Run | Interrupt | Sleep | End
