"""The operations of a workload: one table of how each is requested, what it returns, and how it may be handled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from holdfast import names
from holdfast.model import Observation, OperationKind
from holdfast.model.calls.barrier import Lifted
from holdfast.model.calls.cluster import (
    Checkpointed,
    Cleared,
    Created,
    Parked,
    Prepared,
    Removed,
    Replaced,
    Reported,
    Reset,
    Unparked,
)
from holdfast.model.calls.stage import Staged

Result = (
    Prepared
    | Staged
    | Created
    | Lifted
    | Replaced
    | Cleared
    | Parked
    | Unparked
    | Checkpointed
    | Removed
    | Reported
    | Reset
)
"""The result of an operation: what its activity returns."""


PRIORITY_USUAL: Final = 3
"""Temporal's own default priority key."""


@dataclass(frozen=True, slots=True)
class Row:
    """One kind of operation; its activity has the kind's name."""

    result: Any
    """The type that its activity returns."""
    queue: Callable[[str], str] = names.queue_wait
    """Returns the task queue for a cluster: that of short activities, or of activities that wait."""
    breakable: bool = True
    """Whether it may be broken off and started again without a trace, so that a new run can begin."""
    acts: bool = False
    """Whether it changes something that runs, or lets it run: for sensitive work, it is recorded first (L36)."""
    promise: Cleared | Created | Parked | Removed | Replaced | Unparked | None = None
    """The success whose status it carries along, so that reporting it needs no other activity."""
    priority: int = PRIORITY_USUAL
    """Temporal's priority key: of the activities that wait for a worker, one with a smaller key is taken first."""


_SHORT: Final = names.queue_cluster
_FIRST: Final = 1
_LAST: Final = 5
OPERATIONS: Final[dict[OperationKind, Row]] = {
    OperationKind.PREPARE: Row(Prepared, _SHORT, breakable=False),
    OperationKind.STAGE: Row(Staged),
    OperationKind.CREATE: Row(Created, _SHORT, breakable=False, acts=True, promise=Created()),
    OperationKind.REPLACE: Row(Replaced, acts=True, promise=Replaced()),
    OperationKind.CLEAR: Row(Cleared, acts=True, promise=Cleared(done=True)),
    OperationKind.BARRIER: Row(Lifted, acts=True, priority=_FIRST),
    OperationKind.PARK: Row(Parked, acts=True, promise=Parked(done=True)),
    OperationKind.UNPARK: Row(Unparked, acts=True, promise=Unparked(done=True)),
    OperationKind.CHECKPOINT: Row(Checkpointed, priority=_FIRST),
    OperationKind.OBSERVE: Row(Observation, _SHORT, priority=_FIRST),
    OperationKind.RESET: Row(Reset, breakable=False, acts=True, priority=_FIRST),
    OperationKind.REMOVE: Row(Removed, acts=True, promise=Removed(gone=True), priority=_FIRST),
    OperationKind.FORCE_REMOVE: Row(Removed, acts=True, promise=Removed(gone=True), priority=_FIRST),
    # A worker of an early release returns nothing.
    OperationKind.REPORT: Row(Reported | None, _SHORT, priority=_LAST),
}
