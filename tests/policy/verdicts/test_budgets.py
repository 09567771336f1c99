"""Budgets that health renews (row U10), on virtual time."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.model import (
    Action,
    ActionKind,
    Budget,
    Interval,
    Phase,
    Policy,
    Reason,
    Rule,
    State,
    Timings,
    Workload,
)
from holdfast.policy.loop.change import PolicyChange, changed
from holdfast.policy.status.explain import explain_of, status_of
from holdfast.policy.values.edit import edit
from holdfast.policy.values.events import Observed, PolicyChanged, Resumed, Suspended
from tests.policy.lives.advanced import advance
from tests.policy.lives.elements import Elements, streams
from tests.policy.lives.life import RULES, Life, workload

ROW = pytest.mark.row
DAY = timedelta(days=1)


def policy(after: timedelta | None = DAY, limit: int = 3) -> Policy:
    return Policy(rules=RULES, timings=Timings(), budgets=(Budget(name="restart", limit=limit, reset_after=after),))


def spec(after: timedelta | None = DAY, limit: int = 3) -> Workload:
    return workload(policy=policy(after, limit))


def fails(life: Life) -> Life:
    """Fail so that no grace is waited for; what is left comes back after the pause."""
    life.sees(failed=1, job_failed=True)
    if life.state.phase is not Phase.FAILED:
        life.after(seconds=90).sees(running=2)
    return life


def shown(life: Life) -> int:
    (told,) = status_of(life.spec, life.state, life.now, "uid").budgets
    assert explain_of(life.spec, life.state, life.now).budgets == (told,)
    return told.used


def renewals(life: Life) -> list[str]:
    return [each.message for each in life.state.causes if each.reason is Reason.BUDGET_RENEWED]


@ROW("U10", level="pure")
def test_U10_a_month_long_job_outlives_any_number_of_unrelated_failures():
    life = Life(spec=spec()).runs()
    for _ in range(10):
        fails(life.after(days=3))
        assert (life.state.phase, life.state.used) == (Phase.RUNNING, {"restart": 1})
    assert (life.attempt, life.state.restarts) == (11, 10)
    assert renewals(life)[0] == "restart budget renewed: healthy for 3d"


@ROW("U10", level="pure")
def test_U10_by_default_a_budget_counts_for_ever():
    life = Life(spec=spec(None)).runs()
    for _ in range(4):
        fails(life.after(days=300))
    assert (life.state.phase, life.state.reason) == (Phase.FAILED, Reason.RETRY_LIMIT_EXCEEDED)
    assert not renewals(life)


@ROW("U10", level="pure")
def test_U10_a_job_that_breaks_again_and_again_still_ends():
    life = Life(spec=spec()).runs()
    for _ in range(4):
        fails(life.after(hours=23))
    assert (life.state.phase, life.attempt) == (Phase.FAILED, 4)


@ROW("U10", level="pure")
@pytest.mark.parametrize(("seconds", "used"), [(-1, 2), (0, 1)])
def test_U10_health_must_last_in_full(seconds: int, used: int):
    life = fails(Life(spec=spec()).runs())
    fails(life.after(days=1, seconds=seconds))
    assert life.state.used == {"restart": used}


@ROW("U10", level="pure")
def test_U10_any_unhealthiness_breaks_it_though_it_heals():
    life = fails(Life(spec=spec()).runs())
    life.after(hours=20).sees(running=1).after(seconds=10).sees(running=2)
    fails(life.after(hours=20))
    assert life.state.used == {"restart": 2}


@ROW("U10", level="pure")
def test_U10_pods_that_are_missing_are_no_health_though_no_rule_minds_them():
    let = Rule(name="let", action=Action(kind=ActionKind.IGNORE, charge=None))
    life = fails(Life(spec=workload(policy=edit(policy(), rules=(*RULES, let)))).runs())
    life.sees(running=1).after(days=2)
    assert (life.state.unhealthy, shown(life)) == (None, 1)
    fails(life)
    assert life.state.used == {"restart": 2}


@ROW("U10", level="pure")
def test_U10_time_in_which_nobody_could_see_is_no_health():
    life = fails(Life(spec=spec()).runs())
    began = life.now
    life.after(hours=25).sees(failed=1, job_failed=True, blind=(Interval(begin=began, end=began + timedelta(hours=2)),))
    assert life.state.used == {"restart": 2}
    life.after(seconds=90).sees(running=2)
    fails(life.after(hours=25))
    assert life.state.used == {"restart": 1}


@ROW("U10", level="pure")
def test_U10_a_failure_that_is_told_late_ended_health_when_it_happened():
    life = fails(Life(spec=spec()).runs()).after(hours=23)
    life.view = {"failed": 1, "job_failed": True}
    told = life.look()
    life.after(hours=5)
    life.tell(Observed(told))
    assert life.state.used == {"restart": 2}


@ROW("U10", level="pure")
def test_U10_status_and_explain_show_it_before_anything_fails():
    life = fails(Life(spec=spec()).runs())
    assert shown(life) == 1
    life.now += timedelta(hours=23, minutes=59)
    assert shown(life) == 1
    life.now += timedelta(minutes=1)
    assert shown(life) == 0
    before = len(life.ran)
    life.settle()
    assert (len(life.ran), renewals(life)) == (before, []), "no timer, no operation, nothing written for it"
    life.sees(running=1)
    assert shown(life) == 0, "and it stays so once health has ended"
    assert "reset (restart 1 of 3), then attempt 3" in " ".join(
        each.what for each in explain_of(life.spec, life.state, life.now).next
    )


@ROW("U10", level="pure")
@pytest.mark.parametrize(("hours", "used"), [(23, 1), (25, 0)])
def test_U10_suspend_and_resume_keep_what_health_has_made_of_it(hours: int, used: int):
    life = fails(Life(spec=spec()).runs()).after(hours=hours)
    life.tell(Suspended())
    assert (life.state.phase, shown(life)) == (Phase.SUSPENDED, used)
    life.after(days=30).tell(Resumed())
    assert shown(life) == used, "what is suspended is not healthy"
    life.sees(running=2).after(hours=23)
    assert shown(life) == used, "health begins anew"


@ROW("U10", level="pure")
def test_U10_it_survives_being_written_and_read_back():
    life = fails(Life(spec=spec()).runs()).after(hours=20)
    life.state = State.model_validate_json(life.state.model_dump_json(by_alias=True))
    assert advance(life.spec, life.state, life.now)[0] == life.state
    fails(life.after(hours=4))
    assert life.state.used == {"restart": 1}


@ROW("U10", level="pure")
def test_U10_a_policy_change_sets_it_and_takes_it_back():
    life = fails(Life(spec=spec(None)).runs()).after(days=3)
    assert shown(life) == 1
    later = changed(life.state.policy, PolicyChange(reset_after={"restart": "2d"}))
    life.tell(PolicyChanged(later))
    assert shown(life) == 0, "the health it has lived through counts"
    life.tell(PolicyChanged(changed(later, PolicyChange(reset_after={"restart": None}))))
    assert shown(life) == 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"restart": "0s"}, "expected more than 0s"),
        ({"nonsense": "1h"}, "resetAfter.nonsense: expected one of restart"),
    ],
)
def test_U10_a_change_that_makes_no_sense_is_refused(change: dict[str, str | None], words: str):
    with pytest.raises(ValueError, match=words):
        changed(policy(), PolicyChange(reset_after=change))


@ROW("U10", level="pure")
def test_U10_a_members_own_budget_is_renewed_too():
    limited = edit(streams().policy.budgets[0], limit=2, reset_after=timedelta(hours=1))
    life = Elements(spec=streams(budgets=(limited,))).up()
    for _ in range(5):
        life.after(hours=2)
        life.deleted("pe-1")
        life.pods(running=1)
    assert life.state.phase is Phase.RUNNING
    assert life.state.attempt is not None
    assert life.state.attempt.used == {"pe-1": 1}
    for _ in range(2):
        life.deleted("pe-1")
        life.pods(running=1)
    assert life.state.phase is Phase.FAILED


def test_U10_nothing_is_renewed_that_was_not_used():
    life = Life(spec=spec()).runs()
    life.after(days=40).sees(running=1).after(seconds=10).sees(running=2)
    assert not renewals(life)


@ROW("U10", level="pure")
def test_U10_each_budget_is_renewed_by_its_own_time_and_takes_no_other_with_it():
    member = edit(streams().policy.budgets[0], limit=9, reset_after=timedelta(hours=9))
    restart = Budget(name="restart", limit=9, reset_after=timedelta(hours=1))
    life = Elements(spec=streams(budgets=(restart, member))).up()
    life.deleted("pe-1")
    life.pods(running=1)
    life.state = edit(life.state, used={"restart": 2})
    life.after(hours=2)
    life.deleted("pe-2")
    assert life.state.attempt is not None
    assert (life.state.used, life.state.attempt.used) == ({}, {"pe-1": 1, "pe-2": 1})
    assert renewals(life) == ["restart budget renewed: healthy for 2h"]


@ROW("U10", level="pure")
def test_U10_of_a_member_too_a_failure_that_is_told_late_ended_health_when_it_happened():
    limited = edit(streams().policy.budgets[0], limit=9, reset_after=timedelta(hours=2))
    life = Elements(spec=streams(budgets=(limited,))).up()
    life.deleted("pe-1")
    life.pods(running=1)
    life.after(hours=1)
    gone = edit(life.views["pe-1"], found=False, pods=edit(life.views["pe-1"].pods, running=0))
    life.views = {**life.views, "pe-1": gone}
    told = life.look()
    life.now += timedelta(hours=3)
    life.tell(Observed(told))
    assert life.state.attempt is not None
    assert life.state.attempt.used == {"pe-1": 2}, "it had been healthy for one hour only"
