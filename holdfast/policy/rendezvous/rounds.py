"""When a round of a gang begins, what ends it, which member is charged, when the rendezvous closes (rows T1-T10)."""

from __future__ import annotations

import signal
from datetime import datetime
from typing import Final, NamedTuple

from holdfast.model.base import format_duration
from holdfast.model.gang.state import Absence, GangState, MemberRecord
from holdfast.model.gang.status import CloseReason, GangPhase
from holdfast.model.gang.wire import MemberState, WorkerFailure
from holdfast.model.words import counted
from holdfast.policy.rendezvous.members import absent, closed, is_wanted, recorded
from holdfast.policy.values.edit import edit
from holdfast.policy.verdicts.fate import SKEW

_SIGNALS: Final = 64


class Gathered(NamedTuple):
    """The members for the next round."""

    chosen: tuple[MemberRecord, ...]
    """The members that would begin it now, in the order of their ranks."""
    pending: tuple[MemberRecord, ...]
    """The members of the last round that have not stopped yet."""


class GangDeadline(NamedTuple):
    """A deadline, and what happens at it."""

    at: datetime
    why: str


def settled(state: GangState, now: datetime, *, heard: bool) -> GangState:
    """Return the state after everything that follows from it now.

    Args:
        state: the current state.
        now: the time.
        heard: whether the hub has listened to the gang for a whole keep-alive: only then does anything fail by a
            deadline, since posts from the time before may be on their way.
    """
    while True:
        after = _once(state, now, heard=heard)
        if after is state:
            return state
        state = after


def deadlines(state: GangState) -> tuple[GangDeadline, ...]:
    """Return the deadlines that apply without a further event, the earliest first."""
    gang, due = state.gang, list[GangDeadline]()
    if state.phase is GangPhase.FORMING:
        if state.enough is not None:
            due.append(GangDeadline(state.enough + gang.last_call, "the last call ends"))
        due.append(GangDeadline(state.began + gang.join_timeout, f"fewer than {gang.min} members have joined"))
    elif state.phase is GangPhase.RUNNING:
        limited = newcomers(state)[gang.spares :]
        due += [GangDeadline(one.since + gang.join_timeout, f"{one.join.member} finds no place") for one in limited]
    elif state.phase is GangPhase.FINISHING:
        due.append(GangDeadline(state.began + gang.finalization_barrier, "the finalization barrier ends"))
    return tuple(sorted(due))


def gathered(state: GangState, *, late: bool) -> Gathered:
    """Return the members for the next round: those of the last round first, then newcomers, by arrival.

    Once it is late, no place is kept for members that have not stopped yet.
    """
    there = [one for one in state.members.values() if one.absent is None]
    old = [one for one in there if state.round and one.round == state.round]
    ready = sorted((one for one in old if one.ready), key=_came)
    pending = tuple(one for one in old if not one.ready)
    free = state.gang.max - len(ready) - (0 if late else len(pending))
    chosen = (*ready, *newcomers(state)[: max(0, free)])[: state.gang.max]
    return Gathered(chosen, pending)


def _once(state: GangState, now: datetime, *, heard: bool) -> GangState:
    if state.phase in {GangPhase.FORMING, GangPhase.RUNNING}:
        shrunk = _without_dropped(state)
        if shrunk is not state:
            return shrunk
    match state.phase:
        case GangPhase.FORMING:
            return _forming(state, now, heard=heard)
        case GangPhase.RUNNING:
            return _running(state, now, heard=heard)
        case GangPhase.FINISHING:
            return _finishing(state, now, heard=heard)
        case GangPhase.CLOSED:
            return state


def _without_dropped(state: GangState) -> GangState:
    """Evict the members whose index the Job drops, and no other: the Job decides which indexes it drops (row D39)."""
    pods = state.gang.pods
    gone = {
        name: edit(
            one, absent=Absence.EVICTED, why=f"the gang is to have {counted(pods, 'pod')}: index {one.join.index} goes"
        )
        for name, one in state.members.items()
        if one.absent is None and not is_wanted(state, one) and not _done(state, one)
    }
    return edit(state, members={**state.members, **gone}) if gone else state


def _forming(state: GangState, now: datetime, *, heard: bool) -> GangState:
    gang, late = state.gang, now >= state.began + state.gang.join_timeout
    chosen, pending = gathered(state, late=late)
    enough = len(chosen) >= gang.min
    if enough != (state.enough is not None):
        return edit(state, enough=now if enough else None)
    if not heard and any(_unsure(state, one) for one in chosen):
        return state
    called = state.enough is not None and now >= state.enough + gang.last_call
    if len(chosen) == gang.max or (called and not pending) or (late and enough):
        return _formed(state, chosen, now)
    if late and heard:
        span = format_duration(gang.join_timeout)
        return closed(state, CloseReason.JOIN_TIMEOUT, f"{len(chosen)} of at least {gang.min} joined within {span}")
    return state


def _unsure(state: GangState, one: MemberRecord) -> bool:
    """Whether a member was told to run the last round, and has not been heard since: it may run by now.

    Its post may have been lost with the hub that received it; the member repeats it to the current hub.
    """
    return bool(state.round) and one.round == state.round and one.report.round < one.round


def _formed(state: GangState, chosen: tuple[MemberRecord, ...], now: datetime) -> GangState:
    # A rendezvous that has lost its memory may know fewer rounds than its members have run.
    number = max(state.round, *(one.report.round for one in chosen)) + 1
    members = dict(state.members)
    for one in chosen:
        members[one.join.member] = edit(one, round=number, succeeded=False)
    bounded = state.gang.max_rounds is not None
    return edit(
        state,
        phase=GangPhase.RUNNING,
        round=number,
        participants=tuple(one.join.member for one in chosen),
        members=members,
        began=now,
        enough=None,
        rounds=(*recent(state, now), now) if bounded else (),
    )


def _running(state: GangState, now: datetime, *, heard: bool) -> GangState:
    gang, there = state.gang, [state.members[name] for name in state.participants if name in state.members]
    if any(_done(state, one) for one in there):
        return edit(state, phase=GangPhase.FINISHING, began=now, why="a member has succeeded")
    lost = losses(state)
    if lost:
        name, how, ours = lost[0]
        # Without restarts, the outer scheduler handles a loss; an orderly leave only frees a place (rows T9, T13).
        if gang.max_restarts == 0 and not ours:
            return closed(state, CloseReason.MEMBER_LOST, f"{name} was lost: {how}")
        return _again(state, f"{name}: {how}", now)
    failed = failures(state)
    if failed:
        return _charged(state, failed[0], now)
    over = state.participants[gang.max :]
    if over:
        why = f"the gang is to have at most {gang.max} members"
        if state.members[over[-1]].join.index is None:
            return absent(state, over[-1], Absence.EVICTED, why)
        # The Job keeps all of them: one becomes a spare.
        return _again(state, why, now)
    waiting = newcomers(state)
    if waiting and len(there) < gang.max and not _used_up(state, now):
        return _again(state, f"{waiting[0].join.member} has joined", now)
    for one in waiting[gang.spares :] if heard else ():
        if now >= one.since + gang.join_timeout:
            why = f"no place was free for {format_duration(gang.join_timeout)}"
            return absent(state, one.join.member, Absence.EVICTED, why)
    return state


def _charged(state: GangState, one: MemberRecord, now: datetime) -> GangState:
    """Charge the failure to the member that failed first, and to no other (rows T3-T5)."""
    limit, why = state.gang.max_restarts, words(one)
    if one.restarts >= limit:
        return closed(state, CloseReason.RESTARTS_EXHAUSTED, f"{why}; {counted(limit, 'restart')} used")
    after = _again(state, why, now)
    if after.closed is not None:
        return after
    return recorded(after, edit(one, restarts=one.restarts + 1))


def _finishing(state: GangState, now: datetime, *, heard: bool) -> GangState:
    """Wait for the other members, and begin no further round (rows T1, T2, T10)."""
    there = [state.members.get(name) for name in state.participants]
    if all(one is not None and _done(state, one) for one in there):
        return closed(state, CloseReason.SUCCEEDED, f"all {len(there)} members have succeeded")
    failed = failures(state)
    if failed:
        one = failed[0]
        spent = one.restarts >= state.gang.max_restarts
        reason = CloseReason.RESTARTS_EXHAUSTED if spent else CloseReason.MEMBER_FAILED
        return closed(state, reason, f"{words(one)} after another member had succeeded")
    for name, how, _ in losses(state):
        record = state.members.get(name)
        # A member that is only silent may have succeeded, and has until the barrier to report it.
        if record is None or record.absent is not Absence.SILENT:
            return closed(state, CloseReason.MEMBER_LOST, f"{name} was lost after another had succeeded: {how}")
    if heard and now >= state.began + state.gang.finalization_barrier:
        span = format_duration(state.gang.finalization_barrier)
        late = sum(1 for one in there if one is None or not _done(state, one))
        why = f"{late} of {len(there)} had not finished {span} after the first"
        return closed(state, CloseReason.EXIT_BARRIER_TIMEOUT, why)
    return state


def _again(state: GangState, why: str, now: datetime) -> GangState:
    """Let the next round form, unless the maximum of rounds has begun in the window."""
    if _used_up(state, now):
        span = format_duration(state.gang.rounds_window)
        why = f"{why}; {state.gang.max_rounds} rounds began within {span}"
        return closed(state, CloseReason.ROUNDS_EXHAUSTED, why)
    return edit(state, phase=GangPhase.FORMING, began=now, enough=None, why=why)


def recent(state: GangState, now: datetime) -> tuple[datetime, ...]:
    """Return the begin times of the rounds within the window."""
    return tuple(at for at in state.rounds if now < at + state.gang.rounds_window)


def _used_up(state: GangState, now: datetime) -> bool:
    return state.gang.max_rounds is not None and len(recent(state, now)) >= state.gang.max_rounds


def _came(one: MemberRecord) -> tuple[datetime, str]:
    return one.since, one.join.member


def newcomers(state: GangState) -> list[MemberRecord]:
    """Return the newcomers without a place, by arrival (row T7)."""
    old = {name for name in state.participants if name in state.members and state.members[name].round == state.round}
    return sorted((one for name, one in state.members.items() if one.ready and name not in old), key=_came)


def _done(state: GangState, one: MemberRecord) -> bool:
    return one.succeeded and one.round == state.round


def losses(state: GangState) -> list[tuple[str, str, bool]]:
    """Return the lost members of the round: name, reason, and whether the member left in order."""
    found = list[tuple[str, str, bool]]()
    for name in state.participants:
        one = state.members.get(name)
        if one is None or (one.absent is None and one.round != state.round):
            found.append((name, "another agent holds its place", False))
        elif one.absent is not None and not _done(state, one):
            found.append((name, one.why, one.absent in {Absence.LEFT, Absence.EVICTED}))
    return sorted(found, key=lambda each: each[2])


def failures(state: GangState) -> list[MemberRecord]:
    """Return the members that failed in this round: the first failure first, ties by name (row T12: UNKNOWN is none).

    Times of different nodes are only exact to `SKEW`: within it a worker that was killed comes first.
    """
    failed = [
        one
        for name in state.participants
        if (one := state.members.get(name)) is not None
        and one.absent is None
        and one.round == state.round == one.report.round
        and one.report.state is MemberState.FAILED
    ]
    began = min((first.at for one in failed for first in one.report.failures), default=state.began)
    return sorted(failed, key=lambda one: (*_order(decisive(one, began), began), one.join.member))


def decisive(one: MemberRecord, began: datetime | None = None) -> WorkerFailure:
    """Return the decisive failure of a member.

    Args:
        one: a member that has failed.
        began: when the first worker of its gang failed, as far as is known; None: use this member's workers only.
    """
    failures = one.report.failures
    first = began if began is not None else min(each.at for each in failures)
    return min(failures, key=lambda each: _order(each, first))


def _order(one: WorkerFailure, began: datetime) -> tuple[bool, datetime]:
    """Return the order of failures: within clock skew, a killed worker goes before one that gave up (row D43)."""
    return not (_was_killed(one) and one.at - began <= SKEW), one.at


def _was_killed(one: WorkerFailure) -> bool:
    """Return whether something else ended a worker: a signal, mostly KILL for lack of memory.

    A process sends ABRT to itself, and TERM is a request: both count as an exit code. A shell reports 128 + the signal.
    """
    code = one.exit_code or 0
    number = one.signal if one.signal is not None else code - 128
    return 0 < number <= _SIGNALS and number not in {signal.SIGABRT, signal.SIGTERM}


def words(one: MemberRecord) -> str:
    """Return a text about the decisive failure of a member's workers: `local rank 0 of train-1-x exited 3`."""
    first = decisive(one)
    how = f"was ended by signal {first.signal}" if first.signal is not None else f"exited {first.exit_code}"
    if first.signal is None and first.exit_code is None:
        how = "could not be started"
    return f"local rank {first.local_rank} of {one.join.member} {how}"
