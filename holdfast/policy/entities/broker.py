"""When a checkpoint is worth more than it costs, and who is asked for one in a cycle (row L11). Pure.

The measure is Young's: with a cost C and a mean time M between a workload's failures, what is lost to failures and what
is spent on checkpoints are least together where it saves every sqrt(2 C M) (J. W. Young, CACM 17(9), 1974).
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from math import sqrt

from holdfast import names
from holdfast.model import CheckpointState, Phase, Status, format_duration
from holdfast.model.entities.broker import (
    CANDIDATES_MAXIMUM,
    Asked,
    Broker,
    BrokerState,
    BrokerStatus,
    Candidate,
    Weighed,
)
from holdfast.model.later import key_of
from holdfast.policy.values.edit import edit


def begun(broker: Broker) -> BrokerState:
    """Return the memory of a broker that has looked at nothing yet: all that run are weighed in its first cycle."""
    return BrokerState(broker=broker)


def configured(state: BrokerState, broker: Broker) -> BrokerState:
    """Return the state under other numbers: all are weighed anew by them."""
    return edit(state, broker=broker, later={})


def candidate(workload: str, status: Status) -> Candidate | None:
    """Return what is to be weighed of a workload; None if it does not run, or is saving its state now.

    Its work is unsaved since its attempt began, or since its last checkpoint was asked for, if that was complete. After
    one that was not, it is asked again as late as after one that was: whoever could not save is not pressed.
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
    """Return after how much unsaved work a checkpoint of a workload is worth its cost."""
    cost = max(1.0, one.cost if one.cost is not None else broker.cost.total_seconds())
    mean = broker.node_mtbf.total_seconds() / one.pods
    return min(max(timedelta(seconds=sqrt(2 * cost * mean)), broker.least), broker.most)


def weighed(broker: Broker, found: Iterable[Candidate], saving: int, unheard: int, now: datetime) -> Weighed:
    """Return whose checkpoint is due, in the order in which they are to be asked, and when those of the others are."""
    late = list[tuple[float, Candidate]]()
    later = dict[str, datetime]()
    count = 0
    for one in found:
        count += 1
        span = interval(broker, one)
        if one.since + span <= now:
            late.append(((now - one.since) / span, one))
        else:
            later[one.workload] = one.since + span
    # By how many times its own interval it has waited; of two alike the larger loses more.
    late.sort(key=lambda each: (-each[0], -each[1].pods, each[1].workload))
    return Weighed(
        running=count + saving,
        saving=saving,
        due=len(late),
        candidates=tuple(one for _, one in late[:CANDIDATES_MAXIMUM]),
        later=later,
        unheard=unheard,
    )


def looked(state: BrokerState, seen: Weighed, now: datetime) -> tuple[BrokerState, tuple[Asked, ...]]:
    """Return the state after a cycle's look, and who is asked: as many as storage bears beside those that save."""
    broker = state.broker
    # What cannot be written is not asked for; those that are due stay so, and come first once it can (row L14).
    free = max(0, broker.at_once - seen.saving) if not seen.away else 0
    asked = tuple(Asked(workload=one.workload, why=_why(broker, one, now)) for one in seen.candidates[:free])
    # Those that were not looked at are still due when they were; what was seen of the others replaces what was known.
    later = {key: at for key, at in state.later.items() if at > now} | dict(seen.later)
    return edit(
        state,
        cycle=state.cycle + 1,
        later=later,
        looked_at=now,
        seen=edit(seen, later={}, candidates=()),
        asked=asked or state.asked,
        asked_total=state.asked_total + len(asked),
    ), asked


def refused(state: BrokerState, one: Asked, now: datetime) -> BrokerState:
    """Return the state after a workload has taken no request: for as long as one waits at least others come first."""
    asked = tuple(each for each in state.asked if each != one)
    later = {**state.later, key_of(one.workload): now + state.broker.least}
    return edit(state, later=later, asked=asked, asked_total=state.asked_total - 1)


def _why(broker: Broker, one: Candidate, now: datetime) -> str:
    lasts = "was never timed"
    if one.cost is not None:
        lasts = f"lasts {format_duration(timedelta(seconds=round(one.cost, 1)))}"
    unsaved = format_duration(timedelta(seconds=round((now - one.since).total_seconds())))
    due = format_duration(timedelta(seconds=round(interval(broker, one).total_seconds())))
    return f"{unsaved} of {one.pods} pods are unsaved; one that {lasts} is worth its cost every {due}"


def status(state: BrokerState) -> BrokerStatus:
    """Return how a broker stands."""
    seen = state.seen
    waits = max(0, seen.due - max(0, state.broker.at_once - seen.saving)) if not seen.away else seen.due
    message = f"{seen.running} can save their state: {seen.saving} are at it, {seen.due} were due, {waits} of them wait"
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


def details(state: BrokerState) -> str:
    """Return in Markdown how a broker stands, for the Temporal UI."""
    told = status(state)
    lines = [f"**{told.message}** (cycle {told.cycle}, {told.asked_total} asked in all)", ""]
    lines += [f"- {name_of(one.workload)}: {one.why}" for one in told.asked]
    return "\n".join(lines)


def name_of(workflow_id: str) -> str:
    """Return a workload's namespace and name, for people."""
    _, namespace, name = names.parse_workflow_id(workflow_id)
    return f"{namespace}/{name}"
