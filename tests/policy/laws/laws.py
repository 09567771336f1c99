"""The laws: the design's seven invariants, and what they rest on. Which one was broken is what a violation says."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from holdfast.model import Observation, Policy, StartStatus, State
from tests.fakes.ledger import Kind

AT_ONCE = frozenset({"component gone", "owner gone", "component failed", "not created"})
"""What no controller would heal: no grace is waited out."""
WORDS = {Kind.ANCHOR: "anchor", Kind.OWNER: "owner", Kind.COMPONENT: "component", Kind.POD: "pod"}


class Law(StrEnum):
    """What must hold whatever happens; the numbers are the design's."""

    BUDGET = "1: no budget is exceeded, and each failure is charged once"
    EXCLUSIVE = "2: pods of two attempts of one restart unit are never alive together"
    RELEASE = "3: quota is released only when no pod exists and none can come"
    BLIND = "4: while the cluster cannot be seen no failure clock runs"
    OWN_DELETION = "5: our own deletions are never read as failures"
    REPLAY = "6: the same history gives the same decisions"
    PROGRESS = "7: every deletion makes progress or names the finalizer that blocks it"
    ASKED = "finalizers are taken off only as was asked for, and never the owner's or the anchor's"
    IDENTITY = "every deletion names the uid of what it means"
    WHOLE = "an interrupted submission is made anew, and never filled up"
    SAVED = "an attempt goes on only from what all who were asked have saved in one place"
    ORDER = "a component is made once what it waits for has come so far, and not before"
    SIGHT = "what was last seen of the living attempt is what is gone by"
    REST = "once all is well, a workload comes to rest where it belongs"


class Violation(AssertionError):
    """A law was broken."""

    def __init__(self, law: Law, message: str) -> None:
        super().__init__(f"{law.value}: {message}")
        self.law = law


def require(holds: object, law: Law, message: str) -> None:
    if not holds:
        raise Violation(law, message)


@dataclass
class Record:
    """What the ledger has of one attempt."""

    harm: dict[str, datetime] = field(default_factory=dict[str, datetime])
    """What befell it by other hands than ours, and when first."""
    ill: set[str] = field(default_factory=set[str])
    """Components that something befell since they were last made."""
    ready: bool = False
    """Whether all its pods have run at one time."""
    complete: bool = False
    came: set[tuple[str, StartStatus]] = field(default_factory=set[tuple[str, StartStatus]])
    """How far components have come, once they had."""
    created: datetime | None = None
    """When the last of its components was made."""
    deleted: datetime | None = None
    """When its owner was first deleted."""
    removing: bool = False
    """Whether we have begun to delete it."""
    policy: Policy | None = None
    """The policy when its reset was promised."""
    promised_at: datetime | None = None
    reset: bool = False
    """Whether its removal began after a look had confirmed the restart, which is charged at the removal's end."""
    forced: bool = False
    charges: int = 0
    excused: bool = False
    """Whether its end was somebody's wish."""
    prepared: bool = False
    told: Observation | None = None
    """The newest snapshot that the workflow was given."""
    short: bool = False
    """Whether the last live look found pods lacking."""
    unwell: datetime | None = None
    """When the workflow was first told of a failure that it has not been told the end of."""


def number_of(state: State) -> int:
    """Return the number of the attempt that a memory is of; 0 before the first."""
    return state.attempt.number if state.attempt is not None else 0
