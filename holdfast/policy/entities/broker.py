"""When a checkpoint is worth more than it costs, and which workloads are asked for one in a cycle (row L11). Pure.

The interval is Young's: with a checkpoint cost C and a mean time M between a workload's failures, sqrt(2 C M) minimizes
the sum of work lost to failures and time spent on checkpoints (J. W. Young, CACM 17(9), 1974).
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from math import sqrt

from holdfast import names
from holdfast.model import CheckpointState, Phase, Status, format_duration
from holdfast.model.entities.broker import (
    REFUSED_MAXIMUM,
    Asked,
    Broker,
    BrokerState,
    BrokerStatus,
    Candidate,
    Weighed,
)
from holdfast.model.words import counted, escaped
from holdfast.policy.values.edit import edit


def begun(broker: Broker) -> BrokerState:
    """Return the memory of a new broker: it weighs all running workloads in its first cycle."""
    return BrokerState(broker=broker)


def configured(state: BrokerState, broker: Broker) -> BrokerState:
    """Return the state with a new configuration, by which all workloads are weighed again."""
    return edit(state, broker=broker, refused={})


def candidate(workload: str, status: Status) -> Candidate | None:
    """Return a workload as a candidate for a checkpoint; None if it does not run, or is saving its state now.

    Its work is unsaved since its attempt began, or since its last checkpoint was requested. An incomplete checkpoint
    delays the next request as much as a complete one: a workload that could not save is not pressed.
    """
    if status.phase is not Phase.RUNNING or is_saving(status):
        return None
    request, since, cost = status.checkpoint, status.since, None
    if request is not None and request.ended_at is not None:
        if request.attempt == status.attempt:
            since = max(since, request.at)
        if request.state is CheckpointState.COMPLETE:
            cost = (request.ended_at - request.at).total_seconds()
    return Candidate(workload=workload, pods=max(1, status.pods.expected), since=since, cost=cost)


def is_saving(status: Status) -> bool:
    """Whether a workload is saving its state now."""
    request = status.checkpoint
    return request is not None and request.state is CheckpointState.REQUESTED and not status.phase.ended


def interval(broker: Broker, one: Candidate) -> timedelta:
    """Return the duration of unsaved work after which a checkpoint of a workload is worth its cost."""
    cost = max(1.0, one.cost if one.cost is not None else broker.cost.total_seconds())
    mean = broker.node_mtbf.total_seconds() / one.pods
    return min(max(timedelta(seconds=sqrt(2 * cost * mean)), broker.least), broker.most)


def waited(broker: Broker, one: Candidate, now: datetime) -> float:
    """Return the duration of unsaved work as a multiple of the interval: a checkpoint is worth its cost from 1 on."""
    return (now - one.since) / interval(broker, one)


def weighed(broker: Broker, found: Iterable[Candidate], saving: int, unheard: int, now: datetime) -> Weighed:
    """Return how many are due, and those to ask: the ones that have waited longest, as many as storage can take."""
    running = tuple(found)
    late = [(wait, one) for one in running if (wait := waited(broker, one, now)) >= 1]
    # Of two that wait for equally long, the larger loses more.
    late.sort(key=lambda each: (-each[0], -each[1].pods, each[1].workload))
    return Weighed(
        running=len(running) + saving,
        saving=saving,
        due=len(late),
        candidates=tuple(one for _, one in late[: max(0, broker.at_once - saving)]),
        unheard=unheard,
    )


def looked(state: BrokerState, seen: Weighed, now: datetime) -> tuple[BrokerState, tuple[Asked, ...]]:
    """Return the state after a cycle, and the workloads to ask: as many as storage allows beside those now saving."""
    broker = state.broker
    # While the store is away, none is asked; those that are due stay due, and come first once it is back (row L14).
    free = max(0, broker.at_once - seen.saving) if not seen.away else 0
    asked = tuple(Asked(workload=one.workload, why=_why(broker, one, now)) for one in seen.candidates[:free])
    return edit(
        state,
        cycle=state.cycle + 1,
        refused={each: until for each, until in state.refused.items() if until > now},
        looked_at=now,
        seen=edit(seen, candidates=()),
        asked=asked or state.asked,
        asked_total=state.asked_total + len(asked),
    ), asked


def refused(state: BrokerState, one: Asked, now: datetime) -> BrokerState:
    """Return the state after a workload did not take a request: others come first for the shortest interval."""
    asked = tuple(each for each in state.asked if each != one)
    refused = [*state.refused.items(), (one.workload, now + state.broker.least)][-REFUSED_MAXIMUM:]
    return edit(state, refused=dict(refused), asked=asked, asked_total=state.asked_total - 1)


def _why(broker: Broker, one: Candidate, now: datetime) -> str:
    lasts = "was never timed"
    if one.cost is not None:
        lasts = f"lasts {format_duration(timedelta(seconds=round(one.cost, 1)))}"
    unsaved = format_duration(timedelta(seconds=round((now - one.since).total_seconds())))
    due = format_duration(timedelta(seconds=round(interval(broker, one).total_seconds())))
    has = f"it has {counted(one.pods, 'pod')}, and has not saved for {unsaved}"
    return f"{has}; a checkpoint that {lasts} is worth its cost every {due}"


def status(state: BrokerState) -> BrokerStatus:
    """Return the status of a broker."""
    seen = state.seen
    waits = max(0, seen.due - max(0, state.broker.at_once - seen.saving)) if not seen.away else seen.due
    message = _counted(seen, waits)
    if seen.away:
        message += f"; nobody is asked while the store is away: {seen.away}"
    return BrokerStatus(
        broker=state.broker,
        message=message if state.looked_at is not None else "it has not looked yet",
        cycle=state.cycle,
        looked_at=state.looked_at,
        running=seen.running,
        saving=seen.saving,
        due=seen.due,
        unheard=seen.unheard,
        asked=state.asked,
        asked_total=state.asked_total,
    )


def _counted(seen: Weighed, waits: int) -> str:
    """Say how many can save, how many are saving, and how many of those that are due must wait."""
    can = counted(seen.running, "workload can save its", "workloads can save their")
    text = f"{can} state; {counted(seen.saving, 'saves', 'save')} now; "
    parts = [f"{counted(seen.due - waits, 'is', 'are')} asked now"] if seen.due > waits else []
    parts += [f"{counted(waits, 'waits for its turn', 'wait for their turn')}"] if waits else []
    return text + (f"{counted(seen.due, 'is', 'are')} due: {', '.join(parts)}" if parts else "none is due")


def details(state: BrokerState) -> str:
    """Return the status of a broker in Markdown, for the Temporal UI."""
    told = status(state)
    lines = [f"**{escaped(told.message)}** (cycle {told.cycle}; asked so far: {told.asked_total})", ""]
    lines += [f"- {name_of(one.workload)}: {escaped(one.why)}" for one in told.asked]
    return "\n".join(lines)


def name_of(workflow_id: str) -> str:
    """Return a workload's namespace and name, for people."""
    _, namespace, name = names.parse_workflow_id(workflow_id)
    return f"{namespace}/{name}"
