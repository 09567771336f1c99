"""A workload whose steps are followed: what a stall and a save lead to (rows P1, P2, P4)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast.model import (
    Action,
    ActionKind,
    Checkpoint,
    CheckpointProtocol,
    Failure,
    FailureClass,
    Match,
    OperationKind,
    Phase,
    Policy,
    Progress,
    Reason,
    Rule,
    Scope,
    State,
    Timings,
    Workload,
)
from holdfast.model.life.progress import StepRecord
from holdfast.policy.loop.fold import fold
from holdfast.policy.sides.progress import followed
from holdfast.policy.status.explain import explain_of, status_of
from holdfast.policy.status.ledger import Moment, spans_of
from holdfast.policy.values.edit import edit
from holdfast.policy.values.events import Cancelled, CheckpointAsked, Retried, StepsRead, Suspended
from holdfast.policy.verdicts.progress import stall
from holdfast.profiles import PROFILES
from tests.policy.lives.life import RULES, START, Life, workload

ROW = pytest.mark.row
FAST = Timings(retry_pause_period=timedelta(0), failure_grace_period=timedelta(0))


def training(limit: int = 3, progress: Progress | None = None, **fields: Any) -> Workload:
    (budget,) = Policy().budgets
    policy = Policy(rules=RULES, timings=FAST, budgets=(edit(budget, limit=limit),))
    return workload(2, policy=policy, progress=progress or Progress(), **fields)


def at_step(life: Life, step: int, **fields: Any) -> StepRecord:
    return StepRecord(attempt=life.attempt, at=life.now, pods="x", step=step, **fields)


def steps(life: Life, step: int, **fields: Any) -> Life:
    return life.tell(StepsRead(life.attempt, at_step(life, step, **fields)))


def stalls(life: Life, step: int, minutes: int = 5) -> Life:
    """Let the worker tell that it stands still, and bring the next attempt to run."""
    since = life.now - timedelta(minutes=minutes)
    failure = stall(life.attempt, since, message=f"step {step:,}, no new step for {minutes}m; bound 3m (as declared)")
    return life.tell(StepsRead(life.attempt, at_step(life, step, quiet=minutes * 60.0), failure))


def dies(life: Life, message: str, cls: str = "App") -> Life:
    return life.sees(running=1, failed=1, message=message, cls=cls)


def again(life: Life) -> Life:
    return life.after(seconds=1).sees(running=2)


@ROW("P1", level="pure")
def test_P1_steps_are_followed_while_all_pods_have_run_and_only_then():
    life = Life(spec=training()).settle()
    assert followed(life.spec, life.state) is None
    life.sees(running=2)
    assert followed(life.spec, life.state) == 1
    assert followed(workload(2), life.state) is None, "it declares nothing"
    held = Life(spec=training(), hold={OperationKind.REMOVE}).runs().tell(Suspended())
    assert followed(held.spec, held.state) is None
    assert followed(life.spec, life.tell(Cancelled()).state) is None


@ROW("P2", level="pure")
def test_P2_a_stall_is_confirmed_by_a_live_look_and_restarts_the_workload():
    life = Life(spec=training()).runs()
    before = len(life.kinds())
    stalls(life, 1234)
    assert life.kinds()[before : before + 2] == ["observe", "remove"]
    again(life)
    assert (life.state.phase, life.attempt, life.state.used) == (Phase.RUNNING, 2, {"restart": 1})
    said = [one.message for one in life.state.causes if one.reason is Reason.RESETTING]
    assert said == ["NoProgress: step 1,234, no new step for 5m; bound 3m (as declared) (rule no-progress)"]
    assert followed(life.spec, life.state) == 2


def waits() -> Life:
    """Return a life that has stood still for 5 minutes, under a rule that gives such a failure a grace of 15."""
    spec = training()
    rule = Rule(name="stall", match=Match(classes=(FailureClass.NO_PROGRESS,)), action=Action())
    timings = edit(FAST, failure_grace_period=timedelta(minutes=15))
    life = stalls(Life(spec=edit(spec, policy=edit(spec.policy, rules=(rule,), timings=timings))).runs(), 1234)
    assert life.state.unhealthy is not None
    return life


@ROW("P2", level="pure")
@pytest.mark.parametrize("seen", [{"step": 1235}, {"step": 1234, "phase": "saving"}, {"step": 1200, "pods": "y"}])
def test_P2_a_stall_is_withdrawn_when_steps_go_on_within_the_grace(seen: dict[str, Any]):
    life = waits()
    assert followed(life.spec, life.state) == 1, "its steps are still followed"
    life.after(minutes=2).tell(StepsRead(1, StepRecord(**{"attempt": 1, "at": life.now, "pods": "x"} | seen)))
    assert life.state.attempt is not None
    assert (life.state.unhealthy, life.state.attempt.told) == (None, None)
    life.after(minutes=30)
    assert (life.state.phase, life.attempt, life.state.restarts) == (Phase.RUNNING, 1, 0)
    assert "no new step" not in explain_of(life.spec, life.state, life.now).now
    again(stalls(life, 1235, minutes=20).after(minutes=15))
    assert (life.attempt, life.state.restarts) == (2, 1), "and it may stand still again"


@ROW("P2", level="pure")
def test_P2_a_stall_that_lasts_restarts_after_the_grace_and_is_followed_until_then():
    life = waits()
    life.after(minutes=5).tell(StepsRead(1, at_step(life, 1234, quiet=600.0), stall(1, life.now)))
    assert life.state.unhealthy is not None
    life.hold.add(OperationKind.REMOVE)
    life.after(minutes=15)
    assert life.state.operation is not None
    assert followed(life.spec, life.state) is None, "its removal is decided"


@ROW("P2", level="pure")
def test_P2_another_failure_that_was_told_is_not_withdrawn_by_steps():
    life = Life(spec=training()).runs()
    assert life.state.attempt is not None
    told = Failure(cls=FailureClass.PROBE, scope=Scope.WORKLOAD, reason=Reason.PROBE_FAILED, time=life.now, attempt=1)
    state = edit(life.state, attempt=edit(life.state.attempt, told=told))
    assert followed(life.spec, state) is None
    after = fold(state, StepsRead(1, at_step(life, 9)), life.now)
    assert after.attempt is not None
    assert after.attempt.told == told


@ROW("P2", level="pure")
@ROW("U13", level="pure")
def test_P2_a_stall_that_a_rule_ignores_hides_no_lost_pod():
    ignored = Action(kind=ActionKind.IGNORE, charge=None, grace=False)
    rule = Rule(name="stalls", match=Match(classes=(FailureClass.NO_PROGRESS,)), action=ignored)
    spec = training()
    life = Life(spec=edit(spec, policy=edit(spec.policy, rules=(rule, *spec.policy.rules))))
    life.state = edit(life.state, shows_waits=True)  # As every run does that begins now.
    stalls(life.runs(), 7)
    assert (life.state.restarts, life.state.phase) == (0, Phase.RUNNING)
    assert followed(life.spec, life.state) == 1
    life.sees(running=1)
    life.after(seconds=30)
    assert life.state.restarts == 1


@ROW("P2", level="pure")
def test_P2_news_of_an_attempt_that_is_gone_changes_nothing():
    life = stalls(Life(spec=training()).runs(), 5)
    again(life)
    before = life.state
    late = StepsRead(1, StepRecord(attempt=1, at=START, step=6), stall(1, START))
    assert fold(before, late, life.now) == before


@ROW("P2", level="pure")
def test_P2_a_sensitive_workload_is_held_and_not_restarted():
    policy = PROFILES["lattice-batch"]
    life = Life(spec=workload(2, policy=policy, progress=Progress(), sensitive=True)).runs()
    stalls(life, 7)
    assert life.state.held is not None
    assert "no new step" in life.state.held.why


@ROW("P1", level="pure")
def test_P1_status_and_explain_say_the_step_the_stall_and_the_bound():
    life = Life(spec=training(progress=Progress(bound=timedelta(minutes=3)))).runs()
    steps(life, 1234, total=5000, fresh=False)
    claimed = status_of(life.spec, edit(life.state, steps=at_step(life, 9, saved=8)), life.now, "uid").steps
    assert "says that 8 is saved" in claimed
    at = f"{life.now:%H:%M:%S} UTC"
    assert f"step 1,234 of 5,000 at {at}; bound 3m (as declared)" in explain_of(life.spec, life.state, life.now).now
    steps(life, 1234, total=5000, fresh=False, quiet=120.0)
    later = life.now + timedelta(minutes=3)
    status = status_of(life.spec, life.state, life.now, "uid", asked=later)
    assert status.steps == "step 1,234 of 5,000, no new step for 5m; bound 3m (as declared)"
    assert status_of(workload(2), life.state, life.now, "uid").steps == ""


@ROW("P2", level="pure")
def test_P2_the_ledger_counts_a_stall_as_detecting_from_the_last_step_on():
    life = Life(spec=training(), hold={OperationKind.OBSERVE}).runs()
    begun = Moment(life.now, life.spec, life.state)
    life.after(minutes=20)
    stalls(life, 9, minutes=5)
    found = Moment(life.now, life.spec, life.state)
    end = life.now + timedelta(seconds=10)
    spans = spans_of(START, [begun, found], end)
    assert [(one.bucket.value, one.end - one.begin) for one in spans] == [
        ("productive", timedelta(minutes=15)),
        ("detecting", timedelta(minutes=5, seconds=10)),
    ]


def saves(life: Life, step: int) -> Life:
    """Let a checkpoint be complete, after the worker has read this step."""
    steps(life, step)
    life.hold.add(OperationKind.CHECKPOINT)
    life.tell(CheckpointAsked()).answers(done=2).settle()
    return life


def checkpointed(limit: int = 3) -> Life:
    given = Checkpoint(protocol=CheckpointProtocol.ANNOTATION)
    return Life(spec=training(limit=limit, checkpoint=given)).runs()


@ROW("P4", level="pure")
def test_P4_a_save_beyond_the_best_one_forgives_the_restarts_before_it():
    life = saves(checkpointed(), 100)
    assert (life.state.best_saved, life.state.used) == (100, {})
    for step in (150, 160):
        again(stalls(life, step))
    assert life.state.used == {"restart": 2}
    saves(life, 100)
    assert life.state.used == {"restart": 2}, "not beyond the best one"
    saves(life, 170)
    assert (life.state.best_saved, life.state.used) == (170, {})
    renewed = [one.message for one in life.state.causes if one.reason is Reason.BUDGET_RENEWED]
    assert renewed == ["restart budget renewed: step 170 is saved, beyond 100"]


@ROW("P4", level="pure")
def test_P4_a_claim_to_have_saved_renews_nothing():
    life = checkpointed()
    again(stalls(life, 5))
    steps(life, 1000, saved=1000)
    assert life.state.used == {"restart": 1}
    life.hold.add(OperationKind.CHECKPOINT)
    life.tell(CheckpointAsked()).answers(done=1, failed=1).settle()
    assert (life.state.used, life.state.best_saved) == ({"restart": 1}, None), "nor does a partial checkpoint"


@ROW("P4", level="pure")
def test_P4_a_workload_that_saves_ever_further_restarts_far_beyond_its_budget():
    life = checkpointed(limit=1)
    for number in range(1, 11):
        saves(life, number * 100)
        again(stalls(life, number * 100 + 7))
    assert (life.state.phase, life.state.restarts, life.attempt) == (Phase.RUNNING, 10, 11)


@ROW("P4", level="pure")
@pytest.mark.parametrize("how", ["stalls", "dies"])
def test_P4_a_poison_step_fails_early_with_that_sentence(how: str):
    life = Life(spec=training(limit=100)).runs()
    for _ in range(3):
        if how == "stalls":
            stalls(life, 1234)
        else:
            dies(life, "step 1234")
        if life.state.outcome is None:
            again(life)
    assert (life.state.outcome, life.state.reason, life.attempt) == (Phase.FAILED, Reason.POISON_STEP, 3)
    assert life.state.message.startswith("it has failed at step 1,234 3 times in a row: ")


@ROW("P4", level="pure")
@pytest.mark.parametrize("other", ["step 1235", "killed", ""])
def test_P4_another_step_or_an_unknown_one_is_no_poison(other: str):
    life = Life(spec=training(limit=100)).runs()
    for number in range(8):
        dies(life, "step 1234" if number % 2 else other)
        again(life)
        if other != "step 1235" and number == 3:
            break
    assert life.state.phase is Phase.RUNNING


@ROW("P4", level="pure")
def test_P4_a_lost_node_at_the_same_step_says_nothing_of_the_step():
    life = Life(spec=training(limit=100)).runs()
    for _ in range(5):
        dies(life, "step 1234", cls="NodeLost")
        again(life)
    assert (life.state.phase, life.state.fall) == (Phase.RUNNING, None)


@ROW("P4", level="pure")
def test_P4_executions_have_a_cap_that_no_save_renews():
    given = Checkpoint(protocol=CheckpointProtocol.ANNOTATION)
    life = Life(spec=training(progress=Progress(executions=4), checkpoint=given)).runs()
    for number in range(1, 5):
        saves(life, number * 100)
        stalls(life, number * 100 + 7)
        if life.state.outcome is None:
            again(life)
    assert (life.state.outcome, life.state.reason, life.attempt) == (Phase.FAILED, Reason.EXECUTIONS_EXCEEDED, 4)
    assert "it has begun 4 attempts, as many as progress.executions allows" in life.state.message


@ROW("P4", level="pure")
@pytest.mark.parametrize(
    ("rules", "why"),
    [
        (Progress(), "it has failed at step 1,234 3 times in a row"),
        (Progress(executions=3), "it has begun 3 attempts, as many as progress.executions allows"),
    ],
)
def test_P4_explain_says_within_the_grace_that_it_will_fail_and_why(rules: Progress, why: str):
    spec = training(limit=10, progress=rules)
    minute = edit(FAST, failure_grace_period=timedelta(minutes=1))
    life = Life(spec=edit(spec, policy=edit(spec.policy, timings=minute))).runs()
    for number in range(1, 4):
        dies(life, "step 1234" if rules.executions != 3 else f"step {number}")
        if number < 3:
            told = explain_of(life.spec, life.state, life.now).next[-1].what
            assert told == f"if it is not healthy by then: reset (restart {number} of 10), then attempt {number + 1}"
            again(life.after(minutes=1))
    told = explain_of(life.spec, life.state, life.now).next[-1].what
    assert told == f"if it is not healthy by then: the workload fails, since {why}"
    life.after(minutes=1)
    assert (life.state.outcome, life.state.message.partition(":")[0]) == (Phase.FAILED, why)


@ROW("P4", level="pure")
def test_P4_a_retry_by_a_person_forgets_the_poison_step():
    policy = edit(training(limit=100).policy, timings=edit(FAST, deletion_on_failure_grace_period=timedelta(hours=1)))
    life = Life(spec=edit(training(), policy=policy)).runs()
    for _ in range(3):
        stalls(life, 9)
        if life.state.outcome is None:
            again(life)
    assert life.state.reason is Reason.POISON_STEP
    again(life.tell(Retried()))
    assert (life.state.phase, life.state.fall) == (Phase.RUNNING, None)


@ROW("P4", level="pure")
def test_P4_a_workload_whose_steps_are_not_followed_has_no_poison_step():
    life = Life(spec=edit(training(limit=100), progress=None)).runs()
    for _ in range(5):
        again(dies(life, "step 1234"))
    assert life.state.phase is Phase.RUNNING
    assert life.state.fall is None


@ROW("P1", level="pure")
def test_P1_what_older_releases_remember_reads_and_what_is_new_is_not_written_without_need():
    plain = State(since=START, policy=Policy()).model_dump(mode="json", by_alias=True)
    assert not {"steps", "bestSaved", "fall"} & plain.keys()
    assert FailureClass.NO_PROGRESS.value == "NoProgress"
