"""What is made again alone is not missed meanwhile, and is not told ready either (rows S8, S9)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast.model import (
    Action,
    ConditionType,
    OperationKind,
    Phase,
    PodCounts,
    Policy,
    Reason,
    Replacement,
    Scope,
    Timings,
)
from holdfast.policy.status.explain import explain_of
from holdfast.policy.status.report import conditions
from holdfast.policy.values.edit import edit
from holdfast.policy.values.events import Observed
from tests.policy.lives.elements import Elements, config, replacing, streams

ROW = pytest.mark.row


def strict(*, grace: bool = False, failure_grace: int = 60, **rule: Any) -> Elements:
    """Elements that are made again, under a policy for which anything else that is wrong is a failure of them all."""
    unit = Action(unit=Scope.COMPONENT, charge=None, grace=grace)
    timings = Timings(failure_grace_period=timedelta(seconds=failure_grace), warmup_grace_period=timedelta(minutes=5))
    policy = Policy(timings=timings, default=unit, budgets=(), replacement=Replacement(**rule))
    return Elements(spec=streams(policy=policy)).up()


def ready(life: Elements) -> tuple[bool, str]:
    found = {one.type: one for one in conditions(life.spec, life.state)}[ConditionType.PODS_READY]
    return found.status, found.message


@ROW("S9", level="pure")
@pytest.mark.parametrize(
    ("counts", "rule"),
    [({"failed": 1}, {"failed": True}), ({"succeeded": 1}, {"completed": True})],
    ids=["failed", "completed"],
)
@pytest.mark.parametrize(("grace", "failure_grace"), [(False, 60), (True, 3)], ids=["at once", "3 s"])
def test_S9_a_pod_is_not_missed_before_and_while_it_is_made_again(
    counts: dict[str, int], rule: dict[str, Any], grace: bool, failure_grace: int
):
    life = strict(grace=grace, failure_grace=failure_grace, **rule)
    for launch in (1, 2, 3):
        life.pods("pe-1", **counts)
        life.after(seconds=10 * 2 ** (launch - 2) if launch > 1 else 0)
        assert (life.launches(), life.state.unhealthy) == ({"pe-1": launch}, None)
        life.after(seconds=60)
        assert (life.state.phase, life.state.unhealthy) == (Phase.RUNNING, None), "it has its graces to start anew"
        life.pods("pe-1", running=1)
    assert (life.attempt, life.kinds().count("remove")) == (1, 0)


@ROW("S9", level="pure")
def test_S9_one_that_is_made_again_and_does_not_come_in_time_is_missed():
    life = strict(failed=True, grace=True)
    life.pods("pe-1", failed=1)
    life.after(minutes=5)
    assert life.state.unhealthy is not None
    assert life.state.unhealthy.failure.reason == Reason.PODS_NOT_RUNNING
    life.after(minutes=1)
    assert life.kinds().count("replace") == 2, "the rule restarts that component alone"


@ROW("S9", level="pure")
def test_S9_what_is_made_again_excuses_no_other():
    life = strict(failed=True, grace=True)
    life.hold = {OperationKind.REPLACE}
    life.pods("pe-1", failed=1)
    life.pods("pe-2", pending=1)
    assert life.state.unhealthy is not None
    assert life.state.unhealthy.failure.message == "1 of 2 pods do not run"


@ROW("S9", level="pure")
def test_S9_a_pod_that_fails_again_before_all_have_run_is_not_late_while_it_backs_off():
    life = Elements(spec=strict(failed=True).spec)
    life.settle()
    life.pods("pe-0", "pe-2", running=1)
    for _ in range(6):
        life.pods("pe-1", failed=1)
        life.after(minutes=4, seconds=59)
    life.pods("pe-1", failed=1)
    assert (life.attempt, life.launches(), life.state.unhealthy) == (1, {"pe-1": 6}, None)
    life.after(minutes=1)
    life.pods("pe-1", running=1)
    assert life.state.phase is Phase.RUNNING


@ROW("S9", level="pure")
@pytest.mark.parametrize("counts", [{"failed": 1}, {}], ids=["failed", "gone"])
def test_S9_pods_are_not_told_ready_while_one_that_does_not_run_waits_to_be_made_again(counts: dict[str, int]):
    life = Elements(spec=streams(replacement=replacing(completed=True))).up()
    life.pods("pe-1", failed=1).pods("pe-1", running=1)
    assert ready(life) == (True, "")
    life.views = {**life.views, "pe-1": edit(life.views["pe-1"], complete=True, pods=PodCounts(expected=1, **counts))}
    life.tell(Observed(life.look()))
    assert "back-off" in life.waits_for
    assert ready(life) == (False, "1 of 3 pods do not run")
    explained = explain_of(life.spec, life.state, life.now)
    assert explained.why == ("Pod pe-1 failed" if counts else "Pod pe-1 has completed")
    assert explained.now == "2 of 3 pods running"


@ROW("S8", level="pure")
def test_S8_pods_are_not_told_ready_while_a_changed_configuration_makes_one_again():
    life = Elements().up()
    life.hold = {OperationKind.REPLACE}
    life.configured(config("v2"))
    assert life.state.operation is not None
    assert ready(life) == (False, "1 of 3 pods do not run")
    (told,) = [one.status for one in life.state.operation.report.conditions if one.type is ConditionType.PODS_READY]
    assert not told


@ROW("S9", level="pure")
def test_S9_nothing_wakes_for_pods_made_again_whose_lateness_no_rule_minds():
    life = Elements().up()
    life.pods("pe-1", failed=1)
    assert (life.launches(), life.waits_for) == ({"pe-1": 1}, "it is healthy")
