"""The outcome of a gang, for its workload; and its status, for people (rows T1, T4, T9, T14)."""

from __future__ import annotations

from datetime import datetime
from typing import Final, assert_never

from holdfast.model.gang.orders import GangEnding, GangOutcome
from holdfast.model.gang.state import GangState, MemberRecord
from holdfast.model.gang.status import CloseReason, GangStatus
from holdfast.model.words import escaped
from holdfast.policy.rendezvous.figures import figures
from holdfast.policy.rendezvous.rounds import deadlines, decisive, failures, losses, newcomers, recent

SHOWN: Final = 20


def ending(reason: CloseReason) -> GangEnding | None:
    """Return what the closing of a rendezvous means for its workload; None if the workload itself ended it."""
    match reason:
        case CloseReason.SUCCEEDED:
            return GangEnding.SUCCEEDED
        case CloseReason.MEMBER_LOST:
            return GangEnding.LOST
        case CloseReason.ENDED:
            return None
        case (
            CloseReason.RESTARTS_EXHAUSTED
            | CloseReason.EXIT_BARRIER_TIMEOUT
            | CloseReason.JOIN_TIMEOUT
            | CloseReason.ROUNDS_EXHAUSTED
            | CloseReason.MEMBER_FAILED
        ):
            return GangEnding.FAILED
    assert_never(reason)


def outcome(state: GangState, workload_uid: str, now: datetime) -> GangOutcome | None:
    """Return the message to the workload when its gang closes; None if there is nothing to report."""
    came = ending(state.closed) if state.closed is not None else None
    if came is None or state.closed is None:
        return None
    who = _culprit(state)
    failed = state.closed in {CloseReason.RESTARTS_EXHAUSTED, CloseReason.MEMBER_FAILED, CloseReason.ROUNDS_EXHAUSTED}
    told = decisive(who) if who is not None and failed and who.report.failures else None
    return GangOutcome(
        workload_uid=workload_uid,
        attempt=state.attempt,
        ending=came,
        reason=state.closed,
        why=state.why,
        at=now,
        round=state.round,
        member=who.join.member if who is not None else "",
        pod_uid=who.join.pod_uid if who is not None else "",
        node=who.join.node if who is not None else "",
        role=who.join.role if who is not None else "",
        restarts=who.restarts if who is not None else 0,
        failure=told,
    )


def _culprit(state: GangState) -> MemberRecord | None:
    """Return the member that caused the closing: as in the decision, a loss goes before a failure."""
    match state.closed:
        case CloseReason.MEMBER_LOST:
            lost = losses(state)
            return state.members.get(lost[0][0]) if lost else None
        case CloseReason.RESTARTS_EXHAUSTED | CloseReason.MEMBER_FAILED:
            failed = failures(state)
            return failed[0] if failed else None
        case CloseReason.ROUNDS_EXHAUSTED:
            lost, failed = losses(state), failures(state)
            return state.members.get(lost[0][0]) if lost else failed[0] if failed else None
        case _:
            return None


def status(state: GangState, workload_uid: str, now: datetime, hub: int) -> GangStatus:
    """Return the status of a gang."""
    due, counts = deadlines(state), figures(state)
    charged = sorted((-one.restarts, name) for name, one in state.members.items() if one.restarts)
    absent = sorted(name for name, one in state.members.items() if one.absent is not None)
    return GangStatus(
        workload_uid=workload_uid,
        attempt=state.attempt,
        phase=state.phase,
        round=state.round,
        min=state.gang.min,
        max=state.gang.max,
        present=len(state.members) - len(absent),
        participants=len(state.participants),
        waiting=tuple(one.join.member for one in newcomers(state)[:SHOWN]),
        absent={name: state.members[name].why or str(state.members[name].absent) for name in absent[:SHOWN]},
        charged={name: -number for number, name in charged[:SHOWN]},
        rounds=len(recent(state, now)),
        since=state.began,
        due=due[0].at if due else None,
        next=due[0].why if due else "",
        why=state.why,
        closed=state.closed,
        roles=counts.roles,
        ended=counts.ended,
        hub=hub,
    )


def details(state: GangState) -> str:
    """Return the status of a gang in Markdown, for the Temporal UI."""
    there, size = sum(1 for one in state.members.values() if one.absent is None), len(state.participants)
    lines = [
        f"Attempt {state.attempt}: **{state.phase.value}**, round {state.round} of {size} member(s); {there} there, "
        f"{state.gang.min} to {state.gang.max} wanted."
    ]
    if state.why:
        lines.append(escaped(state.why))
    lines += [f"- {one.at:%Y-%m-%d %H:%M:%S} UTC: {escaped(one.why)}" for one in deadlines(state)[:1]]
    return "\n\n".join(lines)
