"""The pod's own death is kept with its Job's verdict: in status, history, Events and the next explanation (row D35)."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.model import Failure, FailureClass, Phase, Reason, Scope
from holdfast.policy.failures.first_cause import died
from holdfast.policy.status.explain import explain_of, status_of
from holdfast.policy.status.report import events_of
from holdfast.policy.values.decision import Restart
from holdfast.policy.values.edit import edit
from holdfast.policy.verdicts.decide import decide
from holdfast.profiles import PROFILES
from tests.policy.lives.life import START, Life, workload

D35 = pytest.mark.row("D35", level="pure")
DEATH = "pod train-0 exited 137 (OOMKilled) on node-7"
OOM = {"failed": 1, "exit_code": 137, "why": "OOMKilled"}


def exhausted() -> Life:
    """A workload whose every attempt ends like this, at its outcome."""
    life = Life().runs()
    for _ in range(3):
        life.sees(**OOM, job_failed=True).after(seconds=90).sees(running=2)
    return life.sees(**OOM, job_failed=True)


@D35
def test_D35_status_and_its_json_name_the_pod_the_code_and_the_node_once_it_has_failed() -> None:
    life = exhausted()
    status = status_of(life.spec, life.state, life.now, "uid")
    assert status.phase is Phase.FAILED
    assert status.failure is not None
    assert (status.failure.exit_code, status.failure.node) == (137, "node-7")
    assert status.failure.reason == "BackoffLimitExceeded", "the verdict stays the verdict"
    assert DEATH in status.failure.sentence()
    assert DEATH in status.message
    assert DEATH in explain_of(life.spec, life.state, life.now).why


@D35
def test_D35_causes_and_events_name_it_for_each_reset() -> None:
    life = exhausted()
    resets = [each.message for each in life.state.causes if "BackoffLimitExceeded" in each.message]
    assert len(resets) >= 4
    assert all(DEATH in each for each in resets), resets
    life.state = life.state.model_copy(update={"told_causes": 0})
    assert any(DEATH in each.message for each in events_of(life.state))


@D35
def test_D35_a_death_that_is_not_seen_any_more_when_the_verdict_comes_is_remembered() -> None:
    life = Life().runs().sees(running=1, **OOM)
    assert life.state.unhealthy is not None, "its grace runs"
    life.after(seconds=5).sees(job_failed=True)
    assert any(DEATH in each.message for each in life.state.causes)


@D35
def test_D35_a_death_of_long_ago_that_was_healed_is_no_cause() -> None:
    life = Life().runs().sees(running=1, **OOM).after(seconds=5).sees(running=2).after(seconds=5)
    life.sees(job_failed=True)
    assert not any("OOMKilled" in each.message for each in life.state.causes)


@D35
def test_D35_rules_still_judge_the_verdict_as_it_was_said() -> None:
    life = Life(spec=workload()).runs()
    verdict = Failure(
        cls=FailureClass.APP, scope=Scope.COMPONENT, reason="BackoffLimitExceeded", time=life.now, component="train"
    )
    death = verdict.model_copy(
        update={
            "scope": Scope.MEMBER,
            "reason": "Error",
            "exit_code": 3,
            "subject": "train-0",
            "node": "node-7",
            "time": life.now - timedelta(seconds=1),
        }
    )
    seen = life.look(live=True).model_copy(update={"failures": (death, verdict)})
    state = life.state.model_copy(update={"observation": seen, "looked_at": life.now + timedelta(days=1)})
    decision = decide(life.spec, state, life.now)
    assert isinstance(decision, Restart)
    assert decision.rule == "component", "no exit code of a pod has come to be the component's own before it was judged"
    assert "pod train-0 exited 3 on node-7" in decision.failure.sentence()


NODES = [
    (FailureClass.NODE_LOST, "Evicted"),
    (FailureClass.NODE_LOST, "Preempted"),
    (FailureClass.NODE_LOST, "Terminated"),
    (FailureClass.LAUNCH, "StartError"),
    (FailureClass.DEADLINE, "DeadlineExceeded"),
]


@D35
@pytest.mark.parametrize("profile", ["appwrapper", "jobset"])
@pytest.mark.parametrize(("cls", "reason"), NODES)
def test_D35_what_its_node_did_to_the_pod_is_kept_as_well(cls: FailureClass, reason: str, profile: str) -> None:
    life = Life(spec=workload(policy=PROFILES[profile]))
    life.state = edit(life.state, shows_waits=True)
    life.runs().sees(running=1, failed=1, cls=cls, why=reason, job_failed=True)
    told = [each.message for each in life.state.causes if "BackoffLimitExceeded" in each.message]
    assert told
    assert all(f"pod train-0: {reason} on node-7" in each for each in told), told


@D35
def test_D35_an_eviction_that_is_not_seen_any_more_when_the_verdict_comes_is_remembered() -> None:
    life = Life(spec=workload(policy=PROFILES["appwrapper"]))
    life.state = edit(life.state, shows_waits=True)
    life.runs().sees(running=1, failed=1, cls="NodeLost", why="Evicted").after(seconds=5).sees(job_failed=True)
    assert any("pod train-0: Evicted on node-7" in each.message for each in life.state.causes)


@D35
def test_D35_a_mark_a_down_node_and_a_pod_that_may_still_start_are_no_death() -> None:
    pod = Failure(
        cls=FailureClass.NODE_LOST, scope=Scope.MEMBER, reason="Evicted", time=START, component="train", subject="t-0"
    )
    others = [
        edit(pod, cls=FailureClass.HARDWARE, reason="NodeMarkedForEviction"),
        edit(pod, reason=Reason.NODE_DOWN),
        edit(pod, reason=Reason.NODE_STILL_DOWN),
        edit(pod, cls=FailureClass.LAUNCH, reason="ErrImagePull", stuck=True),
        edit(pod, scope=Scope.COMPONENT),
    ]
    assert died(others) is None
    assert died([*others, pod]) == pod
    assert died([pod], of_nodes=False) is None
