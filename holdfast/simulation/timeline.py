"""What a simulation tells: entries in the order of virtual time, and what it came to."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from holdfast.model import BudgetStatus, Cause, Duration, Model, Phase


class EntryKind(StrEnum):
    """What an entry speaks of."""

    EVENT = "event"
    """The script, or the cluster, did something."""
    DECISION = "decision"
    WAIT = "wait"
    """Nothing happens by itself before its deadline."""


class Entry(Model):
    """One line of the timeline."""

    at: Duration
    """Since the start."""
    kind: EntryKind
    phase: Phase
    """The phase that it led to."""
    attempt: int
    reason: str = ""
    """Of a decision: one of the closed reasons."""
    text: str
    until: Duration | None = None
    """Of a wait: its deadline, since the start."""
    budgets: tuple[BudgetStatus, ...] = ()


class Expected(Model):
    """A deadline: when it was set, when it would have fallen due, and whether it did."""

    attempt: int
    what: str
    set_at: Duration
    due: Duration
    """The last that was known of it: time in which nothing could be seen is given back."""
    fell_due: bool


class Summary(Model):
    """What it came to."""

    outcome: Phase | None
    """Succeeded, Failed or Cancelled; none while it goes on."""
    phase: Phase
    """Where it stands at the end."""
    reason: str
    message: str
    ended_at: Duration
    """When its outcome was settled and nothing of it was left, or when the simulation ended."""
    finished: bool
    """Whether its life is over: its outcome settled, and nothing of it left."""
    attempts: int
    restarts: int
    charged: int
    """Restarts that used up a budget."""
    uncharged: int
    replacements: int
    """How often components were made again within an attempt."""
    budgets: tuple[BudgetStatus, ...]
    running: Duration
    lost: Duration
    """Time before its outcome in which it was not Running."""
    phases: dict[Phase, Duration]
    """Time before its outcome, by phase."""
    deadlines: tuple[Expected, ...]


class Simulation(Model):
    """A workload's life as its policy would have it."""

    workload: str
    profile: str
    entries: tuple[Entry, ...]
    causes: Annotated[tuple[Cause, ...], Field(exclude=True)] = ()
    """What the decisions among the entries were made of, as a workflow keeps them."""
    truncated: bool = False
    """Whether it was broken off, since there was no end of entries."""
    left_out: tuple[str, ...] = ()
    """What is not simulated of the workload, each with what happens instead."""
    summary: Summary
