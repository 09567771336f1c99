"""Pods of a service that have gone, and have not failed: their controller has a minute to bring them back (row L23)."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.model import Failure, FailureClass, Lifecycle, Phase, Policy, Reactive, Reason, Scope, Unbounded
from holdfast.policy.values.edit import edit
from holdfast.profiles import lattice
from tests.policy.lives.life import Life, workload

ROW = pytest.mark.row
LIFECYCLES = pytest.mark.parametrize("lifecycle", [Unbounded(), Reactive(min=2, max=4)], ids=["unbounded", "reactive"])


def service(lifecycle: Lifecycle | None = None, policy: Policy = lattice.SERVICE, *, sensitive: bool = False) -> Life:
    return Life(spec=workload(policy=policy, lifecycle=lifecycle or Unbounded(), sensitive=sensitive)).runs()


@ROW("L23", level="pure")
@LIFECYCLES
def test_L23_pods_that_come_back_within_the_minute_have_cost_nothing(lifecycle: Lifecycle):
    one = service(lifecycle).sees(running=1)
    assert "failure grace" in one.waits_for
    one.after(seconds=59).sees(running=2).after(minutes=5)
    assert (one.state.phase, one.attempt, one.state.requeues, one.state.used) == (Phase.RUNNING, 1, 0, {})


@ROW("L23", level="pure")
def test_L23_a_rolling_replacement_may_last_for_longer_than_a_minute():
    one = service()
    for _ in range(10):
        one.sees(running=1).after(seconds=40).sees(running=2).after(seconds=1)
    assert (one.attempt, one.state.requeues, one.state.used) == (1, 0, {})


@ROW("L23", level="pure")
@LIFECYCLES
def test_L23_pods_that_do_not_come_back_bring_it_back_to_its_queue_once(lifecycle: Lifecycle):
    one = service(lifecycle).sees(running=1).after(seconds=60)
    assert (one.state.phase, one.state.reason) == (Phase.PENDING, Reason.QUEUED)
    assert (one.state.requeues, one.state.used) == (1, {"restart": 1})
    (why,) = [cause.message for cause in one.state.causes if cause.reason is Reason.REQUEUED]
    assert "1 of 2 pods do not run" in why
    assert "(rule absent-pods)" in why
    one.after(seconds=30).sees(running=2)
    assert (one.state.phase, one.attempt) == (Phase.RUNNING, 2)


@ROW("L23", level="pure")
def test_L23_the_minute_is_theirs_alone_a_pod_that_failed_or_lost_its_node_is_not_waited_for():
    for why in ({}, {"cls": "NodeLost", "why": "NodeLost"}):
        failed: dict[str, Any] = {"running": 1, "failed": 1, **why}
        assert service().sees(**failed).state.requeues == 1, why
    one = service()
    assert one.state.attempt is not None
    probe = Failure(cls=FailureClass.PROBE, scope=Scope.MEMBER, reason="ProbeFailed", time=one.now, component="train")
    one.state = edit(one.state, attempt=edit(one.state.attempt, told=probe))
    one.sees(running=1)
    assert one.state.requeues == 1, "what serves nothing is not being replaced by itself"


@ROW("L7", level="pure")
@ROW("L23", level="pure")
def test_L7_sensitive_work_has_the_same_minute_and_is_then_held():
    one = service(sensitive=True).sees(running=1).after(seconds=59)
    assert one.state.held is None
    one.after(seconds=1)
    assert one.state.held is not None
    assert one.state.held.rule == "absent-pods"


@ROW("L21", level="pure")
@ROW("L22", level="pure")
@pytest.mark.parametrize("policy", [lattice.INTERACTIVE, lattice.BATCH], ids=["never", "on_node_failure"])
def test_L21_L22_what_is_no_service_has_no_controller_to_wait_for(policy: Policy):
    one = service(policy=policy).sees(running=1)
    assert (one.state.outcome, one.state.reason) == (Phase.FAILED, Reason.INSUFFICIENT_PODS_READY)
