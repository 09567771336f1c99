"""Rounds of a gang, row by row of the torchelastic contract (T1-T13)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from holdfast.agent.environment import variables
from holdfast.agent.messages import Assignment
from holdfast.model.gang.orders import GangEnding
from holdfast.model.gang.state import Absence
from holdfast.model.gang.status import CloseReason, GangPhase
from holdfast.model.gang.wire import DirectiveKind, MemberState, WorkerFailure
from holdfast.policy.rendezvous.orders import answer, orders
from holdfast.policy.rendezvous.outcome import details, outcome, status
from holdfast.policy.values.edit import edit
from tests.policy.lives.gang import Meeting

ROW = pytest.mark.row
FOUR = ("a", "b", "c", "d")


@ROW("T1", level="pure")
def test_T1_all_succeed_and_the_gang_has_succeeded() -> None:
    one = Meeting().start(*FOUR).succeeds("a", "b", "c")
    assert one.state.closed is None
    one.succeeds("d")
    assert one.state.closed is CloseReason.SUCCEEDED
    assert {(told.kind, told.exit_code) for told in one.told.values()} == {(DirectiveKind.FINISH, 0)}


@ROW("T1", level="pure")
@pytest.mark.parametrize("first", [0, 3])
def test_T1_one_of_four_fails_and_the_gang_has_failed(first: int) -> None:
    one = Meeting(max_restarts=0).start(*FOUR).succeeds(*FOUR[1 : 1 + first]).fails("a")
    assert one.state.closed is CloseReason.RESTARTS_EXHAUSTED
    assert one.told["a"].exit_code == 1
    assert one.kinds == dict.fromkeys(FOUR, "Finish")
    assert one.state.round == 1


@ROW("T1", level="pure")
@ROW("T6", level="pure")
def test_T6_who_comes_after_the_success_is_told_to_end_well() -> None:
    one = Meeting(2, 4).start("a", "b").succeeds("a", "b")
    assert one.state.closed is CloseReason.SUCCEEDED
    one.wait(3600).join("c")
    assert (one.told["c"].kind, one.told["c"].exit_code) == (DirectiveKind.FINISH, 0)


@ROW("T2", level="pure")
def test_T2_the_rest_may_finish_200_s_later() -> None:
    one = Meeting().start(*FOUR).succeeds("a")
    assert one.state.phase is GangPhase.FINISHING
    assert one.kinds == {"a": "Wait", "b": "Run", "c": "Run", "d": "Run"}
    one.wait(200).succeeds("b", "c", "d")
    assert one.state.closed is CloseReason.SUCCEEDED


@ROW("T2", level="pure")
def test_T2_who_has_not_finished_after_the_barrier_is_terminated() -> None:
    one = Meeting().start(*FOUR).succeeds("a", "b").wait(299)
    assert one.state.closed is None
    assert one.deadlines[0].at - one.now == timedelta(seconds=1)
    one.wait(2)
    assert one.state.closed is CloseReason.EXIT_BARRIER_TIMEOUT
    assert one.state.closed.value == "exit_barrier_timeout"
    assert one.state.why == "2 of 4 had not finished 5m after the first"
    assert {name: told.exit_code for name, told in one.told.items()} == {"a": 0, "b": 0, "c": 1, "d": 1}


@ROW("T3", level="pure")
def test_T3_a_failure_is_charged_to_its_member_and_all_begin_another_round() -> None:
    one = Meeting().start("a", "b", "c").fails("a", 3)
    assert one.kinds == dict.fromkeys("abc", "Rejoin")
    assert one.state.why == "local rank 0 of a exited 3"
    one.obey().wait(30).obey()
    assert one.left == {"a": 2, "b": 3, "c": 3}
    assert one.kinds == dict.fromkeys("abc", "Run")
    assert one.state.round == 2
    told = one.told["a"].assignment
    assert told is not None
    assert variables(Assignment.read(told.model_dump(mode="json")), 0, "", {})["TORCHELASTIC_RESTART_COUNT"] == "1"


@ROW("T3", level="pure")
def test_T3_of_failures_told_together_the_earliest_is_charged() -> None:
    one = Meeting().start("a", "b", "c")
    late = one.says("a", MemberState.FAILED, late=2)
    one.tell(late, one.says("c", MemberState.FAILED, late=1), one.says("b", MemberState.FAILED, late=1))
    assert one.left == {"a": 3, "b": 2, "c": 3}


@ROW("D42", level="pure")
def test_D42_no_round_begins_before_who_failed_first_has_stopped() -> None:
    one = Meeting(high=2).start("a", "b").fails("a")
    assert one.left == {"a": 2, "b": 3}
    one.tell(one.says("b", MemberState.FAILED)).tell(one.says("b", MemberState.INIT)).wait(45)
    assert one.state.round == 1, "a still stops its workers"
    one.tell(one.says("a", MemberState.INIT))
    assert (one.state.round, one.left) == (2, {"a": 2, "b": 3})


@ROW("D43", level="pure")
@pytest.mark.parametrize("killed", [{"signal": 9}, {"signal": 11}, {"exit_code": 137}])
@pytest.mark.parametrize(("gap", "charged"), [(1.5, "b"), (3.0, "a")])
def test_D43_within_what_clocks_can_tell_who_was_killed_goes_before_who_gave_up(
    killed: dict[str, Any], gap: float, charged: str
) -> None:
    one = Meeting().start("a", "b", "c")
    gave_up = one.says("a", MemberState.FAILED)
    failure = WorkerFailure(local_rank=0, at=one.now + timedelta(seconds=gap), **killed)
    died = one.says("b", MemberState.FAILED)
    died = died.model_copy(update={"report": died.report.model_copy(update={"failures": (failure,)})})
    one.tell(gave_up, died)
    assert one.left == {name: 2 if name == charged else 3 for name in "abc"}


@ROW("D43", level="pure")
@pytest.mark.parametrize("given_up", [{"signal": 6}, {"signal": 15}, {"exit_code": 255}])
def test_D43_who_aborts_or_is_asked_to_end_was_not_killed(given_up: dict[str, Any]) -> None:
    one = Meeting().start("a", "b")
    failure = WorkerFailure(local_rank=0, at=one.now + timedelta(seconds=1), **given_up)
    later = one.says("b", MemberState.FAILED)
    later = later.model_copy(update={"report": later.report.model_copy(update={"failures": (failure,)})})
    one.tell(one.says("a", MemberState.FAILED), later)
    assert one.left == {"a": 2, "b": 3}


@ROW("T3", level="pure")
def test_T3_what_is_told_twice_or_of_a_round_that_is_over_is_charged_once() -> None:
    one = Meeting().start("a", "b")
    again = one.says("a", MemberState.FAILED)
    one.tell(again).tell(again, one.says("b", MemberState.FAILED)).obey().wait(30)
    one.tell(again).obey()
    assert one.left == {"a": 2, "b": 3}
    assert one.state.round == 2


@ROW("T4", level="pure")
def test_T4_a_member_with_no_restart_left_closes_the_rendezvous_at_once() -> None:
    one = Meeting(max_restarts=1).start(*FOUR).fails("a").obey().wait(30).obey()
    before = one.now
    one.fails("a", 7)
    assert one.now == before
    assert one.state.closed is CloseReason.RESTARTS_EXHAUSTED
    assert one.state.why == "local rank 0 of a exited 7; 1 restart used"
    assert {told.kind for told in one.told.values()} == {DirectiveKind.FINISH}
    assert one.deadlines == ()


@ROW("T5", level="pure")
def test_T5_one_flaky_member_alone_ends_the_job_after_four_runs() -> None:
    one = Meeting().start(*FOUR)
    for _ in range(4):
        one.fails("c").obey()
    assert one.state.closed is CloseReason.RESTARTS_EXHAUSTED
    assert len(one.rounds) == 4
    assert one.left == {"a": 3, "b": 3, "c": 0, "d": 3}


@ROW("T5", level="pure")
def test_T5_an_agent_that_comes_back_finds_its_budget_as_it_left_it() -> None:
    one = Meeting().start(*FOUR)
    for _ in range(4):
        one.fails("c").loses("c").join("c").obey()
    assert one.state.closed is CloseReason.RESTARTS_EXHAUSTED
    assert len(one.rounds) == 4


@ROW("T6", level="pure")
def test_T6_a_new_member_stops_all_for_a_round_that_nobody_pays_for() -> None:
    one = Meeting(high=3).start("a", "b")
    assert one.world == 2
    one.join("c")
    assert one.kinds == {"a": "Rejoin", "b": "Rejoin", "c": "Wait"}
    one.obey()
    assert one.world == 3
    assert one.kinds == dict.fromkeys("abc", "Run")
    assert one.left == dict.fromkeys("abc", 3)


@ROW("T6", level="pure")
def test_T6_workers_are_what_is_counted() -> None:
    one = Meeting(high=3).join("a", workers=2).join("b", workers=4).join("c", workers=1, role="eval").obey()
    assert one.world == 7
    assert one.ranks == {"a": 0, "b": 2, "c": 6}
    told = one.told["c"].assignment
    assert told is not None
    assert (told.role_rank, told.role_world_size, told.group_rank) == (0, 1, 2)


@ROW("T7", level="pure")
def test_T7_at_the_maximum_a_newcomer_waits_and_leaves_at_the_timeout() -> None:
    one = Meeting(high=2).start("a", "b").join("c").wait(599).obey()
    assert one.kinds == {"a": "Run", "b": "Run", "c": "Wait"}
    one.wait(2)
    assert one.kinds == {"a": "Run", "b": "Run", "c": "Leave"}
    assert one.told["c"].exit_code == 75, "its Job still wants its index (row D39)"
    assert one.state.round == 1


@ROW("T7", level="pure")
def test_T7_a_newcomer_takes_the_place_that_is_free_after_300_s() -> None:
    one = Meeting(high=2).start("a", "b").join("c").wait(300).loses("a").obey()
    assert one.state.round == 2
    assert set(one.state.participants) == {"b", "c"}
    assert one.kind("a") is DirectiveKind.LEAVE


@ROW("T7", level="pure")
def test_T7_a_spare_waits_without_a_limit_and_the_next_one_does_not() -> None:
    one = Meeting(high=2, spares=1).start("a", "b").join("c").wait(1).join("d").wait(700)
    assert one.kinds == {"a": "Run", "b": "Run", "c": "Wait", "d": "Leave"}


@ROW("T8", level="pure")
def test_T8_with_the_minimum_the_last_call_begins_and_with_the_maximum_the_round() -> None:
    one = Meeting(low=2, high=4).join("a").wait(100).join("b").wait(29).join("c")
    assert one.state.round == 0
    one.wait(1)
    assert set(one.state.participants) == {"a", "b", "c"}
    full = Meeting(low=2, high=4).join(*FOUR)
    assert full.state.round == 1


@ROW("T8", level="pure")
def test_T8_below_the_minimum_at_the_timeout_the_gang_has_failed() -> None:
    one = Meeting(low=3, high=4).join("a", "b").wait(599)
    assert one.state.closed is None
    one.wait(1)
    assert one.state.closed is CloseReason.JOIN_TIMEOUT
    assert one.state.why == "2 of at least 3 joined within 10m"


@ROW("E9", level="pure")
def test_E9_the_page_of_a_gang_says_on_which_day_its_time_is_over() -> None:
    gang = Meeting(2, 4, join_timeout=timedelta(days=2)).join("a")
    assert details(gang.state).splitlines()[-1] == "- 2026-02-02 12:00:00 UTC: fewer than 2 members have joined"


@ROW("T8", level="pure")
def test_T8_who_leaves_during_the_last_call_takes_it_back() -> None:
    one = Meeting(low=2, high=4).join("a", "b").wait(20).loses("b").wait(20)
    assert one.state.round == 0
    one.join("b").wait(29)
    assert one.state.round == 0
    one.wait(1)
    assert one.state.round == 1


@ROW("T9", level="pure")
def test_T9_without_restarts_a_loss_is_the_workloads_to_make_good() -> None:
    one = Meeting(low=2, max_restarts=0).start(*FOUR).loses("b")
    assert one.state.closed is CloseReason.MEMBER_LOST
    assert one.kinds == {"a": "Finish", "b": "Leave", "c": "Finish", "d": "Finish"}


@ROW("T9", level="pure")
@pytest.mark.parametrize("absence", [Absence.GONE, Absence.SILENT])
def test_T9_with_restarts_the_survivors_go_on_without_it_and_pay_nothing(absence: Absence) -> None:
    one = Meeting(low=2).start(*FOUR).loses("b", absence).obey().wait(30).obey()
    assert set(one.state.participants) == {"a", "c", "d"}
    assert one.world == 3
    assert one.left == dict.fromkeys(FOUR, 3)


@ROW("T9", level="pure")
def test_T9_failures_of_those_who_met_the_lost_member_are_not_charged() -> None:
    one = Meeting(low=2).start(*FOUR)
    one.tell(one.says("a", MemberState.FAILED), one.loss("b")).obey().wait(30).obey()
    assert one.left == dict.fromkeys(FOUR, 3)
    assert one.state.round == 2


@ROW("T9", level="pure")
def test_T9_who_was_silent_and_speaks_again_joins_the_next_round() -> None:
    one = Meeting(low=2).start(*FOUR).loses("b", Absence.SILENT).obey().wait(30).obey()
    one.tell(one.says("b", MemberState.HEALTHY, round=1))
    assert one.kind("b") is DirectiveKind.REJOIN
    one.obey()
    assert one.state.round == 3
    assert len(one.state.participants) == 4


@ROW("T11", level="pure")
@pytest.mark.parametrize("runs", [True, False])
def test_T11_no_round_begins_over_who_may_run_the_last_one_and_was_not_heard_since_the_hub_died(runs: bool) -> None:
    one = Meeting(low=2, high=2).join("a", "b")
    assert one.kinds == {"a": "Run", "b": "Run"}
    # What they said to that was lost with the hub; the next one has not listened for a whole keep-alive yet.
    one.tell(one.loss("b"), one.hello("c"), heard=False)
    assert (one.state.phase, one.state.round) == (GangPhase.FORMING, 1)
    if runs:
        one.tell(one.says("a", MemberState.HEALTHY, round=1), heard=False)
        assert (one.kind("a"), one.state.round) == (DirectiveKind.REJOIN, 1)
        one.tell(one.says("a", MemberState.INIT, round=1), heard=False)
    else:
        one.wait(5)
    assert (one.state.phase, one.state.round) == (GangPhase.RUNNING, 2)
    assert (set(one.state.participants), one.left["a"]) == ({"a", "c"}, 3)


@ROW("T9", level="pure")
def test_T9_word_of_a_pod_that_held_the_place_before_is_no_loss() -> None:
    one = Meeting(low=2).start(*FOUR)
    old = one.loss("b")
    one.loses("b").join("b").obey().wait(30).obey()
    now = one.state.round
    one.tell(old)
    assert one.state.round == now
    assert one.state.phase is GangPhase.RUNNING


@ROW("T10", level="pure")
def test_T10_once_one_has_finished_a_loss_forms_no_round() -> None:
    one = Meeting().start(*FOUR).succeeds("a").loses("b")
    assert one.state.closed is CloseReason.MEMBER_LOST
    assert one.state.round == 1


@ROW("T10", level="pure")
def test_T10_once_one_has_finished_a_newcomer_a_failure_or_another_size_forms_no_round() -> None:
    one = Meeting(high=5).start(*FOUR).succeeds("a").join("e").resizes(1, 2).wait(30)
    assert one.kind("e") is DirectiveKind.WAIT
    assert one.state.phase is GangPhase.FINISHING
    one.fails("b")
    assert one.state.closed is CloseReason.MEMBER_FAILED
    assert one.left == dict.fromkeys([*FOUR, "e"], 3)
    assert one.state.round == 1


@ROW("T10", level="pure")
def test_T10_who_has_finished_may_go() -> None:
    one = Meeting().start(*FOUR).succeeds("a").loses("a").succeeds("b", "c", "d")
    assert one.state.closed is CloseReason.SUCCEEDED


@ROW("T10", level="pure")
def test_T10_who_is_silent_at_the_barrier_may_still_say_that_it_has_succeeded() -> None:
    one = Meeting().start(*FOUR).succeeds("a", "c", "d").loses("b", Absence.SILENT).wait(60)
    assert one.state.closed is None
    one.succeeds("b")
    assert one.state.closed is CloseReason.SUCCEEDED


@ROW("T11", level="pure")
def test_T11_ranks_are_contiguous_and_not_kept_from_round_to_round() -> None:
    one = Meeting().start(*FOUR)
    assert sorted(one.ranks.values()) == [0, 1, 2, 3]
    before = dict(one.ranks)
    one.fails("a")
    for name in ("d", "c", "b", "a"):
        one.now += timedelta(seconds=1)
        one.tell(one.says(name, MemberState.INIT))
    assert sorted(one.ranks.values()) == [0, 1, 2, 3]
    assert one.ranks != before
    places = [told.assignment for told in one.told.values() if told.assignment is not None]
    (address,) = {place.coordinator.address for place in places}
    assert address == one.joins["d"].address


@ROW("T12", level="pure")
def test_T12_unknown_is_no_failure() -> None:
    one = Meeting().start(*FOUR)
    before = dict(one.told)
    one.tell(one.says("b", MemberState.UNKNOWN)).wait(1000)
    assert one.told == before
    assert one.left == dict.fromkeys(FOUR, 3)
    assert one.state.phase is GangPhase.RUNNING


@ROW("T12", level="pure")
@pytest.mark.parametrize("phase", list(GangPhase)[:3])
def test_T12_nothing_fails_by_a_deadline_while_nobody_listens(phase: GangPhase) -> None:
    one = Meeting(low=2, high=2)
    if phase is GangPhase.FORMING:
        one.join("a")
    else:
        one.start("a", "b")
    if phase is GangPhase.RUNNING:
        one.join("c")
    if phase is GangPhase.FINISHING:
        one.succeeds("a")
    before = dict(one.told)
    one.wait(3600, heard=False)
    assert one.state.phase is phase
    assert one.told == before
    one.wait(1)
    assert one.state.closed is not None or one.kind("c") is DirectiveKind.LEAVE


@ROW("T13", level="pure")
def test_T13_a_preempted_member_has_30_s_and_the_rendezvous_stays_open() -> None:
    one = Meeting(low=2).start(*FOUR).evicts("b")
    assert one.kind("b") is DirectiveKind.LEAVE
    assert one.told["b"].grace == timedelta(seconds=30)
    assert one.state.closed is None
    one.obey().join("b").obey()
    assert one.state.round == 2
    assert len(one.state.participants) == 4
    assert one.left == dict.fromkeys(FOUR, 3)


@ROW("T13", level="pure")
@pytest.mark.parametrize("restarts", [0, 3])
def test_T13_an_agent_that_is_told_to_end_by_its_node_leaves_in_order(restarts: int) -> None:
    one = Meeting(low=2, max_restarts=restarts).start(*FOUR)
    one.tell(one.says("b", MemberState.STOPPED)).obey().wait(30).obey()
    assert set(one.state.participants) == {"a", "c", "d"}
    assert one.state.closed is None


@ROW("T6", level="pure")
def test_T6_another_size_takes_the_last_ranks_away_and_lets_newcomers_in() -> None:
    one = Meeting(high=4).start(*FOUR)
    last = one.state.participants[-1]
    one.resizes(1, 3).obey()
    assert len(one.state.participants) == 3
    assert one.kind(last) is DirectiveKind.LEAVE
    one.resizes(1, 4).join(last).obey()
    assert len(one.state.participants) == 4
    assert one.left == dict.fromkeys(FOUR, 3)


def test_the_end_of_the_attempt_closes_the_rendezvous() -> None:
    one = Meeting().start(*FOUR).ends()
    assert one.state.closed is CloseReason.ENDED
    assert one.kinds == dict.fromkeys(FOUR, "Finish")


def test_of_two_agents_of_one_member_the_later_one_is_it() -> None:
    one = Meeting().start("a", "b")
    old = one.joins["a"]
    one.join("a").obey().wait(30).obey()
    assert one.state.round == 2
    told = answer(one.state, old)
    assert told is not None
    assert told.kind is DirectiveKind.LEAVE
    assert answer(one.state, old.model_copy(update={"attempt": 2})) is None
    current = answer(one.state, one.joins["a"])
    assert current is not None
    assert current.kind is DirectiveKind.RUN


def test_places_are_kept_for_members_that_are_still_to_stop() -> None:
    one = Meeting(high=2).start("a", "b").join("c").fails("a")
    one.tell(one.says("a", MemberState.INIT))
    assert one.state.round == 1
    one.obey()
    assert set(one.state.participants) == {"a", "b"}


def test_what_nobody_is_told_anew_has_its_revision() -> None:
    one = Meeting().start("a", "b")
    before = {name: told.revision for name, told in one.told.items()}
    one.tell(one.says("a", MemberState.HEALTHY)).wait(10)
    assert {name: told.revision for name, told in one.told.items()} == before
    one.fails("a")
    assert all(one.told[name].revision > before[name] for name in before)


@ROW("T8", level="pure")
def test_T8_the_last_call_waits_for_members_that_are_still_to_stop() -> None:
    one = Meeting().start("a", "b", "c").fails("a")
    one.tell(one.says("a", MemberState.INIT), one.says("b", MemberState.INIT)).wait(60)
    assert one.state.round == 1
    one.tell(one.says("c", MemberState.INIT))
    assert one.state.round == 2
    assert len(one.state.participants) == 3


@ROW("T8", level="pure")
def test_T8_at_the_timeout_no_place_is_kept_for_who_has_not_stopped() -> None:
    one = Meeting(high=2).start("a").join("b", "c").wait(599)
    assert one.state.round == 1
    one.wait(1)
    assert one.state.participants == ("b", "c")
    assert one.state.round == 2
    assert one.kind("a") is DirectiveKind.REJOIN


@ROW("T8", level="pure")
def test_T8_who_finds_no_place_has_no_more_time_by_saying_so_again() -> None:
    one = Meeting(high=2).start("a", "b").join("c")
    due = one.deadlines
    assert [(each.at - one.now, each.why) for each in due] == [(timedelta(minutes=10), "c finds no place")]
    one.wait(300).tell(one.says("c", MemberState.INIT))
    assert one.deadlines == due


@ROW("T3", level="pure")
def test_T3_a_success_in_a_round_that_others_have_ended_is_run_again() -> None:
    one = Meeting().start("a", "b").fails("a").succeeds("b")
    assert one.kind("b") is DirectiveKind.REJOIN
    one.obey().wait(30).obey()
    assert one.state.round == 2
    assert one.kinds == {"a": "Run", "b": "Run"}
    assert one.state.phase is GangPhase.RUNNING


@ROW("T9", level="pure")
def test_T9_no_agent_of_a_pod_that_is_proven_gone_is_believed() -> None:
    one = Meeting(low=2).start(*FOUR)
    pod = one.joins["b"].pod_uid
    one.loses("b").join("b", pod=pod)
    assert one.kind("b") is DirectiveKind.LEAVE
    one.join("b")
    assert one.kind("b") is DirectiveKind.WAIT


def test_who_is_gone_and_owes_least_is_forgotten_first() -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("holdfast.policy.rendezvous.members.MEMBERS_MAXIMUM", 3)
        one = Meeting().start("a", "b").fails("a").loses("a").wait(1).join("c").loses("c").join("d")
        assert sorted(one.state.members) == ["a", "b", "d"]
        one.join("e")
        assert sorted(one.state.members) == ["b", "d", "e"]
        one.join("f")
        assert sorted(one.state.members) == ["b", "d", "e"]


ENDINGS: dict[str, tuple[Callable[[], Meeting], GangEnding, CloseReason, str, bool]] = {
    "all have succeeded": (
        lambda: Meeting().start(*FOUR).succeeds(*FOUR),
        GangEnding.SUCCEEDED,
        CloseReason.SUCCEEDED,
        "",
        False,
    ),
    "one has failed": (
        lambda: Meeting(max_restarts=0).start(*FOUR).fails("b"),
        GangEnding.FAILED,
        CloseReason.RESTARTS_EXHAUSTED,
        "b",
        True,
    ),
    "one is lost": (
        lambda: Meeting(low=4, max_restarts=0).start(*FOUR).loses("b"),
        GangEnding.LOST,
        CloseReason.MEMBER_LOST,
        "b",
        False,
    ),
    "one has failed in the last round": (
        lambda: Meeting(max_rounds=1).start(*FOUR).fails("b"),
        GangEnding.FAILED,
        CloseReason.ROUNDS_EXHAUSTED,
        "b",
        True,
    ),
    "one is lost in the last round": (
        lambda: Meeting(max_rounds=1).start(*FOUR).loses("b"),
        GangEnding.FAILED,
        CloseReason.ROUNDS_EXHAUSTED,
        "b",
        False,
    ),
    "too few have come": (
        lambda: Meeting(low=2).join("a").wait(600),
        GangEnding.FAILED,
        CloseReason.JOIN_TIMEOUT,
        "",
        False,
    ),
}
"""What befalls a gang; what that is to its workload, why, by whom, and whether that one's failure is told with it."""


@pytest.mark.parametrize("case", ENDINGS)
def test_a_workload_is_told_what_its_gang_came_to_and_by_whom(case: str) -> None:
    lived, ending, reason, member, failed = ENDINGS[case]
    one = lived()
    told = outcome(one.state, "uid", one.now)
    assert told is not None
    assert (told.workload_uid, told.attempt, told.ending, told.reason) == ("uid", 1, ending, reason)
    assert (told.why, told.round, told.at) == (one.state.why, one.state.round, one.now)
    join = one.joins[member] if member else None
    place = (join.member, join.pod_uid, join.node, join.role) if join is not None else ("", "", "", "")
    assert (told.member, told.pod_uid, told.node, told.role) == place
    assert (told.failure is not None) is failed


def test_a_gang_that_is_open_or_was_ended_by_its_workload_tells_that_nothing() -> None:
    for one in (Meeting().start(*FOUR), Meeting().start(*FOUR).ends()):
        assert outcome(one.state, "uid", one.now) is None


def test_where_a_gang_stands_is_told_whole() -> None:
    one = Meeting(high=3).start("a", "b", "c").join("d").fails("b")
    one.loses("c")
    told = status(one.state, "uid", one.now, 7)
    assert (told.workload_uid, told.attempt, told.hub) == ("uid", 1, 7)
    assert (told.phase, told.round, told.min, told.max) == (GangPhase.FORMING, 1, 1, 3)
    assert (told.present, told.participants, told.waiting) == (3, 3, ("d",))
    assert (told.absent, told.charged) == ({"c": "its pod is gone"}, {"b": 1})
    assert (told.since, told.why, told.closed) == (one.now, one.state.why, None)


def test_who_knows_all_is_told_of_no_round() -> None:
    one = Meeting().start("a", "b")
    assert orders(one.state, 0).round is not None
    assert (orders(one.state, one.state.revision).told, orders(one.state, one.state.revision).round) == ((), None)


def test_of_too_many_long_errors_the_first_that_failed_are_kept_whole() -> None:
    names = tuple(f"m-{number:03}" for number in range(300))
    one = Meeting(high=300).start(*names)
    said = [one.says(name, MemberState.FAILED) for name in names]
    failure = WorkerFailure(local_rank=0, exit_code=1, at=one.now, error="x" * 1000)
    one.tell(*[each.model_copy(update={"report": edit(each.report, failures=(failure,))}) for each in said])
    kept = [len(one.state.members[name].report.failures[0].error) for name in names]
    assert kept == [1000] * 64 + [64] * 236
