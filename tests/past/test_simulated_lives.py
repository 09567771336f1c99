"""Lives that were simulated, judged by another policy and exported: what no recorded history happens to hold."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import Any

import pytest

from holdfast.formats import read
from holdfast.model import (
    Action,
    ActionKind,
    Budget,
    ConditionType,
    Phase,
    Policy,
    Probe,
    Progress,
    Reason,
    Replacement,
    RestartMode,
    Scope,
    State,
    Workload,
)
from holdfast.past.export import history_of
from holdfast.past.life import Turn
from holdfast.past.other import Comparison, compared
from holdfast.past.story import Story
from holdfast.past.tasks import Run
from holdfast.policy.loop import turn as loop
from holdfast.policy.loop.advance import decisions
from holdfast.simulation import read_script, simulate
from holdfast.simulation import run as run_module
from tests.policy.sides.test_in_place import AGENT, POLICY, component
from tests.simulation.cases import HERE

IN_PLACE, RECREATE = RestartMode.IN_PLACE, RestartMode.RECREATE


def lived(spec: Workload, script: str, until: timedelta | None = None) -> Story:
    """Simulate a life, and return it as if it had been read from a history."""
    turns: list[Turn] = []

    def noted(spec: Workload, state: State, now: Any, *, full: bool) -> loop.Turn:
        taken = loop.turn(spec, state, now, full=full)
        turns.append(Turn(len(turns), now, spec, state, taken.taken, taken.state, taken.step))
        return taken

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_module, "turn", noted)
        simulate(spec, read_script(script, "script"), until=until)
    run = Run("w", "r", "r", "", "", turns[0].at, turns[-1].at, "Completed", 1, None, None, ())
    return Story(spec, "uid", (run,), turns=turns, state=turns[-1].after)


def document(name: str, **replaced: str) -> Workload:
    text = (HERE / "workloads" / f"{name}.yaml").read_text()
    for old, new in replaced.items():
        text = text.replace(old, new)
    (spec,) = read(text, cluster="simulated", namespace=None)
    return spec


def script(name: str) -> str:
    return (HERE / "scripts" / f"{name}.yaml").read_text()


def timed(policy: Policy, **timings: Any) -> Policy:
    return policy.model_copy(update={"timings": policy.timings.model_copy(update=timings)})


def told(result: Comparison) -> list[tuple[str, str]]:
    return [(point.other or point.real, point.verdict) for point in result.points]


def test_that_another_policy_would_have_failed_unless_it_healed_is_not_known_to_be_the_same():
    story = lived(document("pods"), script("failed-pod-reset"))
    fails = {"rules": (), "default": Action(kind=ActionKind.FAIL)}
    policy = timed(story.spec.policy, failure_grace_period=timedelta(minutes=30)).model_copy(update=fails)
    result = compared(story, policy)
    assert any("then it fails" in point.note for point in result.points)
    assert (result.outcome, result.other_outcome) == (Phase.SUCCEEDED, None)
    assert "not known" in result.end
    assert compared(story, story.spec.policy).other_outcome is Phase.SUCCEEDED


@pytest.mark.row("P6", level="pure")
@pytest.mark.row("P4", level="pure")
def test_another_policy_that_would_act_later_fails_where_attempts_have_a_cap():
    spec = document("pods").model_copy(update={"progress": Progress(executions=2)})
    story = lived(spec, "events:\n" + "".join(f"- {{attempt: {n}, at: 1m, fail: {{exitCode: 1}}}}\n" for n in (1, 2)))
    assert story.state is not None
    assert story.state.reason is Reason.EXECUTIONS_EXCEEDED
    result = compared(story, timed(spec.policy, failure_grace_period=timedelta(minutes=30)))
    later = [point.note.partition(";")[0] for point in result.points if point.verdict == "later" and point.note]
    assert later == [
        "then it resets, charged to restart",
        "then it fails, since it has begun 2 attempts, as many as progress.executions allows",
    ]


def probed(mode: RestartMode, agent: dict[str, Any] | None = AGENT) -> Workload:
    """A workload whose restarts are in place if its policy says so and its pods have an agent."""
    policy = POLICY.model_copy(update={"restart_mode": mode})
    train = component("train", agent)
    train.template["spec"] |= {"parallelism": 2, "completions": 2}
    train.template["spec"]["template"]["spec"]["restartPolicy"] = "Never"
    return document("job").model_copy(update={"components": (train,), "policy": policy, "probe": Probe(port=8080)})


@pytest.mark.row("P6", level="pure")
@pytest.mark.parametrize(("real", "other"), [(IN_PLACE, RECREATE), (RECREATE, IN_PLACE)])
def test_what_a_restart_of_the_other_mode_would_have_cost_is_not_known(real: RestartMode, other: RestartMode):
    story = lived(probed(real), "events: [{attempt: 1, at: 5m, probeFails: {for: 5m}}]", timedelta(hours=1))
    policy = story.spec.policy.model_copy(update={"restart_mode": other})
    result = compared(story, policy)
    assert (result.points[1].real, result.points[1].verdict) == ("reset (default rule, charged to restart)", "instead")
    assert result.points[1].note.startswith("in place, if all pods can" if other is IN_PLACE else "with new pods")
    assert result.parted_at == result.costs.known_until == result.points[1].at
    assert "not known" in result.end
    assert compared(story, story.spec.policy).costs.known_until is None
    grace = {"default": policy.default.model_copy(update={"grace": True})}
    later = compared(story, timed(policy, failure_grace_period=timedelta(minutes=10)).model_copy(update=grace))
    assert (later.points[1].verdict, later.costs.known_until) == ("later", later.points[1].at)
    assert "not known" in later.end
    graceful = story.spec.model_copy(update={"policy": timed(story.spec.policy).model_copy(update=grace)})
    slow = lived(graceful, "events: [{attempt: 1, at: 5m, probeFails: {for: 5m}}]", timedelta(hours=1))
    earlier = compared(slow, policy)
    assert (earlier.points[1].verdict, earlier.costs.known_until) == ("instead", earlier.points[1].at)


@pytest.mark.row("P6", level="pure")
def test_pods_that_cannot_restart_in_place_are_recreated_by_another_policy_too_and_that_is_said():
    story = lived(probed(RECREATE, None), "events: [{attempt: 1, at: 5m, probeFails: {for: 5m}}]", timedelta(hours=1))
    policy = story.spec.policy.model_copy(update={"restart_mode": IN_PLACE})
    result = compared(story, policy)
    assert len(result.points) == 3
    assert {point.verdict for point in result.points} == {"same"}
    (note,) = result.notes
    assert note.startswith("Its pods cannot restart in place")
    assert compared(story, story.spec.policy).notes == ()


def test_the_pause_of_another_policys_own_rule_is_waited_for():
    story = lived(document("pods"), script("failed-pod-reset"))

    def longer(action: Action) -> Action:
        resets = action.kind is ActionKind.RESTART
        return action.model_copy(update={"pause": timedelta(minutes=10)}) if resets else action

    mine = story.spec.policy
    rules = tuple(one.model_copy(update={"action": longer(one.action)}) for one in mine.rules)
    result = compared(story, mine.model_copy(update={"rules": rules, "default": longer(mine.default)}))
    (again,) = (point for point in result.points if point.real == "create attempt 2")
    assert again.verdict == "later"
    assert "not before" in again.other
    assert set(told(compared(story, mine))) <= {(text, "same") for text, _ in told(compared(story, mine))}


def test_what_is_held_for_ever_another_policy_removes_in_time():
    spec = document("pods")
    spec = spec.model_copy(update={"policy": timed(spec.policy, deletion_on_failure_grace_period=None)})
    story = lived(spec, script("retry-limit-exceeded"), until=timedelta(hours=12))
    last, state = story.turns[-1], story.turns[-1].after
    assert (state.outcome, state.hold_until) == (Phase.FAILED, None)
    later = last.at + timedelta(hours=5)
    taken = tuple(decisions(spec, state, later))
    story.turns.append(dataclasses.replace(last, at=later, folded=state, taken=taken))
    result = compared(story, timed(spec.policy, deletion_on_failure_grace_period=timedelta(minutes=10)))
    assert ("remove what is held", "not really") in told(result)


def test_an_attempt_whose_walltime_ended_while_it_saved_says_so():
    spec = document("walltime", **{"holdfast.dev/walltimeExtendableTo: 6m": "holdfast.dev/checkpoint: annotation"})
    story = lived(spec, "events:\n- {attempt: 1, at: 3m50s, preempt: {note: x}}\n", until=timedelta(hours=1))
    (attempt,) = history_of(story).attempts
    assert attempt.ended_by is Reason.WALLTIME_EXCEEDED
    assert attempt.why


def test_a_pod_that_had_succeeded_before_counts_where_a_walltime_ends_while_others_save():
    changed = {
        "holdfast.dev/walltimeExtendableTo: 6m": "holdfast.dev/checkpoint: annotation",
        "  backoffLimit: 0": "  backoffLimit: 0\n  parallelism: 2\n  completions: 2",
    }
    first = "- {attempt: 1, at: 1m, succeed: {pods: 1}}\n"
    events = f"pods: {{save: 12s, stop: 30s}}\nevents:\n{first}- {{attempt: 1, at: 3m55s, preempt: {{note: x}}}}\n"
    state = lived(document("walltime", **changed), events, until=timedelta(minutes=20)).turns[-1].after
    assert state.phase is Phase.SUSPENDED
    assert state.checkpoint is not None
    assert (state.checkpoint.state, state.checkpoint.finished) == ("Complete", 1)


def test_what_another_policy_makes_again_earlier_is_charged_once_whatever_is_made_again_meanwhile():
    spec = document("pods")
    waits = Replacement(failed=True, charge="launch", backoff=timedelta(minutes=5))
    budgets = (*spec.policy.budgets, Budget(name="launch", limit=4, scope=Scope.MEMBER))
    policy = spec.policy.model_copy(update={"replacement": waits, "budgets": budgets})
    fails = [("1m", "worker-0"), ("3m", "worker-0"), ("200s", "worker-1")]
    events = "".join(f"- {{attempt: 1, at: {at}, fail: {{component: {name}, exitCode: 1}}}}\n" for at, name in fails)
    story = lived(
        spec.model_copy(update={"policy": policy}), f"events:\n{events}- {{attempt: 1, at: 20m, succeed: {{}}}}"
    )
    soon = waits.model_copy(update={"backoff": timedelta(seconds=10)})
    result = compared(story, policy.model_copy(update={"replacement": soon}))
    made = [(one.other, one.verdict) for one in result.points if "make again" in one.other + one.real]
    one, two = "make again 0-pod-worker-0", "make again 1-pod-worker-1"
    assert made == [(one, "same"), (one, "earlier"), (two, "same")]
    (launch,) = (each for each in result.points[-1].other_budgets if each.name == "launch")
    assert launch.used == 2, "by the member that has used most"
    assert result.other_outcome is Phase.SUCCEEDED


@pytest.mark.row("F11", level="pure")
def test_F11_what_is_scaled_up_again_is_told_as_running_once_its_pods_run():
    """Its phase is Running from the moment on in which it is to run again."""
    events = "".join(
        f"- {{at: {at}, scale: {{component: serve, replicas: {count}}}}}\n" for at, count in (("1h", 0), ("2h", 2))
    )
    story = lived(document("deployment"), f"events:\n{events}", until=timedelta(hours=3))
    (last,) = [turn.after for turn in story.turns[-1:]]
    assert (last.phase, last.reason) == (Phase.RUNNING, Reason.SUFFICIENT_PODS_READY)
    assert last.told is not None
    assert (last.told.phase, last.told.reason) == (Phase.RUNNING, Reason.SUFFICIENT_PODS_READY)
    assert {one.type: one.status for one in last.told.conditions}[ConditionType.PODS_READY]
    begun = [turn for turn in story.turns if turn.after.reason is Reason.STARTING]
    assert begun, "it was told before"
