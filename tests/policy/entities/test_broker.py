"""When a checkpoint is worth its cost, and who is asked in a cycle (row L11)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from holdfast.model import CheckpointState, Phase, PodCounts, Reason, Status
from holdfast.model.entities.broker import REFUSED_MAXIMUM, Asked, Broker, Candidate, Weighed
from holdfast.model.spec.checkpoint import CheckpointRequest
from holdfast.model.words import escaped
from holdfast.policy.entities import broker as policy
from tests.policy.lives.life import START

ROW = pytest.mark.row
NOW = START + timedelta(days=1)
BROKER = Broker(cluster="dev", at_once=2)


def status(**changes: Any) -> Status:
    fields: dict[str, Any] = {
        "name": "train",
        "namespace": "team",
        "cluster": "dev",
        "uid": "u-1",
        "phase": Phase.RUNNING,
        "reason": Reason.SUFFICIENT_PODS_READY,
        "since": START,
        "attempt": 2,
        "pods": PodCounts(expected=8),
        "budgets": (),
    }
    return Status(**{**fields, **changes})


def request(state: CheckpointState, at: float, lasted: float | None, attempt: int = 2) -> CheckpointRequest:
    begun = START + timedelta(seconds=at)
    ended = begun + timedelta(seconds=lasted) if lasted is not None else None
    return CheckpointRequest(
        number=1, attempt=attempt, state=state, reason=Reason.CHECKPOINT_REQUESTED, at=begun, ended_at=ended
    )


def one(name: str, waited: float, pods: int = 1, cost: float | None = 60.0) -> Candidate:
    """A workload whose work of so many hours is not saved."""
    return Candidate(workload=f"workload/dev/team/{name}", pods=pods, since=NOW - timedelta(hours=waited), cost=cost)


def names_of(found: Any) -> list[str]:
    return [each.workload.rpartition("/")[2] for each in found]


def test_the_interval_is_youngs() -> None:
    broker = Broker(cluster="dev", node_mtbf=timedelta(days=30), least=timedelta(seconds=1), most=timedelta(days=9))
    hour = timedelta(hours=1)
    alone, large = one("a", 1, pods=1, cost=50), one("b", 1, pods=1000, cost=50)
    assert abs(policy.interval(broker, alone) - timedelta(seconds=(2 * 50 * 30 * 86_400) ** 0.5)) < timedelta(seconds=1)
    assert policy.interval(broker, alone) > 4 * hour
    assert abs(policy.interval(broker, large) - policy.interval(broker, alone) / 1000**0.5) < timedelta(seconds=1)
    dear = one("c", 1, cost=5000)
    assert policy.interval(broker, dear) > policy.interval(broker, alone), "what costs more is done more seldom"


def test_the_interval_keeps_its_bounds_and_an_untimed_one_is_estimated() -> None:
    assert policy.interval(BROKER, one("a", 1, pods=1_000_000)) == BROKER.least
    assert policy.interval(BROKER, one("a", 1, cost=1e9)) == BROKER.most
    timed, untimed = one("a", 1, cost=BROKER.cost.total_seconds()), one("b", 1, cost=None)
    assert policy.interval(BROKER, timed) == policy.interval(BROKER, untimed)


@ROW("L11", level="pure")
def test_L11_all_that_run_are_weighed_and_the_most_overdue_are_asked_as_storage_bears() -> None:
    state = policy.begun(BROKER)
    found = [one("fresh", 0.01), one("late", 24), one("larger", 24, pods=4), one("saved", 0.1), one("older", 23)]
    seen = policy.weighed(BROKER, found, saving=0, unheard=0, now=NOW)
    assert names_of(seen.candidates) == ["larger", "late"], "a look names no more than may save: each costs history"
    state, asked = policy.looked(state, seen, NOW)
    assert names_of(asked) == ["larger", "late"]
    told = policy.status(state)
    assert (told.running, told.due, told.asked_total, told.cycle) == (5, 3, 2, 1)
    assert (
        told.message == "5 workloads can save their state; 0 save now; 3 are due: 2 are asked now, 1 waits for its turn"
    )
    assert (
        "it has 4 pods, and has not saved for 1d; a checkpoint that lasts 1m is worth its cost every"
        in told.asked[0].why
    )


@ROW("L11", level="pure")
def test_L11_those_that_save_already_count_whoever_asked_them() -> None:
    state = policy.begun(BROKER)
    found = [one("a", 24), one("b", 23)]
    state, asked = policy.looked(state, policy.weighed(BROKER, found, saving=1, unheard=0, now=NOW), NOW)
    assert names_of(asked) == ["a"]
    state, asked = policy.looked(state, policy.weighed(BROKER, found, saving=5, unheard=0, now=NOW), NOW)
    assert asked == ()
    assert names_of(policy.status(state).asked) == ["a"], "whom it asked last"


@ROW("L11", level="pure")
def test_L11_a_broker_that_begins_anew_finds_in_one_cycle_all_that_the_last_one_had_to_ask() -> None:
    found = [one(f"w{index:03}", 10 + index) for index in range(105)]
    seen = policy.weighed(BROKER, found, saving=0, unheard=0, now=NOW)
    before, asked = policy.looked(policy.begun(BROKER), seen, NOW)
    again, anew = policy.looked(policy.begun(BROKER), seen, NOW)
    assert asked == anew
    assert before == again
    assert (len(asked), seen.due) == (BROKER.at_once, 105)


@ROW("L11", level="pure")
def test_L11_a_look_costs_the_same_history_however_many_run_or_wait() -> None:
    for waited in (0.01, 24):
        few, many = ([one(f"w{at:05}", waited) for at in range(count)] for count in (100, 10_000))
        sizes = [len(policy.weighed(BROKER, found, 2, 0, NOW).model_dump_json()) for found in (few, many)]
        assert sizes[1] <= sizes[0] + 4, "two more digits in two numbers"
        assert sizes[1] < 100


def test_those_that_did_not_answer_are_counted_and_told() -> None:
    seen = policy.weighed(BROKER, [one("a", 24)], saving=0, unheard=3, now=NOW)
    state, _ = policy.looked(policy.begun(BROKER), seen, NOW)
    assert (seen.unheard, policy.status(state).unheard) == (3, 3)


@pytest.mark.parametrize(
    ("cost", "said"), [(None, "was never timed"), (90.0, "lasts 1m30s"), (1.26, "lasts 1.3s"), (0.04, "lasts 0s")]
)
def test_whoever_is_asked_hears_how_long_its_last_one_took(cost: float | None, said: str) -> None:
    seen = policy.weighed(BROKER, [one("a", 24, cost=cost)], saving=0, unheard=0, now=NOW)
    _, (asked,) = policy.looked(policy.begun(BROKER), seen, NOW)
    assert asked.why.startswith(
        f"it has 1 pod, and has not saved for 1d; a checkpoint that {said} is worth its cost every "
    )


def test_one_that_takes_no_request_leaves_its_place_to_others() -> None:
    state = policy.begun(Broker(cluster="dev", at_once=1))
    found = [one("a", 24), one("b", 23)]
    state, (first,) = policy.looked(state, policy.weighed(state.broker, found, 0, 0, NOW), NOW)
    state = policy.refused(state, first, NOW)
    assert state.refused == {first.workload: NOW + state.broker.least}
    assert policy.status(state).asked_total == 0
    _, (other,) = policy.looked(state, policy.weighed(state.broker, found[1:], 0, 0, NOW), NOW)
    assert names_of([other]) == ["b"]


def test_one_that_took_no_request_is_asked_again_after_the_shortest_interval_or_by_other_numbers() -> None:
    state, asked = policy.looked(policy.begun(BROKER), policy.weighed(BROKER, [one("a", 24)], 0, 0, NOW), NOW)
    state = policy.refused(state, asked[0], NOW)
    assert policy.configured(state, BROKER).refused == {}
    state, _ = policy.looked(state, policy.weighed(BROKER, [], 0, 0, NOW), NOW + timedelta(minutes=1))
    (until,) = state.refused.values()
    state, _ = policy.looked(state, policy.weighed(BROKER, [], 0, 0, NOW), until)
    assert state.refused == {}


def test_the_last_that_took_no_request_are_remembered() -> None:
    state = policy.begun(BROKER)
    for number in range(REFUSED_MAXIMUM + 5):
        state = policy.refused(state, Asked(workload=f"workload/dev/team/w{number}", why=""), NOW)
    assert (len(state.refused), "workload/dev/team/w5" in state.refused) == (REFUSED_MAXIMUM, True)


def test_work_is_unsaved_since_the_attempt_runs_or_since_its_last_request() -> None:
    assert policy.candidate("w", status()) == Candidate(workload="w", pods=8, since=START)
    complete = status(checkpoint=request(CheckpointState.COMPLETE, 3600, 90))
    assert policy.candidate("w", complete) == Candidate(
        workload="w", pods=8, since=START + timedelta(hours=1), cost=90.0
    )
    failed = status(checkpoint=request(CheckpointState.PARTIAL, 3600, 600))
    assert policy.candidate("w", failed) == Candidate(workload="w", pods=8, since=START + timedelta(hours=1))
    earlier = status(checkpoint=request(CheckpointState.COMPLETE, -3600, 90, attempt=1))
    assert policy.candidate("w", earlier) == Candidate(workload="w", pods=8, since=START, cost=90.0)


def test_what_does_not_run_or_is_saving_is_not_weighed() -> None:
    saving = status(checkpoint=request(CheckpointState.REQUESTED, 3600, None))
    assert policy.candidate("w", saving) is None
    assert policy.is_saving(saving)
    assert policy.candidate("w", status(phase=Phase.SUSPENDED)) is None


@pytest.mark.parametrize(
    ("running", "saving", "due", "said"),
    [
        (0, 0, 0, "0 workloads can save their state; 0 save now; none is due"),
        (1, 1, 0, "1 workload can save its state; 1 saves now; none is due"),
        (9, 1, 1, "9 workloads can save their state; 1 saves now; 1 is due: 1 is asked now"),
        (9, 2, 1, "9 workloads can save their state; 2 save now; 1 is due: 1 waits for its turn"),
        (
            9,
            1,
            3,
            "9 workloads can save their state; 1 saves now; 3 are due: 1 is asked now, 2 wait for their turn",
        ),
        (
            9,
            0,
            3,
            "9 workloads can save their state; 0 save now; 3 are due: 2 are asked now, 1 waits for its turn",
        ),
    ],
)
def test_the_message_counts_in_the_right_number(running: int, saving: int, due: int, said: str) -> None:
    seen = Weighed(running=running, saving=saving, due=due, candidates=(), unheard=0)
    state, _ = policy.looked(policy.begun(Broker(cluster="dev", at_once=2)), seen, NOW)
    assert policy.status(state).message == said


def test_the_page_in_the_ui_says_whom_it_asked_and_why() -> None:
    assert "it has not looked yet" in policy.details(policy.begun(BROKER))
    state, _ = policy.looked(policy.begun(BROKER), policy.weighed(BROKER, [one("a", 24)], 0, 0, NOW), NOW)
    assert "- team/a: it has 1 pod, and has not saved for 1d" in policy.details(state)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"cluster": "No.Dots"}, "expected a DNS label"),
        ({"every": "0s"}, "every.*\n.*greater than or equal to"),
        ({"at_once": 0}, "greater than or equal to 1"),
        ({"least": "2h", "most": "1h"}, "most: is shorter than least"),
        ({"node_mtbf": "a while"}, "is not a duration"),
    ],
)
def test_a_broker_that_cannot_be_is_refused(fields: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        Broker.model_validate({"cluster": "dev", **fields})


@ROW("L14", level="pure")
def test_L14_nobody_is_asked_to_save_to_a_store_that_is_away() -> None:
    state = policy.begun(BROKER)
    due = policy.weighed(BROKER, [one("a", 300.0), one("b", 200.0)], 0, 0, NOW)
    away = due.model_copy(update={"away": "http://store:7070 does not answer: Connection refused"})
    state, asked = policy.looked(state, away, NOW)
    assert asked == ()
    told = policy.status(state)
    assert told.message == (
        "2 workloads can save their state; 0 save now; 2 are due: 2 wait for their turn; "
        "nobody is asked while the store is away: "
        "http://store:7070 does not answer: Connection refused"
    )
    assert escaped(told.message) in policy.details(state)
    state, asked = policy.looked(state, due, NOW + timedelta(minutes=1))
    assert names_of(asked) == ["a", "b"], "they are still due, in their order"
    assert "away" not in policy.status(state).message
