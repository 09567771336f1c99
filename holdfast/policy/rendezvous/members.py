"""The members of a gang: agents that join, return, fall silent, are lost, or leave (rows T6, T9, T12, T13)."""

from __future__ import annotations

from datetime import datetime
from typing import assert_never

from holdfast.model.gang.orders import Holder
from holdfast.model.gang.state import (
    MEMBERS_MAXIMUM,
    Absence,
    Ended,
    Evicted,
    GangEvent,
    GangState,
    Listening,
    Lost,
    MemberRecord,
    Reported,
    Resized,
    Said,
)
from holdfast.model.gang.status import CloseReason, GangPhase
from holdfast.model.gang.wire import Join, MemberState
from holdfast.policy.values.edit import edit


def taken(state: GangState, event: GangEvent, now: datetime) -> GangState:
    """Return the state with the facts of an event recorded; `rounds` decides what follows from them."""
    match event:
        case Said():
            return _said(state, event, now)
        case Reported():
            known = state.members.get(event.member)
            # Another agent holds its place by now, or it was forgotten: it must announce itself again.
            if known is None or known.join.incarnation != event.incarnation:
                return state
            return _said(state, Said(join=known.join, report=event.report), now)
        case Lost():
            return _lost(state, event)
        case Evicted():
            return absent(state, event.member, Absence.EVICTED, event.why)
        case Resized():
            return edit(state, gang=edit(state.gang, min=min(event.min, event.max), max=event.max))
        case Ended():
            return closed(state, CloseReason.ENDED, event.why)
        case Listening():
            return state
    assert_never(event)


def closed(state: GangState, reason: CloseReason, why: str) -> GangState:
    """Return the state of a closed rendezvous; the first reason stays."""
    if state.closed is not None:
        return state
    return edit(state, phase=GangPhase.CLOSED, closed=reason, why=why)


def recorded(state: GangState, record: MemberRecord) -> GangState:
    """Return the state with one member's record changed."""
    return edit(state, members={**state.members, record.join.member: record})


def absent(state: GangState, member: str, absence: Absence, why: str) -> GangState:
    """Return the state with a present member marked absent; its charged restarts are kept."""
    record = state.members.get(member)
    if record is None or (record.absent is not None and record.absent is not Absence.SILENT):
        return state
    return recorded(state, edit(record, absent=absence, why=why))


def is_wanted(state: GangState, one: MemberRecord) -> bool:
    """Return whether the Job keeps a member's index at the gang's wanted size; an unknown index counts as kept."""
    return one.join.index is None or one.join.index < state.gang.pods


def supersedes(new: Join, old: Join | Holder) -> bool:
    """Return whether one agent is a later incarnation of a member than another."""
    return (new.life, new.started_at, new.incarnation) > (old.life, old.started_at, old.incarnation)


def _lost(state: GangState, event: Lost) -> GangState:
    record = state.members.get(event.member)
    # The loss of an earlier pod does not concern the pod that holds the place now.
    if record is None or record.join.pod_uid != event.pod_uid:
        return state
    return absent(state, event.member, event.absence, event.why)


def _said(state: GangState, event: Said, now: datetime) -> GangState:
    join, report = event.join, event.report
    if join.attempt != state.attempt:
        return state
    old = state.members.get(join.member)
    if old is None:
        return _admitted(state, MemberRecord(join=join, report=report, since=now))
    if old.join.incarnation != join.incarnation:
        dead = old.absent is Absence.GONE and old.join.pod_uid == join.pod_uid
        if dead or not supersedes(join, old.join):
            return state
        # It inherits the restarts charged to its place, but no place in its predecessor's round (row T9).
        fresh = edit(old, join=join, report=report, since=now, absent=None, why="", round=0)
        return recorded(state, _left(edit(fresh, round=old.round) if old.succeeded else fresh))
    heard = edit(old, join=join, report=report)
    if heard.absent is Absence.SILENT:
        heard = edit(heard, absent=None, why="")
    if report.state is MemberState.INIT and old.report.state is not MemberState.INIT:
        heard = edit(heard, since=now)
    runs = state.phase in {GangPhase.RUNNING, GangPhase.FINISHING}
    if runs and report.state is MemberState.SUCCEEDED and report.round == heard.round == state.round:
        # If others have already ended the round, this is no success: the gang runs it again.
        heard = edit(heard, succeeded=True)
    return recorded(state, _left(heard))


def _left(record: MemberRecord) -> MemberRecord:
    if record.report.state is MemberState.STOPPED and record.absent is None:
        return edit(record, absent=Absence.LEFT, why="its agent was told to end")
    return record


def _admitted(state: GangState, record: MemberRecord) -> GangState:
    if len(state.members) >= MEMBERS_MAXIMUM:
        # The gone member with the fewest restarts is forgotten first: names never used again would fill the memory.
        gone = [one for one in state.members.values() if one.absent not in {None, Absence.SILENT}]
        if not gone:
            return state
        least = min(gone, key=lambda one: (one.restarts, one.since, one.join.member)).join.member
        state = edit(state, members={name: one for name, one in state.members.items() if name != least})
    return recorded(state, _left(record))
