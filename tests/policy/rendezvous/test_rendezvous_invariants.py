"""What holds of every gang, whatever its agents, its cluster and the clock do (T1-T13)."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from holdfast.model.gang.state import Absence, GangEvent, GangState, Said
from holdfast.model.gang.status import GangPhase
from holdfast.model.gang.wire import MemberState
from holdfast.policy.rendezvous.orders import assignments, directives
from tests.policy.lives.gang import Meeting

GANGS, STEPS = {"quick": (20, 20), "long": (10_000, 80)}.get(os.environ.get("HYPOTHESIS_PROFILE", ""), (200, 40))
NAMES = st.sampled_from("abcdefg")
STATES = st.sampled_from(MemberState)
SECONDS = st.sampled_from((0, 1, 16, 31, 120, 301, 601))


class Judged(Meeting):
    """A meeting whose every step is judged."""

    def tell(self, *events: GangEvent, heard: bool = True) -> Meeting:
        before = self.state
        super().tell(*events, heard=heard)
        judge(before, self.state, events)
        # What agents were told step by step is what they are to do now: no change was kept from anybody.
        current = directives(self.state)
        assert {name: self.told[name] for name in current} == current
        assert GangState.model_validate_json(self.state.model_dump_json()) == self.state
        return self


def judge(before: GangState, after: GangState, events: tuple[GangEvent, ...]) -> None:
    limit = after.gang.max_restarts
    assert all(0 <= one.restarts <= limit for one in after.members.values()), "a budget was exceeded"
    failed = {
        one.join.member
        for one in events
        if isinstance(one, Said)
        and one.report.state is MemberState.FAILED
        and one.report.round == before.round
        and one.join.member in before.participants
    }
    charged = {
        name: one.restarts - before.members[name].restarts
        for name, one in after.members.items()
        if name in before.members and one.restarts != before.members[name].restarts
    }
    assert set(charged) <= failed, "a member was charged that had not failed"
    assert list(charged.values()) in ([], [1]), "one failure was charged twice, or two for one round"
    if charged:
        assert before.phase is GangPhase.RUNNING
        assert after.closed is None
    if before.phase is GangPhase.FINISHING:
        assert after.round == before.round, "a round began after a member had succeeded"
    if before.closed is not None:
        assert (after.closed, after.round, after.why) == (before.closed, before.round, before.why)
    # One round a step. Members may have run rounds that a rendezvous which lost its memory does not know of.
    known = max(before.round, *(after.members[name].report.round for name in after.participants), 0)
    assert after.round in {before.round, known + 1}
    if after.round != before.round:
        assert after.gang.min <= len(after.participants) <= after.gang.max
        assert len(set(after.participants)) == len(after.participants)
        if after.gang.max_rounds is not None:
            lately = [at for at in after.rounds if at > after.rounds[-1] - after.gang.rounds_window]
            assert len(lately) <= after.gang.max_rounds
    places = sorted(assignments(after).values(), key=lambda one: one.group_rank)
    if after.round != before.round:
        assert [one.group_rank for one in places] == list(range(len(after.participants)))
        world = sum(one.local_world_size for one in places)
        ranks = [one.rank + local for one in places for local in range(one.local_world_size)]
        assert ranks == list(range(world))
        assert {one.world_size for one in places} == {world}
        assert len({(one.coordinator.address, one.coordinator.port) for one in places}) == 1
        for role in {one.role for one in places}:
            mine = [one for one in places if one.role == role]
            inside = [one.role_rank + local for one in mine for local in range(one.local_world_size)]
            assert inside == list(range(mine[0].role_world_size))


class Gangs(RuleBasedStateMachine):
    """One gang, and whatever befalls it."""

    one: Judged

    @initialize(
        low=st.integers(1, 3),
        more=st.integers(0, 3),
        restarts=st.integers(0, 3),
        rounds=st.sampled_from((None, 2, 6)),
        spares=st.integers(0, 1),
        call=st.sampled_from(("0s", "30s")),
    )
    def begins(self, low: int, more: int, restarts: int, rounds: int | None, spares: int, call: str) -> None:
        self.one = Judged(
            low, low + more, max_restarts=restarts, max_rounds=rounds, spares=spares, last_call=call, rounds_window="5m"
        )

    @rule(names=st.lists(NAMES, min_size=1, max_size=4, unique=True), workers=st.integers(1, 3), role=NAMES)
    def agents_begin(self, names: list[str], workers: int, role: str) -> None:
        self.one.join(*names, workers=workers, role=role)

    @rule()
    def agents_obey(self) -> None:
        self.one.obey()

    @precondition(lambda self: self.one.joins)
    @rule(data=st.data(), heard=st.booleans())
    def agents_say(self, data: st.DataObject, heard: bool) -> None:
        names = data.draw(st.lists(st.sampled_from(sorted(self.one.joins)), min_size=1, max_size=4))
        said = list[Said]()
        for name in names:
            state, late = data.draw(STATES), data.draw(st.integers(0, 2))
            number = data.draw(st.integers(0, self.one.state.round + 1)) if late == 2 else self.one.state.round
            ran = state in {MemberState.HEALTHY, MemberState.FAILED, MemberState.SUCCEEDED}
            said.append(self.one.says(name, state, late=late, round=max(number, 1) if ran else number))
        self.one.tell(*said, heard=heard)

    @precondition(lambda self: self.one.joins)
    @rule(data=st.data(), absence=st.sampled_from((Absence.GONE, Absence.SILENT)))
    def a_pod_is_lost(self, data: st.DataObject, absence: Absence) -> None:
        self.one.loses(data.draw(st.sampled_from(sorted(self.one.joins))), absence)

    @rule(name=NAMES)
    def one_is_preempted(self, name: str) -> None:
        self.one.evicts(name)

    @rule(low=st.integers(1, 3), more=st.integers(0, 3))
    def it_is_resized(self, low: int, more: int) -> None:
        self.one.resizes(low, low + more)

    @rule(seconds=SECONDS, heard=st.booleans())
    def time_passes(self, seconds: int, heard: bool) -> None:
        before = self.one.state
        self.one.wait(seconds, heard=heard)
        if not heard:
            assert self.one.state.closed is before.closed, "it was failed while nobody listened"

    @precondition(lambda self: self.one.state.phase is GangPhase.RUNNING)
    @rule(data=st.data())
    def one_is_unknown(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(self.one.state.participants))
        before = self.one.state
        self.one.tell(self.one.says(name, MemberState.UNKNOWN), heard=False)
        assert self.one.state.round == before.round
        assert {key: one.restarts for key, one in self.one.state.members.items()} == {
            key: one.restarts for key, one in before.members.items()
        }

    @invariant()
    def something_is_to_come(self) -> None:
        """A gang that waits has a time by which it will have waited enough."""
        if self.one.state.phase in {GangPhase.FORMING, GangPhase.FINISHING} and self.one.rounds:
            assert self.one.deadlines


TestGangs = Gangs.TestCase
TestGangs.settings = settings(
    max_examples=GANGS,
    stateful_step_count=STEPS,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
