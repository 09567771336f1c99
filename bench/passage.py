"""How news of a lost node passes to a decision, by audit log and history."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent

from bench.audit import Entry, user, when
from bench.systems.holdfast import WORKER
from holdfast.model import OperationKind

CHANGES: Final = frozenset({"create", "update", "patch", "delete", "deletecollection"})
STEPS: Final = ("marked_s", "told_s", "asked_s", "begun_s", "seen_s", "late_s")
"""The steps of a passage, in their order, as series of a sample are called."""


@dataclass(slots=True)
class Passage:
    """When each step was taken towards the first removal that a workload's news led to."""

    told: datetime | None = None
    """The last signal before the look."""
    asked: datetime | None = None
    """The look was scheduled."""
    begun: datetime | None = None
    """A worker took it."""
    seen: datetime | None = None
    """It was answered."""
    decided: datetime | None = None
    """The workflow task that schedules the removal was completed."""
    removals: int = 0
    """How often it was decided in all: of how many attempts the removal was asked for.

    One removal may be asked for more than once: what a worker broke off is begun again."""
    events: int = 0
    """Of its history, the removal and the next attempt included."""


def passage(news: Sequence[HistoryEvent]) -> Passage:
    """Return the passage that a workload's history since then tells of."""
    found = Passage(events=len(news))
    signal: datetime | None = None
    task: datetime | None = None
    looks: set[int] = set()
    removed: set[int] = set()
    for event in news:
        at = event.event_time.ToDatetime(UTC)
        match event.event_type:
            case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED:
                signal = at
            case EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED:
                task = at
            case EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
                asked = event.activity_task_scheduled_event_attributes
                kind = asked.activity_type.name
                if kind == OperationKind.REMOVE:
                    removed.add(_attempt_of(asked.input.payloads))
                    found.removals = len(removed)
                    found.decided = found.decided or task
                elif kind == OperationKind.OBSERVE and found.decided is None:
                    looks.add(event.event_id)
                    found.told, found.asked = signal, at
            case EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED:
                if found.decided is None and event.activity_task_started_event_attributes.scheduled_event_id in looks:
                    found.begun = at
            case EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
                if found.decided is None and event.activity_task_completed_event_attributes.scheduled_event_id in looks:
                    found.seen = at
            case _:
                continue
    return found


def _attempt_of(payloads: Sequence[Payload]) -> int:
    """Return of which attempt an operation is, by its input."""
    return int(json.loads(payloads[0].data)["attempt"])


def told_of(news: Iterable[HistoryEvent]) -> str:
    """Return what has come to a history, in short."""
    kinds = Counter(EventType.Name(event.event_type).removeprefix("EVENT_TYPE_").lower() for event in news)
    return ", ".join(f"{count} {kind}" for kind, count in kinds.items())


def steps_of(news: Iterable[HistoryEvent]) -> Iterator[str]:
    """Yield what was told and asked in a history, a line each with its time: why something was decided twice."""
    for event in news:
        at = event.event_time.ToDatetime(UTC).isoformat(timespec="milliseconds")
        match event.event_type:
            case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED:
                signal = event.workflow_execution_signaled_event_attributes
                given = b" ".join(payload.data for payload in signal.input.payloads).decode(errors="replace")
                yield f"{at} told {signal.signal_name} {given}"
            case EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
                asked = event.activity_task_scheduled_event_attributes
                given = b" ".join(payload.data for payload in asked.input.payloads).decode(errors="replace")
                yield f"{at} asked {asked.activity_type.name}: {asked.activity_id} {given[:400]}"
            case _:
                continue


def said_at(entries: Iterable[Entry]) -> dict[str, datetime]:
    """Return when the worker first said on each node's object how it stands."""
    found: dict[str, datetime] = {}
    for entry in entries:
        ref = entry.get("objectRef") or {}
        if ref.get("resource") == "nodes" and entry["verb"] == "patch" and user(entry) == WORKER:
            found.setdefault(ref["name"], when(entry))
    return found


def changes_of(entries: Iterable[Entry], workloads: set[str], namespace: str) -> Iterator[tuple[str, str]]:
    """Yield each change that the worker made to anything of these workloads: whose it is, and what was done."""
    for entry in entries:
        ref = entry.get("objectRef") or {}
        if entry["verb"] not in CHANGES or user(entry) != WORKER or ref.get("namespace") != namespace:
            continue
        name = str(ref.get("name") or "")
        whose = name if name in workloads else name.partition("-")[0]
        if whose in workloads:
            yield whose, f"{entry['verb']} {ref.get('resource')}/{ref.get('subresource') or ''} {name}"
