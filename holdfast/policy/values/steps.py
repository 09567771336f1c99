"""The next steps for the workflow to carry out, as values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from holdfast.model import OperationKind, Phase
from holdfast.model.life.state import PromisedRestart


@dataclass(frozen=True, slots=True)
class Run:
    """Start this operation; it returns by `until` even if it is not done."""

    kind: OperationKind
    why: str
    until: datetime | None = None
    audits: str = ""
    """The action that it writes to the audit record, which may only be taken then (reports of sensitive workloads)."""
    decides: bool = False
    """Whether the workflow acts at once on what the look confirms (looks)."""
    restart: PromisedRestart | None = None
    """The decision that it repeats before it removes anything (resets)."""


@dataclass(frozen=True, slots=True)
class Interrupt:
    """Interrupt the operation under way, and wait until it has ended."""

    why: str


@dataclass(frozen=True, slots=True)
class Sleep:
    """Wait for an event, at most until `until`."""

    until: datetime | None
    why: str


@dataclass(frozen=True, slots=True)
class End:
    """End the workflow with this outcome: nothing is left to do."""

    outcome: Phase


Step = Run | Interrupt | Sleep | End
