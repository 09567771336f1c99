"""Moments of a workload's life by name, for tables of what is told, counted and carried out in each of them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from holdfast.model import (
    Action,
    ActionKind,
    Budget,
    Checkpoint,
    CheckpointProtocol,
    Match,
    OperationKind,
    PodCounts,
    Policy,
    Remnant,
    Rule,
    Scope,
    Timings,
)
from holdfast.model.calls.cluster import Removed
from holdfast.policy.values.edit import edit
from holdfast.policy.values.events import Cancelled, CheckpointAsked, Observed, Suspended
from tests.policy.lives.elements import Elements, streams
from tests.policy.lives.life import RULES, Life, workload

HOUR = timedelta(hours=1)


def _failed(life: Life) -> Life:
    """Use up the budget, and fail."""
    for _ in range(4):
        life.runs().sees(failed=1, job_failed=True).after(seconds=90)
    return life


def _ruled(**action: object) -> Life:
    """A pod has failed, and a rule says this of it."""
    rule = Rule(name="mine", match=Match(scopes=(Scope.MEMBER,)), action=Action.model_validate(action))
    budgets = (Budget(name="restart", limit=3), Budget(name="spare", limit=None))
    spec = workload(policy=Policy(rules=(rule, *RULES), timings=Timings(), budgets=budgets))
    return Life(spec=spec).runs().sees(running=1, failed=1)


def _alone(*, used: int = 0, **action: object) -> Life:
    """A pod of three has failed, and a rule says that it is made again alone."""
    budgets = (
        Budget(name="restart", limit=2),
        Budget(name="spare", limit=None),
        Budget(name="member", limit=1, scope=Scope.MEMBER),
    )
    rule = Rule(name="alone", action=Action.model_validate({"unit": Scope.COMPONENT, **action}))
    life = Elements(spec=streams(3, Policy(timings=Timings(), rules=(rule,), budgets=budgets))).up()
    for _ in range(used):
        life.pods("pe-1", failed=1)
        life.after(seconds=60)
        life.pods("pe-1", running=1)
    return life.pods("pe-1", failed=1)


def _forcing(*left: Remnant) -> Life:
    """What is left after the grace is being forced out."""
    life = Life(hold={OperationKind.REMOVE, OperationKind.FORCE_REMOVE}).runs().tell(Suspended("for room"))
    life.now += timedelta(minutes=10)
    life.hold = {OperationKind.FORCE_REMOVE}
    life.tell_result(Removed(gone=False, remnants=left, remnants_total=len(left)))
    return life.settle()


def _interrupted() -> Life:
    life = Life(hold={OperationKind.CREATE}).settle()
    assert life.state.operation is not None
    life.state = edit(life.state, operation=edit(life.state.operation, interrupted=True))
    return life


def _held() -> Life:
    life = Life().runs()
    return life.tell(Observed(life.look().model_copy(update={"attempt": 4, "owner_uid": "another"})))


def _seen(**view: object) -> Life:
    """What runs is seen as this all at once."""
    life = Life().runs()
    seen = life.look()
    views = {name: edit(one, **view) for name, one in seen.components.items()}
    return life.tell(Observed(edit(seen, components=views)))


def _saving() -> Life:
    spec = edit(workload(), checkpoint=Checkpoint(protocol=CheckpointProtocol.ANNOTATION))
    return Life(spec=spec, hold={OperationKind.CHECKPOINT}).runs().tell(CheckpointAsked("nightly"))


def _reset(*kinds: OperationKind) -> Life:
    return Life(hold=set(kinds)).runs().sees(failed=1, job_failed=True)


def _deleted() -> Elements:
    """A pod of a stream is being made again, since it was deleted."""
    return Elements(hold={OperationKind.REPLACE}).up().deleted("pe-1")


MOMENTS: dict[str, Callable[[], Life]] = {
    "submitted": Life,
    "preparing": lambda: Life(hold={OperationKind.PREPARE}).settle(),
    "preparing a stream": lambda: Elements(hold={OperationKind.PREPARE}).settle(),
    "creating": lambda: Life(hold={OperationKind.CREATE}).settle(),
    "creating a stream": lambda: Elements(hold={OperationKind.CREATE}).settle(),
    "creating a stream with a timeout": lambda: Elements(
        spec=streams(timings=Timings(submission_timeout=HOUR)), hold={OperationKind.CREATE}
    ).settle(),
    "breaking off": _interrupted,
    "no news yet": lambda: Life().settle(),
    "pods are not there": lambda: Life().settle().sees(),
    "pods are pending": lambda: Life().settle().sees(pending=2),
    "pods were not created": lambda: Life().settle().sees().after(minutes=1),
    "pods did not run": lambda: Life().settle().sees(running=1, pending=1).after(minutes=5),
    "running": lambda: Life().runs(),
    "saving": _saving,
    "its kind is not served": lambda: _seen(unserved=True),
    "scaled to nothing": lambda: _seen(released=2, pods=PodCounts(expected=0)),
    "a pod has gone": lambda: Life().runs().sees(running=1),
    "a pod has gone and may": lambda: (
        Life(
            spec=workload(policy=Policy(rules=(Rule(name="let", action=Action(kind=ActionKind.IGNORE, charge=None)),)))
        )
        .runs()
        .sees(running=1)
    ),
    "a pod has failed": lambda: Life().runs().sees(running=1, failed=1),
    "a pod has failed for good": lambda: _ruled(kind=ActionKind.FAIL, charge=None),
    "a pod has failed, uncharged": lambda: _ruled(charge=None),
    "a pod has failed, unlimited": lambda: _ruled(charge="spare"),
    "a pod is to be made again": lambda: _alone(used=1),
    "a pod is to be made again, unlimited": lambda: _alone(used=1, charge="spare"),
    "a pod is to be made again, uncharged": lambda: _alone(charge=None),
    "a pod is to be made again, member": lambda: _alone(charge="member"),
    "a pod has used up its own": lambda: _alone(used=1, charge="member"),
    "looking": lambda: Life(hold={OperationKind.OBSERVE}).runs().sees(running=1, failed=1).after(minutes=1),
    "making again": _deleted,
    "resetting": lambda: _reset(OperationKind.REMOVE),
    "pausing": lambda: _reset().after(seconds=30),
    "suspending": lambda: Life(hold={OperationKind.REMOVE}).runs().tell(Suspended("for room")),
    "preempted": lambda: Life(hold={OperationKind.REMOVE}).runs().tell(Suspended(preempted=True)),
    "suspended": lambda: Life().runs().tell(Suspended("for room")),
    "forcing": lambda: _forcing(Remnant(kind="Pod", name="train-0")),
    "forcing by a finalizer": lambda: _forcing(
        *(Remnant(kind="Pod", name=f"train-{n}", finalizers=("b.io/x", "a.io/y")) for n in range(4))
    ),
    "forcing on a dead node": lambda: _forcing(Remnant(kind="Pod", name="train-0", node="node-7", unreachable=True)),
    "cancelling": lambda: Life(hold={OperationKind.REMOVE}).runs().tell(Cancelled("enough")),
    "cancelled": lambda: Life().runs().tell(Cancelled("enough")),
    "succeeded": lambda: Life().runs().sees(succeeded=2, complete=True),
    "failed": lambda: _failed(Life()),
    "failed and kept": lambda: _failed(Life(spec=workload(timings={"deletion_on_failure_grace_period": HOUR}))),
    "held": _held,
}


def moment(name: str) -> Life:
    """Return a life at that moment."""
    return MOMENTS[name]()
