"""A pod that its node lost, and that is gone when the confirming look runs: the loss still decides (row L22)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast.model import Failure, Observation, OperationKind, Phase, Policy
from holdfast.policy.values.edit import edit
from holdfast.profiles import PROFILES
from holdfast.profiles.lattice import BATCH
from tests.policy.lives.life import Life, workload

L22 = pytest.mark.row("L22", level="pure")
LEFT = {
    "its Job's verdict": {"running": 1, "job_failed": True},
    "nothing of a bare pod": {"found": False},
    "a pod too few": {"running": 1},
    "a replacement that waits": {"running": 1, "pending": 1},
    "itself": {"running": 1, "failed": 1, "cls": "NodeLost", "why": "NodeLost"},
}
EACH = pytest.mark.parametrize("left", LEFT.values(), ids=LEFT)


class Skewed(Life):
    """A life whose node has a clock that is ahead of the controller's."""

    ahead = timedelta(seconds=1)

    def look(self, **kind: Any) -> Observation:
        seen = super().look(**kind)
        return edit(seen, failures=tuple(self._by_its_node(one) for one in seen.failures))

    def _by_its_node(self, failure: Failure) -> Failure:
        return edit(failure, time=failure.time + self.ahead) if failure.node else failure


def confirmed(left: dict[str, Any], policy: Policy = BATCH, **fields: Any) -> Life:
    """A workload whose node was lost, and of which the confirming look finds only this."""
    one = Skewed(spec=workload(policy=policy, **fields), hold={OperationKind.OBSERVE})
    one.state = edit(one.state, shows_waits=True)
    one.runs().sees(running=1, failed=1, cls="NodeLost", why="NodeLost")
    assert one.kinds()[-1] == "observe"
    one.hold.clear()
    one.view = left
    one.finish()
    return one.settle()


@L22
@EACH
def test_L22_a_lost_node_requeues_whatever_the_confirming_look_still_finds_of_the_pod(left: dict[str, Any]):
    one = confirmed(left)
    assert (one.state.phase, one.state.requeues, one.state.used) == (Phase.PENDING, 1, {"restart": 1})
    one.after(minutes=1).sees(running=2)
    one.after(hours=1)
    assert (one.state.phase, one.state.requeues, one.attempt) == (Phase.RUNNING, 1, 2), "charged once"


@L22
@EACH
def test_L7_sensitive_work_on_a_lost_node_is_held_whatever_the_confirming_look_still_finds(left: dict[str, Any]):
    one = confirmed(left, sensitive=True)
    assert one.state.held is not None
    assert "train-0: NodeLost on node-7" in one.state.held.why
    assert (one.state.outcome, one.state.requeues) == (None, 0)


@L22
def test_L22_a_pod_that_is_seen_alive_again_was_not_lost():
    one = confirmed({"running": 2})
    assert (one.state.phase, one.state.unhealthy) == (Phase.RUNNING, None)
    one.sees(running=1, job_failed=True)
    assert one.state.phase is Phase.FAILED, "a later failure of its own is its own"


@L22
def test_L22_where_its_controller_has_a_grace_a_replacement_that_starts_takes_the_lost_pods_place():
    one = Life(spec=workload(policy=PROFILES["appwrapper"]))
    one.state = edit(one.state, shows_waits=True)
    one.runs().sees(running=1, failed=1, cls="NodeLost", why="NodeLost").after(seconds=10)
    one.sees(running=1, pending=1, starting=one.now).after(minutes=2)
    assert (one.state.phase, one.state.restarts, one.state.unhealthy) == (Phase.RUNNING, 0, None)


@L22
def test_L22_a_run_of_an_earlier_release_goes_on_as_it_began():
    one = Life(spec=workload(policy=BATCH), hold={OperationKind.OBSERVE}).runs()
    one.sees(running=1, failed=1, cls="NodeLost", why="NodeLost")
    assert one.state.unhealthy is not None
    assert one.state.unhealthy.lost is None
