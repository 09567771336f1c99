"""One run of a workflow as values: the inputs of each of its tasks, and what the workflow wrote. No logic."""

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
    """A signal: its name, and its argument, such as a reason or a snapshot."""

    name: str
    value: Observation | RequeueRequest | GangOutcome | GraphOrder | QueueOrder | str
    within: float | None = None
    """For a preemption: the maximum wait for a checkpoint, in seconds."""
    uid: str = ""
    """The uid of the submission that it addresses, if it names one."""
    phases: tuple[Phase, ...] = ()
    """For a cancel: the phases in which it applies; none: all."""


@dataclass(frozen=True, slots=True)
class Updated:
    """An accepted update; a change of components takes effect once the API server has validated it."""

    change: PolicyChange | ComponentsChange | StripRequest | CheckpointAsk | WalltimeExtension | GangScale


@dataclass(frozen=True, slots=True)
class Finished:
    """An activity that ended: with a result, with an application error, or (neither) interrupted."""

    activity: str
    result: Any = None
    error: str | None = None
    """The type of its application error."""
    message: str = ""
    details: tuple[Any, ...] = ()
    broken_off: bool = False
    attempt: int | None = None
    """The attempt that it concerns: only for activities whose result may come late, such as probes."""


@dataclass(frozen=True, slots=True)
class Fired:
    """A timer that fired."""

    timer: int
    """The id of the event that started the timer."""


@dataclass(frozen=True, slots=True)
class Heard:
    """A signal with news that its graph or its queue received, or that failed since there is none."""

    news: GraphNews | QueueNews
    telling: int
    """The id of the event that initiated the signal."""
    missed: bool = False


@dataclass(frozen=True, slots=True)
class CancelAsked:
    """A cancellation of the workflow itself."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How the run ended, as the run itself recorded it."""

    how: Literal["continued", "completed", "failed", "cancelled", "other"]
    state: State | None = None
    """The memory it passed on (continued)."""
    status: Status | None = None
    """Its last status (completed, failed)."""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Task:
    """One completed workflow task: its inputs and its results."""

    event: int
    """The id of the event that started it."""
    at: datetime
    suggested: bool
    """Whether Temporal suggested continue-as-new."""
    batched: bool
    """Whether the SDK delivered everything in one activation, and not signals and updates first."""
    wishes: tuple[Signalled | Updated, ...]
    results: tuple[Finished | Fired | Heard | CancelAsked, ...]
    begun: tuple[str, ...]
    """The activities it started."""
    timers: tuple[int, ...]
    """The ids of the events of the timers it started."""
    telling: tuple[int, ...]
    """The ids of the events that initiated signals to its graph or its queue."""
    statuses: tuple[Status, ...]
    """The statuses it wrote to its memo."""
    patches: tuple[str, ...]
    """The patches of the workflow's code by which its run goes, if this task has added one."""
    ended: Ended | None


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the workflow: its input, and its tasks in order."""

    workflow_id: str
    run_id: str
    first_run_id: str
    previous_run_id: str
    """The id of the run that it continues; empty for the first."""
    next_run_id: str
    """The id of the run that continues it, if there is one."""
    began_at: datetime
    ended_at: datetime | None
    closed: str
    """Temporal's close status: `Completed`, `ContinuedAsNew`, `Terminated`, ...; empty while it runs."""
    events: int
    document: Any
    carried: State | None
    tasks: tuple[Task, ...]
    unreadable: tuple[str, ...] = ()
    """The parts that could not be read, one sentence each."""
    origin: str = ""
    """The id of the run whose place it takes, if a reset in Temporal made it; else its own."""
    reset_at: datetime | None = None
    """When that reset was made."""
