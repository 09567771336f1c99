"""What can be decided, as values. The workflow only carries these out."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from holdfast.model import ExcludedNode, Failure, Reason


@dataclass(frozen=True, slots=True)
class Ignore:
    """Nothing to decide: everything is as it should be."""

    why: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to decide before `until`."""

    until: datetime
    why: str


@dataclass(frozen=True, slots=True)
class Look:
    """Take a live observation first: what follows would be destructive, or nothing is known."""

    why: str
    decides: bool = False
    """Whether what it confirms is acted on at once."""


@dataclass(frozen=True, slots=True)
class Fetch:
    """Have the data sets lie ready that the next attempt reads."""

    why: str
    waits: bool
    """Whether it is likely to take its time: they were never staged, or the store was away."""


@dataclass(frozen=True, slots=True)
class Create:
    """Begin the next attempt."""

    why: str


@dataclass(frozen=True, slots=True)
class Restart:
    """Remove this attempt and begin the next one after the pause, charging a budget."""

    failure: Failure
    rule: str
    charge: str | None
    exclude: tuple[ExcludedNode, ...] = ()
    """Nodes that the next attempts are to avoid."""
    limited: bool = False
    """Whether its rule may act only so often, and this is one of those times."""
    pause: timedelta | None = None
    """What its rule says to wait before the next attempt; None: as the policy says."""
    requeue: bool = False
    """Whether the workload goes back to its queue once this attempt is gone."""


@dataclass(frozen=True, slots=True)
class Resubmit:
    """Remove this attempt whole and begin the next one at once, charging nothing: its submission was interrupted."""

    why: str


@dataclass(frozen=True, slots=True)
class Replace:
    """Make these components again within the attempt."""

    components: tuple[str, ...]
    charged: tuple[str, ...]
    """Those of them that use up their own budget by it."""
    why: str
    ruled: tuple[str, ...] = ()
    """Those that a rule restarts, which counts as a restart of each."""
    charges: tuple[str, ...] = ()
    """The workload's budgets that are charged, each as often as it stands here."""
    limited: tuple[str, ...] = ()
    """Rules that may act only so often and act by this, each as often as it stands here."""
    exclude: tuple[ExcludedNode, ...] = ()
    """Nodes that what is made again is to avoid."""


@dataclass(frozen=True, slots=True)
class Start:
    """Make these components for the first time in the attempt: what they waited for is there."""

    components: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Hold:
    """Do nothing until a person says what: cluster and memory contradict each other, or it is sensitive.

    Or until a person or an autoscaler scales it up again, where all of it was scaled to 0 (row D14).
    """

    why: str
    rule: str = ""
    """The rule that would have run it again, where it is sensitive."""


@dataclass(frozen=True, slots=True)
class Suspend:
    """Remove this attempt, or suspend it where it is, and stay suspended."""

    reason: Reason
    why: str
    in_place: bool = False
    kill: bool = False
    """Whether its pods get no grace."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Ask the pods of this attempt to save their state."""

    reason: Reason
    why: str


@dataclass(frozen=True, slots=True)
class Expire:
    """Remove this attempt, whose walltime is over, and follow what its pods save in their termination grace."""

    failure: Failure
    why: str


@dataclass(frozen=True, slots=True)
class Unpark:
    """Resume these components of an attempt that was suspended in place."""

    components: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Fail:
    """Settle the workload as failed."""

    reason: Reason
    failure: Failure
    why: str


@dataclass(frozen=True, slots=True)
class Succeed:
    """Settle the workload as succeeded."""

    why: str


@dataclass(frozen=True, slots=True)
class Clear:
    """Delete what is still active of a settled workload, and keep the rest."""

    components: tuple[str, ...]
    """Those that are not known to have ended; none: there is nothing to delete."""
    why: str


@dataclass(frozen=True, slots=True)
class Cancel:
    """Settle the workload as cancelled, or end the holding of one whose outcome is settled."""

    reason: Reason
    why: str


@dataclass(frozen=True, slots=True)
class Release:
    """The holding of a settled workload is over: remove what is left of it."""

    reason: Reason
    why: str


@dataclass(frozen=True, slots=True)
class Retry:
    """Begin anew at a person's word: budgets are renewed, a pause is cut short."""

    why: str


Decision = (
    Ignore
    | Wait
    | Look
    | Fetch
    | Create
    | Restart
    | Resubmit
    | Replace
    | Start
    | Hold
    | Suspend
    | Checkpoint
    | Expire
    | Unpark
    | Fail
    | Succeed
    | Clear
    | Cancel
    | Release
    | Retry
)
