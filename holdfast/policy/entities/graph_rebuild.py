"""The memory of a restarted graph, rebuilt from the states of its workloads (row D2). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.model.entities.graph import Graph, GraphNews, GraphState, Item, ItemPhase
from holdfast.model.life.status import Status
from holdfast.model.vocabulary import ConditionType, Phase, Reason
from holdfast.policy.entities import graph as policy
from holdfast.policy.values.edit import edit

_OUTCOMES = {
    Phase.SUCCEEDED: ItemPhase.SUCCEEDED,
    Phase.FAILED: ItemPhase.FAILED,
    Phase.CANCELLED: ItemPhase.CANCELLED,
}


@dataclass(frozen=True, slots=True)
class Found:
    """A workload of a graph, as Temporal or its own workflow shows it."""

    uid: str
    outcome: Phase | None = None
    admitted: bool = False
    """Whether its graph has admitted it."""
    released: bool = False
    """Whether it holds nothing in the cluster, and never will again."""
    why: str = ""
    """Why its graph refused it, if that is what ended it."""

    @property
    def is_over(self) -> bool:
        """Whether it will send no more messages."""
        return self.outcome is not None and self.released

    def news(self, item: str) -> GraphNews:
        """Return the message that the workload itself would send to its graph."""
        return GraphNews(item=item, workload_uid=self.uid, outcome=self.outcome, released=self.released)


def found_open(status: Status) -> Found:
    """Return a workload whose workflow is open, from its own status."""
    holds = _holds(status)
    outcome = status.phase if status.phase.ended else None
    # The status of a workload suspended before it began does not show whether it waits: its graph decides again.
    waits = status.attempt == 0 and (status.reason is Reason.BLOCKED or status.phase is Phase.SUSPENDED)
    released = outcome is not None and not holds
    return Found(status.uid, outcome, admitted=not waits, released=released, why=_why(status))


def found_closed(
    uid: str, status: Status | None, *, failed: bool, cut_off: bool = False, phase: str | None = None
) -> Found:
    """Return a workload whose workflow is closed, with its outcome from the last status that it recorded.

    Args:
        uid: Its uid.
        status: The status that it last recorded.
        failed: Whether its workflow failed.
        cut_off: Whether somebody ended the workflow alone. Unless its status says otherwise, pods of it may live
            (record 0033).
        phase: Its column for the phase. In Resuming no status is recorded (record 0007): the last one is then of an
            earlier phase.
    """
    if phase == Phase.RESUMING.value:
        status = None
    outcome = status.phase if status is not None and status.phase.ended else None
    never_ran = status is not None and status.attempt == 0
    released = not cut_off or (status is not None and (outcome is not None or never_ran) and not _holds(status))
    if outcome is None:
        outcome = Phase.FAILED if failed else Phase.CANCELLED
    return Found(uid, outcome, admitted=True, released=released, why=_why(status) if status is not None else "")


def _holds(status: Status) -> bool:
    """Whether a workload holds quota: a pod of it may live."""
    return any(each.type is ConditionType.QUOTA_RESERVED and each.status for each in status.conditions)


def _why(status: Status) -> str:
    refused = (cause.message for cause in status.causes if cause.reason is Reason.DEPENDENCY_UNSATISFIABLE)
    return next(refused, "") if status.phase is Phase.CANCELLED else ""


def rebuilt(graph: Graph, known: GraphState | None, found: Mapping[str, Found], cancelled: str = "") -> GraphState:
    """Return the memory of a graph.

    Args:
        graph: its document.
        known: the memory of an earlier run, if it can be read: it counts for workloads that Temporal no longer
            knows.
        found: the workloads that exist, by item.
        cancelled: why a person cancelled the graph; empty if not cancelled.
    """
    state = policy.begun(graph)
    items = dict(state.items)
    for name in items:
        before = known.items.get(name) if known is not None else None
        items[name] = _item(before, found.get(name))
    state = edit(state, items=items)
    why = cancelled or (known.cancelled if known is not None else "")
    return policy.cancelled(state, why) if why else state


def _item(before: Item | None, found: Found | None) -> Item:
    if found is None:
        # Temporal has forgotten a workload that ended long ago.
        return before if before is not None and before.phase.ended else Item()
    same = before is not None and before.uid == found.uid
    if before is not None and same and before.phase.ended:
        return edit(before, released=before.released or found.released)  # The first outcome counts.
    if found.outcome is not None:
        return Item(uid=found.uid, phase=_OUTCOMES[found.outcome], released=found.released, why=found.why)
    return Item(uid=found.uid, phase=ItemPhase.ADMITTED if found.admitted else ItemPhase.BLOCKED)
