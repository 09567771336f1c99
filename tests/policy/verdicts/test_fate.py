"""Ranks that exit since one of them has gone with its node: not the application's failure (rows L4, L17, L22)."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from holdfast.model import Failure, FailureClass, Interval, Observation, OperationKind, Phase, Quiet, Reason, Scope
from holdfast.policy.status.explain import explain_of
from holdfast.policy.values.edit import edit
from holdfast.policy.values.steps import Sleep
from holdfast.policy.verdicts.fate import matters
from holdfast.profiles import appwrapper, jobset, lattice, manifests, streams
from tests.policy.lives.life import START, Life, workload

ROW = pytest.mark.row
DOWN_AFTER = timedelta(seconds=100)
LOST_AFTER = timedelta(seconds=340)


class Gang(Life):
    """A workload whose live looks tell when its quietest node was heard of, and that may lose a node."""

    heard: datetime | None = START
    loss: Failure | None = None
    crashed: datetime | None = None

    def look(self, **kind: Any) -> Observation:
        seen = super().look(**kind)
        quiet = None
        if self.heard is not None and kind.get("live"):
            quiet = Quiet(
                node="node-2",
                renewed=self.heard,
                down_at=self.heard + DOWN_AFTER,
                lost_at=self.heard + LOST_AFTER,
            )
        if seen.failures and self.crashed is None:
            self.crashed = self.now
        # A container that has ended goes on having ended then.
        failures = tuple(edit(one, time=self.crashed) for one in seen.failures)
        if self.loss is not None:
            failures = tuple(sorted((self.loss, *failures), key=Failure.order))
        return edit(seen, quietest=quiet, failures=failures)

    def loses(self, reason: Reason = Reason.NODE_DOWN) -> Gang:
        """Its quietest node is found Down."""
        assert self.heard is not None
        self.loss = Failure(
            cls=FailureClass.NODE_LOST, scope=Scope.MEMBER, reason=reason, time=self.heard, node="node-2"
        )
        self.sees(**self.view)
        return self


def gang(policy: Any = lattice.BATCH, **fields: Any) -> Gang:
    one = Gang(spec=workload(policy=policy, **fields))
    one.settle()
    one.runs()
    return one


def looks(one: Life) -> int:
    return sum(kind is OperationKind.OBSERVE for kind, _, _ in one.ran)


@ROW("L22", level="pure")
@ROW("L4", level="pure")
def test_L22_a_crash_whose_peer_node_is_then_found_down_is_requeued_and_not_failed():
    one = gang()
    one.heard = one.now - timedelta(seconds=3)
    one.sees(running=1, failed=1)
    assert one.state.outcome is None, "the fate of node-2 is open"
    why = explain_of(one.spec, one.state, one.now).next[0].what
    assert "held until node-2 is heard of, or is Down" in why
    one.after(seconds=88)
    assert one.state.outcome is None
    one.loses()
    assert (one.state.outcome, one.state.restarts) == (None, 1)
    reset = [cause for cause in one.state.causes if cause.reason is Reason.REQUEUED]
    assert "node-lost" in reset[0].message
    assert looks(one) <= 5, "history is a budget"


@ROW("L17", level="pure")
def test_L17_a_crash_is_a_failure_once_every_peer_node_has_been_heard_of():
    one = gang()
    one.heard = one.now - timedelta(seconds=3)
    crashed = one.now
    one.sees(running=1, failed=1)
    one.heard = crashed + timedelta(seconds=7)
    one.after(seconds=10)
    assert one.state.outcome is Phase.FAILED
    assert one.now - crashed <= timedelta(seconds=12)


@ROW("L17", level="pure")
@pytest.mark.parametrize("heard", [None, timedelta(seconds=3)])
def test_L17_nothing_is_held_where_no_node_is_left_to_hear_of_or_all_have_been(heard: timedelta | None):
    one = gang()
    one.heard = one.now + heard if heard is not None else None
    one.sees(running=1, failed=1)
    assert one.state.outcome is Phase.FAILED


@ROW("L17", level="pure")
def test_L17_what_is_held_is_held_no_longer_than_a_node_may_be_silent():
    one = gang()
    one.heard = one.now - timedelta(seconds=1)
    one.sees(running=1, failed=1)
    one.after(seconds=105)
    assert one.state.outcome is Phase.FAILED, "nobody found it Down: it is not watched, or its clock is wrong"


@ROW("L7", level="pure")
def test_L7_a_crash_of_sensitive_work_is_held_until_its_peers_node_could_be_found_down_for_it():
    one = gang(sensitive=True)
    one.heard = one.now - timedelta(seconds=3)
    one.sees(running=1, failed=1)
    one.after(seconds=320)
    assert one.state.outcome is None, "Down after 90 s says nothing to sensitive work"
    one.loses(Reason.NODE_STILL_DOWN)
    assert one.state.outcome is None
    assert one.state.held is not None


@ROW("L4", level="pure")
def test_L4_no_node_is_found_down_while_nobody_sees_the_cluster():
    one = gang()
    one.state = edit(one.state, shows_waits=True)  # As every run does that begins now.
    one.after(minutes=3)
    away = Interval(begin=one.now - timedelta(seconds=180), end=one.now)
    one.heard = away.begin
    one.sees(running=1, failed=1, blind=(away,))
    assert one.state.outcome is None, "no lease could be renewed while the API server was away"
    one.after(seconds=95)
    assert one.state.outcome is None
    one.loses()
    assert (one.state.outcome, one.state.restarts) == (None, 1)


@ROW("L4", level="pure")
def test_L4_a_sensitive_workload_waits_for_its_node_longer_than_others():
    one = gang(lattice.INTERACTIVE, sensitive=True)
    one.sees(running=2)
    one.loses(Reason.NODE_DOWN)
    assert (one.state.outcome, one.state.unhealthy) == (None, None)
    one.loses(Reason.NODE_STILL_DOWN)
    assert one.state.outcome is Phase.FAILED or one.state.held is not None


@ROW("L4", level="pure")
@pytest.mark.parametrize("policy", [appwrapper.POLICY, manifests.POLICY, streams.POLICY, jobset.POLICY])
def test_L4_a_policy_that_says_nothing_of_lost_nodes_waits_for_them_as_kubernetes_does(policy: Any):
    assert not matters(policy)
    one = gang(policy)
    one.sees(running=2)
    one.loses()
    assert one.state.unhealthy is None
    assert isinstance(one.step, Sleep)


@ROW("L4", level="pure")
def test_L4_what_was_left_running_on_a_node_that_is_down_is_said():
    one = gang()
    one.heard = one.now
    one.loses()
    (gone,) = [cause for cause in one.state.causes if cause.reason is Reason.DELETION_COMPLETE]
    assert gone.message == (
        "attempt 1 is gone from the API; it may still run on node-2 until that node is heard again or powered off"
    )
