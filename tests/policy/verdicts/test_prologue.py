"""A workload whose pods cannot be launched is tried on other nodes, and not for ever (row L16), on virtual time."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast.model import Failure, FailureClass, Interval, Limits, OperationKind, Phase, Policy, Reason, Scope
from holdfast.policy.failures.avoided_nodes import MARKED_KEPT, blamed_for, exclude
from holdfast.policy.status.explain import explain_of, status_of
from holdfast.policy.values.edit import edit
from holdfast.profiles import PROFILES
from holdfast.profiles.lattice import POLICIES
from tests.policy.lives.life import START, Life, workload

ROW = pytest.mark.row
POLICY = PROFILES["lattice-service"]
EACH = pytest.mark.parametrize("policy", POLICIES, ids=lambda each: each.profile)


def life(policy: Policy = POLICY, **more: Any) -> Life:
    return Life(spec=workload(2, policy=policy), **more).settle()


def avoided(one: Life) -> list[str]:
    assert one.state.attempt is not None
    assert all(node.required for node in one.state.attempt.avoided)
    return [node.name for node in one.state.attempt.avoided]


def fails_to_launch(one: Life, node: str) -> Life:
    """An init container fails there; then its next attempt is made."""
    return one.sees(pending=1, failed=1, cls="Launch", nodes=(node,)).after(seconds=10)


@EACH
@ROW("L16", level="pure")
def test_L16_first_try_and_three_more_each_without_the_nodes_before(policy: Policy):
    one = life(policy)
    for number in range(3):
        fails_to_launch(one, f"node-{number}")
        assert (one.attempt, one.state.phase) == (number + 2, Phase.RESUMING)
        assert avoided(one) == [f"node-{each}" for each in range(number + 1)]
    assert one.state.used == {"launch": 3}
    fails_to_launch(one, "node-3")
    assert (one.state.phase, one.state.reason) == (Phase.FAILED, Reason.PROLOGUE_FAILURE_MAX_RETRIES)
    assert one.state.executions == 4
    told = status_of(one.spec, one.state, one.now, "uid")
    assert told.failure is not None
    assert told.failure.node == "node-3"
    assert "launch budget is used up (3 of 3)" in told.message


@ROW("L16", level="pure")
def test_L16_whoever_asks_is_told_which_node_and_why():
    one = life(hold={OperationKind.REMOVE}).sees(pending=1, failed=1, cls="Launch", why="InitFailed")
    assert one.state.phase is Phase.RESETTING
    cause = one.state.causes[-1].message
    assert cause == "train-0: InitFailed on node-7 (rule prologue); the next attempt must avoid node-7"


@EACH
@ROW("L16", level="pure")
def test_L16_what_the_kubelet_tries_again_is_borne_for_its_grace_and_no_longer(policy: Policy):
    one = life(policy).sees(pending=2, stuck=1)
    assert "launch grace: train-0: ErrImagePull on node-7" in one.waits_for
    one.after(seconds=59)
    assert (one.state.phase, one.attempt) == (Phase.RESUMING, 1)
    one.after(seconds=1)
    assert (one.state.phase, one.state.used) == (Phase.RESETTING, {"launch": 1})
    one.after(seconds=10)
    assert (one.attempt, avoided(one)) == (2, ["node-7"])


@ROW("L16", level="pure")
def test_L16_an_image_that_is_pulled_after_all_has_cost_nothing():
    one = life().sees(pending=2, stuck=2).after(seconds=50).sees(pending=2).after(seconds=30).sees(running=2)
    one.after(hours=1)
    assert (one.state.phase, one.attempt, one.state.used, one.state.excluded) == (Phase.RUNNING, 1, {}, ())


@ROW("L16", level="pure")
def test_L16_healed_as_the_grace_ends_is_seen_by_the_live_look():
    one = life(hold={OperationKind.OBSERVE}).sees(pending=2, stuck=1).after(minutes=1)
    assert one.kinds()[-1] == "observe"
    one.view = {"running": 2}
    one.finish().settle()
    assert (one.state.phase, one.state.used) == (Phase.RUNNING, {})


@ROW("L16", level="pure")
def test_L16_while_the_watch_is_blind_no_grace_runs():
    one = life().sees(pending=2, stuck=1)
    blind = Interval(begin=START, end=START + timedelta(seconds=40))
    one.after(seconds=40).sees(pending=2, stuck=1, blind=(blind,)).after(seconds=59)
    assert one.state.phase is Phase.RESUMING
    one.after(seconds=1)
    assert one.state.phase is Phase.RESETTING


@ROW("L16", level="pure")
def test_L16_a_crash_does_not_wait_for_a_pod_that_is_stuck():
    one = life().sees(pending=1, failed=1, stuck=1)
    assert (one.state.phase, one.state.used) == (Phase.PENDING, {"restart": 1}), "requeued, and already gone"


@ROW("L16", level="pure")
@pytest.mark.parametrize("view", [{"running": 1, "failed": 1}, {"running": 2, "marked": ("node-9",)}])
def test_L16_a_restart_of_another_cause_renews_the_budget_charged_or_not(view: dict[str, Any]):
    one = life()
    for node in ("node-1", "node-2", "node-3"):
        fails_to_launch(one, node)
    assert one.state.used == {"launch": 3}
    one.sees(**view).after(seconds=10)
    assert one.state.used.get("launch", 0) == 0
    assert "launch budget renewed: it is requeued for another cause" in [each.message for each in one.state.causes]
    fails_to_launch(one, "node-4")
    assert (one.state.phase, one.state.used["launch"]) == (Phase.RESUMING, 1)


@ROW("L16", level="pure")
def test_L16_a_failed_launch_leaves_the_restart_budget_alone():
    one = life().sees(running=1, failed=1).after(seconds=10)
    fails_to_launch(one, "node-1")
    assert one.state.used == {"restart": 1, "launch": 1}


@ROW("L16", level="pure")
def test_L16_a_pod_that_a_controller_makes_again_is_launched_like_the_first():
    one = life().runs().sees(running=1, pending=1, stuck=1)
    assert one.state.phase is Phase.RUNNING
    one.after(minutes=1)
    assert (one.state.phase, one.state.used) == (Phase.RESETTING, {"launch": 1})


@ROW("L16", level="pure")
def test_L16_the_operators_maximum_caps_the_grace():
    one = life(edit(POLICY, timings=edit(POLICY.timings, launch_grace_period=timedelta(hours=5))),
               limits=Limits(grace_period_maximum=timedelta(seconds=20)))  # fmt: skip
    one.sees(pending=2, stuck=1).after(seconds=20)
    assert one.state.restarts == 1


@ROW("L16", level="pure")
@pytest.mark.parametrize("profile", ["appwrapper", "jobset", "manifests", "streams"])
def test_L16_a_policy_that_says_nothing_of_launches_waits_as_ever(profile: str):
    """Only its explanation says more: that a pod is pending is no reason."""
    policy = PROFILES[profile]
    one, plain = Life(spec=workload(2, policy=policy)).settle(), Life(spec=workload(2, policy=policy)).settle()
    one.sees(pending=2, stuck=2)
    plain.sees(pending=2)
    for _ in range(40):
        one.after(seconds=30)
        plain.after(seconds=30)
        assert (one.state.phase, one.waits_for, one.ran) == (plain.state.phase, plain.waits_for, plain.ran)


@ROW("U11", level="pure")
@pytest.mark.parametrize("profile", ["appwrapper", "jobset", "manifests"])
def test_U11_why_a_pod_does_not_start_is_told_whatever_the_policy(profile: str):
    one = Life(spec=workload(2, policy=PROFILES[profile])).settle().sees(pending=2, stuck=2)
    now = explain_of(one.spec, one.state, one.now).now
    assert "0 of 2 pods running" in now
    assert "train-0: ErrImagePull on node-7: container main: no such image; and 1 more" in now


@EACH
@ROW("L16", level="pure")
def test_L16_two_pods_that_fail_on_each_try_meet_no_node_twice(policy: Policy):
    one = life(policy)
    one.state = edit(one.state, shows_waits=True)
    for number in range(3):
        nodes = (f"node-{2 * number}", f"node-{2 * number + 1}")
        one.sees(failed=2, cls="Launch", nodes=nodes).after(seconds=10)
        assert one.attempt == number + 2
        assert sorted(avoided(one)) == [f"node-{each}" for each in range(2 * number + 2)]
    one.sees(failed=2, cls="Launch", nodes=("node-6", "node-7"))
    assert one.state.reason is Reason.PROLOGUE_FAILURE_MAX_RETRIES


@ROW("L16", level="pure")
def test_L16_once_its_budget_is_renewed_the_cap_applies_to_those_nodes_again():
    one = life()
    one.state = edit(one.state, shows_waits=True)
    for number in range(3):
        one.sees(failed=2, cls="Launch", nodes=(f"node-{2 * number}", f"node-{2 * number + 1}")).after(seconds=10)
    assert len(avoided(one)) == 6
    one.sees(running=1, failed=1, nodes=("node-9",)).after(seconds=10)
    assert one.state.used.get("launch", 0) == 0
    assert one.state.attempt is not None
    assert [node.name for node in one.state.attempt.avoided] == ["node-4", "node-5", "node-9"]


@ROW("L16", level="pure")
def test_L16_the_nodes_that_are_kept_are_bounded():
    one = life()
    one.state = edit(one.state, shows_waits=True)
    failure = Failure(cls=FailureClass.LAUNCH, scope=Scope.MEMBER, reason="InitFailed", time=one.now)
    for number in range(MARKED_KEPT + 5):
        blame = blamed_for(POLICY, [edit(failure, node=f"node-{number}")], one.now)
        one.state, _ = exclude(one.state, blame, one.now)
    assert [node.name for node in one.state.excluded] == [f"node-{number}" for number in range(5, MARKED_KEPT + 5)]


@ROW("L16", level="pure")
def test_L16_more_launches_that_fail_at_once_than_the_cap_are_no_fault_of_their_nodes():
    one = life()
    one.state = edit(one.state, shows_waits=True)
    failure = Failure(cls=FailureClass.LAUNCH, scope=Scope.MEMBER, reason="ErrImagePull", time=one.now)
    many = [edit(failure, node=f"node-{number}") for number in range(POLICY.exclusion.limit + 1)]
    one.state, _ = exclude(one.state, blamed_for(POLICY, many, one.now), one.now)
    assert len(one.state.excluded) == POLICY.exclusion.limit
    marked = tuple(edit(one.state.excluded[0], name=f"marked-{number}", marked=True) for number in range(MARKED_KEPT))
    one.state = edit(one.state, excluded=marked)
    one.state, _ = exclude(one.state, blamed_for(POLICY, [edit(failure, node="node-0")], one.now), one.now)
    assert {node.name for node in one.state.excluded} == {"node-0", *(node.name for node in marked)}, "none is let go"
