"""Pods whose own grace to end is longer than the failure grace: their controller cannot replace them yet (row D14)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast.model import FailureClass, Phase
from holdfast.policy.attempt.health import coming_back, current
from holdfast.policy.failures.lost_pods import drained_until
from holdfast.policy.failures.rules import rule_on
from holdfast.policy.values.edit import edit
from holdfast.profiles import PROFILES
from tests.policy.lives.life import Life, workload

D14 = pytest.mark.row("D14", level="pure")
GRACE = timedelta(seconds=300)
DRAINED = {"failed": 1, "cls": "NodeLost", "why": "EvictionByEvictionAPI"}


def life(*, new: bool = True, profile: str = "appwrapper") -> Life:
    one = Life(spec=workload(3, policy=PROFILES[profile]))
    one.state = edit(one.state, shows_waits=new)
    return one.runs().after(hours=1)


@D14
@pytest.mark.parametrize("profile", ["appwrapper", "manifests", "lattice-batch", "lattice-service"])
def test_D14_a_pod_that_takes_its_own_grace_to_end_is_replaced_without_a_reset(profile: str) -> None:
    one = life(profile=profile)
    one.sees(running=2, terminating=1, ending=one.now + GRACE)
    assert one.waits_for == "termination grace: 1 of 3 pods are ending first"
    one.after(seconds=299)
    assert (one.state.phase, one.state.unhealthy) == (Phase.RUNNING, None)
    one.sees(running=2, pending=1, starting=one.now).after(seconds=90).sees(running=3).after(hours=1)
    assert (one.state.phase, one.attempt, one.state.used) == (Phase.RUNNING, 1, {})


@D14
@pytest.mark.parametrize("view", [{}, DRAINED], ids=["rolled", "drained"])
@pytest.mark.parametrize("gone", [20, 299, 300])
def test_D14_the_failure_grace_begins_once_the_pod_has_ended(view: dict[str, Any], gone: int) -> None:
    one = life()
    one.sees(running=2, terminating=1, ending=one.now + GRACE, **view).after(seconds=gone)
    assert one.state.phase is Phase.RUNNING
    one.sees(running=2).after(seconds=59)
    assert (one.state.phase, one.state.restarts) == (Phase.RUNNING, 0)
    one.after(seconds=1)
    assert (one.state.phase, one.state.restarts) == (Phase.RESETTING, 1)


@D14
@pytest.mark.parametrize("view", [{}, DRAINED], ids=["rolled", "drained"])
def test_D14_a_pod_that_does_not_end_in_its_grace_is_waited_for_no_longer_than_the_failure_grace(
    view: dict[str, Any],
) -> None:
    one = life()
    one.sees(running=2, terminating=1, ending=one.now + GRACE, **view).after(seconds=359)
    assert (one.state.phase, one.state.restarts) == (Phase.RUNNING, 0)
    one.after(seconds=1)
    assert (one.state.phase, one.state.restarts) == (Phase.RESETTING, 1)


@D14
def test_D14_pods_that_end_and_pods_that_start_each_have_their_time() -> None:
    one = life()
    one.view = {"running": 3}

    def until(new: bool = True, **view: Any) -> Any:
        one.sees(**view)
        state = edit(one.state, shows_waits=new)
        back = coming_back(one.spec, state, current(state))
        return back.until if back is not None else "healthy"

    warm = one.state.policy.timings.warmup_grace_period
    ends = one.now + GRACE
    assert until(running=3) == "healthy"
    assert until(running=2) is None
    assert until(running=2, terminating=1, ending=ends) == ends
    assert until(running=2, terminating=1, ending=ends, new=False) is None
    assert until(running=2, pending=1, starting=one.now) == one.now + warm


@D14
def test_D14_a_run_of_an_earlier_release_goes_on_as_it_began() -> None:
    one = life(new=False)
    one.sees(running=2, terminating=1, ending=one.now + GRACE).after(seconds=60)
    assert (one.state.phase, one.state.restarts) == (Phase.RESETTING, 1)


@D14
def test_D14_a_pod_that_takes_long_to_end_puts_off_no_other_failure() -> None:
    one = life()
    one.sees(running=2, terminating=1, ending=one.now + GRACE, **DRAINED)
    seen = current(one.state)
    assert seen is not None
    (drained,) = seen.failures
    other = edit(drained, cls=FailureClass.APP, reason="Error", subject="another")
    ruled, beside = (rule_on(one.state.policy, each) for each in (drained, other))
    assert drained_until([ruled, ruled], seen) == one.now + GRACE
    assert drained_until([ruled, beside], seen) is None
