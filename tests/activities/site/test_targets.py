"""Each activity's input says whose workload or entity it touches, so that another workflow is refused (row X2)."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from typing import Any, get_type_hints

import pytest
from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput

from holdfast import names
from holdfast.activities.cluster import ClusterActivities
from holdfast.model import OperationKind
from holdfast.model.calls.broker import AskInput, WeighInput
from holdfast.model.calls.cluster import LookNodesInput, MarkNodesInput, ResetInput, Target, WatchInput, WatchNodesInput
from holdfast.model.calls.gang import GangBegin, HubInput
from holdfast.model.calls.provisioner import CheckProvisionerInput, EnlistInput, ProvisionInput
from holdfast.model.calls.queue import LookQueueInput
from holdfast.model.entities.broker import Broker
from holdfast.model.entities.nodes import NodeTimings
from holdfast.model.entities.provisioner import NodeAction, NodeRequest
from holdfast.model.gang.state import Gang
from holdfast.worker.gangs.hub import GangActivities
from holdfast.worker.nodes.watch import NodeWatchActivities
from holdfast.worker.owners import OWNERS, Owner, OwnersOnly
from holdfast.worker.watch.watch import WatchActivities

pytestmark = pytest.mark.row("X2", level="pure")
REGISTERED = (ClusterActivities, WatchActivities, NodeWatchActivities, GangActivities)
"""Whatever has the activities of a worker (`worker.roles.Site`)."""
HERE: dict[str, Any] = {"cluster": "c", "cluster_uid": "u"}
REQUEST = NodeRequest(number=1, node="n", action=NodeAction.POWER_OFF, force=True, at=datetime(2026, 1, 1, tzinfo=UTC))
MINE = {
    names.ACTIVITY_WATCH: (WatchInput(**HERE, shards=(0, 255)), "ClusterWatch", "cluster-watch/c"),
    names.ACTIVITY_WATCH_NODES: (WatchNodesInput(**HERE, timings=NodeTimings()), "NodeMonitor", "node-monitor/c"),
    names.ACTIVITY_LOOK_NODES: (LookNodesInput(**HERE, nodes=("n",)), "NodeMonitor", "node-monitor/c"),
    names.ACTIVITY_MARK_NODES: (MarkNodesInput(**HERE, nodes=()), "NodeMonitor", "node-monitor/c"),
    names.ACTIVITY_ENLIST: (EnlistInput(**HERE, request=REQUEST), "Provisioner", "provisioner/c"),
    names.ACTIVITY_PROVISION: (ProvisionInput(**HERE, request=REQUEST), "Provisioner", "provisioner/c"),
    names.ACTIVITY_CHECK_PROVISIONER: (CheckProvisionerInput(**HERE), "Provisioner", "provisioner/c"),
    names.ACTIVITY_LOOK_QUEUE: (LookQueueInput(cluster="c", queue="q", holders=()), "Queue", "queue/c/q"),
    names.ACTIVITY_WEIGH: (WeighInput(broker=Broker(cluster="c")), "CheckpointBroker", "checkpoint-broker/c"),
    names.ACTIVITY_ASK: (
        AskInput(workload="workload/c/ns/jobset/w", note="why"),
        "CheckpointBroker",
        "checkpoint-broker/c",
    ),
    names.ACTIVITY_BEGIN_GANG: (
        GangBegin(
            **HERE,
            namespace="ns",
            workload="w",
            workload_uid="uid",
            workflow_id="workload/c/ns/jobset/w",
            submitted_at=datetime(2026, 1, 1, tzinfo=UTC),
            attempt=1,
            gang=Gang(min=1, max=2),
        ),
        "Workload",
        "workload/c/ns/jobset/w",
    ),
    names.ACTIVITY_GANG_HUB: (
        HubInput(**HERE, namespace="ns", workload="w", workload_uid="uid", workflow_id="rendezvous/c/ns/w"),
        "Rendezvous",
        "rendezvous/c/ns/w",
    ),
}
"""What each activity without a target may be given, and the type and the id of the only workflow that may ask."""


def inputs() -> dict[str, Any]:
    """Return the type of the input of each activity of a worker, by name."""
    found: dict[str, Any] = {}
    for holder in REGISTERED:
        for method in vars(holder).values():
            definition = activity._Definition.from_callable(method)  # pyright: ignore[reportPrivateUsage]
            if definition is not None and definition.name:
                hints = get_type_hints(method)
                found[definition.name] = next(hint for name, hint in hints.items() if name != "return")
    return found


def test_X2_each_operation_is_registered():
    assert set(OperationKind) <= inputs().keys()


@pytest.mark.parametrize("name", sorted(inputs()))
def test_X2_each_activity_says_whose_it_is_where_the_worker_looks_for_it(name: str):
    given = inputs()[name]
    if name in OWNERS:
        assert type(MINE[name][0]) is given
        assert "target" not in given.model_fields
        return
    assert given is ResetInput or given.model_fields["target"].annotation is Target


def test_X2_a_reset_is_of_the_workload_that_it_removes():
    hints = get_type_hints(ResetInput.target.fget)
    assert hints["return"] is Target


class _Carried(ActivityInboundInterceptor):
    """Stands for the activity itself."""

    def __init__(self) -> None:
        self.times = 0

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        self.times += 1


async def ask(name: str, given: Any, asks: Owner) -> int:
    """Have a workflow ask for an activity; return how often it is carried out."""
    carried = _Carried()
    environment = ActivityEnvironment()
    environment.info = dataclasses.replace(
        environment.info, activity_type=name, workflow_type=asks.type, workflow_id=asks.id
    )
    input = ExecuteActivityInput(fn=print, args=[given], executor=None, headers={})
    await environment.run(OwnersOnly().intercept_activity(carried).execute_activity, input)
    return carried.times


async def refuse(name: str, given: Any, asks: Owner) -> None:
    """Have a workflow ask for an activity that is not its own."""
    with pytest.raises(ApplicationError) as error:
        await ask(name, given, asks)
    assert (error.value.type, error.value.non_retryable) == (names.ERROR_REFUSED, True)
    assert f"workflow {asks.id!r} of type {asks.type} may not {name}" in error.value.message


def test_X2_each_activity_of_an_entity_is_tried_here():
    assert MINE.keys() == OWNERS.keys()


@pytest.mark.parametrize("name", sorted(MINE))
async def test_X2_only_the_entity_that_owns_it_may_ask_for_an_activity(name: str):
    given, kind, place = MINE[name]
    assert await ask(name, given, Owner(kind, place)) == 1
    for other in (Owner("Mine", "mine"), Owner("Mine", place), Owner(kind, "mine"), Owner(kind, f"{place}2")):
        await refuse(name, given, other)


async def test_X2_nobody_owns_a_workload_whose_id_is_none():
    given = AskInput(workload="provisioner/c", note="why")
    await refuse(names.ACTIVITY_ASK, given, Owner("CheckpointBroker", "checkpoint-broker/c"))
