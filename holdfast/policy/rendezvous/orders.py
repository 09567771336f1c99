"""The directive for each member of a gang, derived from the state; and its ranks (row T11)."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from functools import partial

from holdfast.model.gang.orders import Holder, Orders, Place, Round, Told
from holdfast.model.gang.state import Absence, GangState, MemberRecord
from holdfast.model.gang.status import CloseReason, GangPhase
from holdfast.model.gang.wire import EXIT_AGAIN, Assignment, Coordinator, Directive, DirectiveKind, Join
from holdfast.policy.rendezvous.figures import figures
from holdfast.policy.rendezvous.members import is_wanted, supersedes
from holdfast.policy.rendezvous.rounds import deadlines


def round_of(state: GangState) -> Round | None:
    """Return the last round, with its members that still take part; None if none does."""
    there = [state.members[name] for name in state.participants if name in state.members]
    there = [one for one in there if one.round == state.round]
    if not there:
        return None
    first = there[0].join
    return Round(
        run_id=state.run_id,
        number=state.round,
        coordinator=Coordinator(address=first.address, port=first.port),
        max_restarts=state.gang.max_restarts,
        places=tuple(
            Place(
                member=one.join.member,
                local_world_size=one.join.local_world_size,
                role=one.join.role,
                restarts=one.restarts,
            )
            for one in there
        ),
    )


def counted(given: Round) -> dict[str, Assignment]:
    """Return the places of a round, by member: contiguous in the order of its members (row T11)."""
    world = sum(one.local_world_size for one in given.places)
    roles = Counter[str]()
    for one in given.places:
        roles[one.role] += one.local_world_size
    rank, ranks, found = 0, Counter[str](), dict[str, Assignment]()
    for group_rank, one in enumerate(given.places):
        found[one.member] = Assignment(
            run_id=given.run_id,
            round=given.number,
            group_rank=group_rank,
            group_world_size=len(given.places),
            rank=rank,
            world_size=world,
            local_world_size=one.local_world_size,
            role=one.role,
            role_rank=ranks[one.role],
            role_world_size=roles[one.role],
            coordinator=given.coordinator,
            restarts=one.restarts,
            max_restarts=given.max_restarts,
        )
        rank += one.local_world_size
        ranks[one.role] += one.local_world_size
    return found


def assignments(state: GangState) -> dict[str, Assignment]:
    """Return the places of the last round, by member."""
    given = round_of(state)
    return counted(given) if given is not None else {}


def orders(state: GangState, seen: int) -> Orders:
    """Return the orders for members that are newer than a given revision."""
    news = {name: one for name, one in directives(state).items() if one.revision > seen}
    groups = dict[str, tuple[Directive, list[str]]]()
    for name, one in news.items():
        key = one.model_dump_json(exclude={"assignment"})
        groups.setdefault(key, (one, []))[1].append(name)
    runs = any(one.kind is DirectiveKind.RUN for one in news.values())
    due = deadlines(state)
    return Orders(
        attempt=state.attempt,
        revision=state.revision,
        phase=state.phase,
        told=tuple(
            Told(
                kind=one.kind,
                revision=one.revision,
                members=tuple(members),
                reason=one.reason,
                exit_code=one.exit_code,
                why=one.why,
                deadline=one.deadline,
            )
            for one, members in groups.values()
        ),
        round=round_of(state) if runs else None,
        due=due[0].at if due else None,
        roles=figures(state).roles,
    )


def directives_of(given: Orders, heartbeat: timedelta) -> dict[str, Directive]:
    """Return the directives that orders contain, by member."""
    places = counted(given.round) if given.round is not None else {}
    return {
        member: Directive(
            revision=one.revision,
            kind=one.kind,
            assignment=places.get(member) if one.kind is DirectiveKind.RUN else None,
            reason=one.reason,
            exit_code=one.exit_code,
            why=one.why,
            deadline=one.deadline,
            heartbeat=heartbeat,
        )
        for one in given.told
        for member in one.members
    }


def holders(state: GangState) -> tuple[Holder, ...]:
    """Return the agent that holds each place, or held it last."""
    return tuple(
        Holder(
            member=one.join.member,
            pod_uid=one.join.pod_uid,
            incarnation=one.join.incarnation,
            started_at=one.join.started_at,
            absent=one.absent,
            life=one.join.life,
        )
        for one in state.members.values()
    )


def directives(state: GangState) -> dict[str, Directive]:
    """Return the directive for each member, by name, each with the revision of the member's last directive."""
    runs = state.phase in {GangPhase.RUNNING, GangPhase.FINISHING}
    places = assignments(state) if runs else {}
    due = deadlines(state)
    until = due[0].at if due and state.phase is not GangPhase.RUNNING else None
    return {name: _directive(state, one, places.get(name), until) for name, one in state.members.items()}


def answer(state: GangState, join: Join) -> Directive | None:
    """Return the directive for an agent, whether or not it holds its place; None: not known yet."""
    record = state.members.get(join.member)
    if join.attempt < state.attempt:
        return leave(state.revision, f"attempt {join.attempt} has ended", 0)
    if join.attempt > state.attempt or record is None:
        return None
    if record.join.incarnation != join.incarnation:
        if supersedes(join, record.join):
            return None
        return leave(record.revision, "a later agent holds its place", EXIT_AGAIN)
    return directives(state)[join.member]


def _directive(state: GangState, one: MemberRecord, place: Assignment | None, until: datetime | None) -> Directive:
    told = partial(Directive, revision=one.revision, heartbeat=state.gang.heartbeat)
    finished = one.succeeded and one.round == state.round
    if one.absent not in {None, Absence.SILENT}:
        return leave(one.revision, one.why, EXIT_AGAIN if is_wanted(state, one) and not finished else 0)
    if state.closed is not None:
        well = state.closed is CloseReason.SUCCEEDED or finished
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


def leave(revision: int, why: str, exit_code: int) -> Directive:
    """Return the directive with which an agent ends."""
    return Directive(revision=revision, kind=DirectiveKind.LEAVE, why=why, exit_code=exit_code)
