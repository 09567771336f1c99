"""One run of a workflow as it lived it: what each of its tasks was told, and what it wrote down. Values alone."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from holdfast.model import Observation, Phase, State, Status
from holdfast.model.entities.graph import GraphNews, GraphOrder
from holdfast.model.entities.queue import QueueNews, QueueOrder
from holdfast.model.gang.orders import GangOutcome
from holdfast.policy.attempt.checkpoint import CheckpointAsk
from holdfast.policy.loop.change import ComponentsChange, PolicyChange
from holdfast.policy.sides.gang import GangScale
from holdfast.policy.values.events import RequeueRequest
from holdfast.policy.verdicts.strip import StripRequest
from holdfast.policy.verdicts.walltime import WalltimeExtension


@dataclass(frozen=True, slots=True)
class Signalled:
    """A signal: its name, and its reason or its snapshot."""

    name: str
    value: Observation | RequeueRequest | GangOutcome | GraphOrder | QueueOrder | str
    within: float | None = None
    """Of a preemption: for how many seconds a checkpoint is waited for at most."""
    uid: str = ""
    """Of the submission that it is meant for, where it says so."""
    phases: tuple[Phase, ...] = ()
    """Of a cancel: the phases in which it holds; none: all."""


@dataclass(frozen=True, slots=True)
class Updated:
    """An update that was accepted; a change of components is in force once the API server has said that it would do."""

    change: PolicyChange | ComponentsChange | StripRequest | CheckpointAsk | WalltimeExtension | GangScale


@dataclass(frozen=True, slots=True)
class Finished:
    """An activity came back: with a result, with an error of its own, or (neither) broken off."""

    activity: str
    result: Any = None
    error: str | None = None
    """The type of its own error."""
    message: str = ""
    details: tuple[Any, ...] = ()
    broken_off: bool = False
    attempt: int | None = None
    """Of which attempt it told: of probes alone, whose word may come late."""


@dataclass(frozen=True, slots=True)
class Fired:
    """A timer came due."""

    timer: int
    """The event that started it."""


@dataclass(frozen=True, slots=True)
class Heard:
    """Its graph or its queue was told something, or is not there."""

    news: GraphNews | QueueNews
    telling: int
    """The event that began to tell it."""
    missed: bool = False


@dataclass(frozen=True, slots=True)
class CancelAsked:
    """The workflow itself was cancelled."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How the run ended, in its own words."""

    how: Literal["continued", "completed", "failed", "cancelled", "other"]
    state: State | None = None
    """The memory it handed on (continued)."""
    status: Status | None = None
    """Its last status (completed, failed)."""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Task:
    """One workflow task that was completed: what it was told, and what came of it."""

    event: int
    """The event that began it."""
    at: datetime
    suggested: bool
    """Whether Temporal suggested to continue as new."""
    batched: bool
    """Whether the SDK told it everything at once, and not signals and updates first."""
    wishes: tuple[Signalled | Updated, ...]
    results: tuple[Finished | Fired | Heard | CancelAsked, ...]
    begun: tuple[str, ...]
    """The activities it began."""
    timers: tuple[int, ...]
    """The events of the timers it started."""
    telling: tuple[int, ...]
    """The events by which it began to tell its graph or its queue something."""
    statuses: tuple[Status, ...]
    """What it wrote down in its memo."""
    ended: Ended | None


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the workflow: its input, and its tasks in order."""

    workflow_id: str
    run_id: str
    first_run_id: str
    previous_run_id: str
    """Of the run that it continues; empty for the first."""
    next_run_id: str
    """Of the run that continues it, where there is one."""
    began_at: datetime
    ended_at: datetime | None
    closed: str
    """Temporal's word for how it ended: `Completed`, `ContinuedAsNew`, `Terminated`, ...; empty while it runs."""
    events: int
    document: Any
    carried: State | None
    tasks: tuple[Task, ...]
    unreadable: tuple[str, ...] = ()
    """What in it could not be read, one sentence each."""
