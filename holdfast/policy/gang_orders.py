"""What each member of a gang is to do, worked out from what is known; and its ranks (row T11)."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from functools import partial

from holdfast.model.gang import Absence, GangPhase, GangState, MemberRecord
from holdfast.model.rendezvous import (
    Assignment,
    CloseReason,
    Coordinator,
    Directive,
    DirectiveKind,
    Join,
)
from holdfast.policy.gang_members import supersedes
from holdfast.policy.gang_rounds import deadlines


def assignments(state: GangState) -> dict[str, Assignment]:
    """Return the places of the last round, by member: contiguous in the order of its participants (row T11)."""
    there = [state.members[name] for name in state.participants if name in state.members]
    there = [one for one in there if one.round == state.round]
    if not there:
        return {}
    world = sum(one.join.local_world_size for one in there)
    roles = Counter[str]()
    for one in there:
        roles[one.join.role] += one.join.local_world_size
    first = there[0].join
    coordinator = Coordinator(address=first.address, port=first.port)
    rank, ranks, found = 0, Counter[str](), dict[str, Assignment]()
    for group_rank, one in enumerate(there):
        local, role = one.join.local_world_size, one.join.role
        found[one.join.member] = Assignment(
            run_id=state.run_id,
            round=state.round,
            group_rank=group_rank,
            group_world_size=len(there),
            rank=rank,
            world_size=world,
            local_world_size=local,
            role=role,
            role_rank=ranks[role],
            role_world_size=roles[role],
            coordinator=coordinator,
            restarts=one.restarts,
            max_restarts=state.gang.max_restarts,
        )
        rank += local
        ranks[role] += local
    return found


def directives(state: GangState) -> dict[str, Directive]:
    """Return what each member is to do, by its name, each with the revision of what it was told last."""
    runs = state.phase in {GangPhase.RUNNING, GangPhase.FINISHING}
    places = assignments(state) if runs else {}
    due = deadlines(state)
    until = due[0].at if due and state.phase is not GangPhase.RUNNING else None
    return {name: _directive(state, one, places.get(name), until) for name, one in state.members.items()}


def answer(state: GangState, join: Join) -> Directive | None:
    """Return what an agent is to do that is, or is not, the one that holds its place; None: nobody knows yet."""
    record = state.members.get(join.member)
    if join.attempt < state.attempt:
        return _leave(state.revision, f"attempt {join.attempt} has ended")
    if join.attempt > state.attempt or record is None:
        return None
    if record.join.incarnation != join.incarnation:
        if supersedes(join, record.join):
            return None
        return _leave(record.revision, "a later agent holds its place")
    return directives(state)[join.member]


def _directive(state: GangState, one: MemberRecord, place: Assignment | None, until: datetime | None) -> Directive:
    told = partial(Directive, revision=one.revision, heartbeat=state.gang.heartbeat)
    if one.absent not in {None, Absence.SILENT}:
        return _leave(one.revision, one.why)
    if state.closed is not None:
        well = state.closed is CloseReason.SUCCEEDED or (one.succeeded and one.round == state.round)
        return told(kind=DirectiveKind.FINISH, reason=state.closed, exit_code=0 if well else 1, why=state.why)
    if place is not None:
        if one.succeeded:
            return told(kind=DirectiveKind.WAIT, why="the others may still finish", deadline=until)
        return told(kind=DirectiveKind.RUN, assignment=place)
    if not one.ready:
        return told(kind=DirectiveKind.REJOIN, why=state.why)
    if state.phase is GangPhase.FORMING:
        return told(kind=DirectiveKind.WAIT, why=f"round {state.round + 1} forms", deadline=until)
    return told(kind=DirectiveKind.WAIT, why="there is no place in the round that runs")


def _leave(revision: int, why: str) -> Directive:
    return Directive(revision=revision, kind=DirectiveKind.LEAVE, why=why)
