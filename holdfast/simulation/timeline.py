"""The output of a simulation: entries in the order of virtual time, and a summary."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from holdfast.model import BudgetStatus, Cause, Duration, Model, Phase


class EntryKind(StrEnum):
    """The kind of an entry."""

    EVENT = "event"
    """The script, or the cluster, did something."""
    DECISION = "decision"
    WAIT = "wait"
    """The workload does nothing by itself before the deadline."""


class Entry(Model):
    """One line of the timeline."""

    at: Duration
    """The time since the start."""
    kind: EntryKind
    phase: Phase
    """The phase that it led to."""
    attempt: int
    reason: str = ""
    """The reason of a decision, one of a closed set."""
    text: str
    until: Duration | None = None
    """The deadline of a wait, since the start."""
    budgets: tuple[BudgetStatus, ...] = ()


class Expected(Model):
    """A deadline: when it was set, when it would have fallen due, and whether it did."""

    attempt: int
    what: str
    set_at: Duration
    due: Duration
    """The last known due time: time in which nothing could be observed extends a deadline."""
    fell_due: bool
    open: bool = False
    """Whether it is still to come where the simulation ends."""


class Summary(Model):
    """The result of a simulation."""

    outcome: Phase | None
    """Succeeded, Failed or Cancelled; none while it goes on."""
    phase: Phase
    """The phase at the end."""
    reason: str
    message: str
    ended_at: Duration
    """When its outcome was final and none of its objects were left, or when the simulation ended."""
    finished: bool
    """Whether its outcome is final and none of its objects are left."""
    attempts: int
    restarts: int
    charged: int
    """Restarts that used up a budget."""
    uncharged: int
    replacements: int
    """How often components were replaced within an attempt."""
    budgets: tuple[BudgetStatus, ...]
    running: Duration
    lost: Duration
    """Time before its outcome outside the phase Running."""
    phases: dict[Phase, Duration]
    """Time before its outcome, by phase."""
    deadlines: tuple[Expected, ...]


class Simulation(Model):
    """The course of a workload under its policy."""

    workload: str
    profile: str
    entries: tuple[Entry, ...]
    causes: Annotated[tuple[Cause, ...], Field(exclude=True)] = ()
    """The causes behind the decisions in the entries, as a workflow keeps them."""
    truncated: bool = False
    """Whether the simulation was broken off, because too much happened."""
    left_out: tuple[str, ...] = ()
    """The parts of the workload that are not simulated, each with what happens instead."""
    summary: Summary
