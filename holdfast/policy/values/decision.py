"""The possible decisions, as values. The workflow only carries these out."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from holdfast.model import ExcludedNode, Failure, Reason
from holdfast.model.life.progress import Fall


@dataclass(frozen=True, slots=True)
class Ignore:
    """Do nothing: everything is as it should be."""

    why: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Do nothing before `until`."""

    until: datetime
    why: str


@dataclass(frozen=True, slots=True)
class Look:
    """Take a live observation first: the next step would be destructive, or nothing is known yet."""

    why: str
    decides: bool = False
    """Whether the workflow acts at once on what the look confirms."""


@dataclass(frozen=True, slots=True)
class Fetch:
    """Stage the data sets that the next attempt reads."""

    why: str
    waits: bool
    """Whether it is likely to take long: the data sets were never staged, or the store was unavailable."""


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
    """Whether its rule has a limit, which this restart counts against."""
    pause: timedelta | None = None
    """The rule's pause before the next attempt; None: the policy's."""
    requeue: bool = False
    """Whether the workload goes back to its queue once this attempt is gone."""
    in_place: bool = False
    """Whether the attempt restarts in its pods, and is not removed (row J24)."""
    recreated: str = ""
    """Why it is removed although its policy would have it restart in place; empty otherwise."""


@dataclass(frozen=True, slots=True)
class Resubmit:
    """Remove the whole attempt and begin the next one at once, charging no budget: its submission was interrupted."""

    why: str


@dataclass(frozen=True, slots=True)
class CopyAgain:
    """One copy of a component that is recreated alone (row J23)."""

    component: str
    index: int
    charged: bool
    """Whether it charges a budget of the workload."""


@dataclass(frozen=True, slots=True)
class Replace:
    """Recreate these components within the attempt."""

    components: tuple[str, ...]
    charged: tuple[str, ...]
    """The components whose own budget is charged for it, each once per charge."""
    why: str
    ruled: tuple[str, ...] = ()
    """The components that a rule restarts, each once per restart."""
    missed: tuple[str, ...] = ()
    """Of `ruled`, those that are only made again because somebody has deleted them: no restart, and not charged."""
    copies: tuple[CopyAgain, ...] = ()
    """Of components that are in `components`, the only copies that are recreated."""
    charges: tuple[str, ...] = ()
    """The workload's budgets that are charged, each once per occurrence in this list."""
    limited: tuple[str, ...] = ()
    """The rules with a limit that this counts against, each once per occurrence in this list."""
    exclude: tuple[ExcludedNode, ...] = ()
    """Nodes that the recreated components are to avoid."""
    fall: Fall | None = None
    """The step at which what a rule restarts has failed, if it is known."""


@dataclass(frozen=True, slots=True)
class Start:
    """Create these components for the first time in the attempt: what they waited for has happened."""

    components: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Hold:
    """Do nothing until a user decides: the cluster contradicts the workflow's state, or the workload is sensitive.

    A workload scaled to 0 is also held, until a user or an autoscaler scales it up again (row D14).
    """

    why: str
    rule: str = ""
    """The rule that would have restarted a sensitive workload; else empty."""


@dataclass(frozen=True, slots=True)
class Suspend:
    """Remove this attempt, or suspend it in place, and stay suspended."""

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
    """Remove this attempt, whose walltime expired, and follow the checkpoint its pods save in their grace period."""

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
    """Delete the active components of a settled workload, and keep the rest."""

    components: tuple[str, ...]
    """The components that are not known to have ended; empty: there is nothing to delete."""
    why: str


@dataclass(frozen=True, slots=True)
class Cancel:
    """Settle the workload as cancelled."""

    reason: Reason
    why: str


@dataclass(frozen=True, slots=True)
class Release:
    """Remove what is left of a settled workload: its resources are no longer kept."""

    reason: Reason
    why: str


@dataclass(frozen=True, slots=True)
class Retry:
    """Start over at a user's request: a failed workload gets its budgets renewed, a pause ends early."""

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
