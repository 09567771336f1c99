"""Temporal's UI shows each workflow's current details; they are written when it asks for them (row E9)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from temporalio.api.sdk.v1 import WorkflowMetadata
from temporalio.client import Client, WorkflowHandle

from holdfast import names
from holdfast.model import NodeBook
from holdfast.workflows.entities.cluster_watch import ClusterWatchInput
from tests.e2e.ground.site import until
from tests.workflows.test_memories import (
    CLUSTER,
    Started,
    a_broker,
    a_graph,
    a_monitor,
    a_provisioner,
    a_queue,
    a_rendezvous,
    a_workload,
    client,
    start,
)

__all__ = ["client"]
pytestmark = [
    pytest.mark.temporal,
    pytest.mark.e2e,
    pytest.mark.timeout(120),
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.row("E9", level="e2e"),
]


def a_watch() -> Started:
    given = ClusterWatchInput(cluster=CLUSTER, cluster_uid="uid", shard_sets=((0, 1),))
    return names.CLUSTER_WATCH_WORKFLOW, names.watch_workflow_id(CLUSTER), [given]


def fresh(started: Callable[[], Started]) -> Started:
    """Return a workflow without the memory, with which it would be refused."""
    kind, workflow_id, (first, *_) = started()
    nothing = {"memory": None, "book": NodeBook(), "state": None}
    update = {name: value for name, value in nothing.items() if name in getattr(type(first), "model_fields", {})}
    if started is a_provisioner:
        return kind, workflow_id, [type(first)(cluster=first.cluster, cluster_uid=first.cluster_uid)]
    return kind, workflow_id, [first.model_copy(update=update) if update else first]


async def details(handle: WorkflowHandle[Any, Any]) -> str:
    """Return what Temporal's UI shows, which it asks for like this."""
    answer = await handle.query("__temporal_workflow_metadata", result_type=WorkflowMetadata)
    return answer.current_details


@pytest.mark.parametrize(
    ("started", "says"),
    [
        (a_workload, "- **why** creating attempt 1"),
        (a_queue, "**0 admitted, 0 waiting**"),
        (a_graph, "| a | Awaited |  |"),
        (a_broker, "**it has not looked yet**"),
        (a_rendezvous, "Attempt 1: **Forming**"),
        (a_monitor, f"Nodes of **{CLUSTER}**"),
        (a_provisioner, "**requests: 0 pending, 0 under way, 0 ended**"),
        (a_watch, f"Watches **{CLUSTER}** (`uid`) in 1 part(s)."),
    ],
    ids=lambda given: given.__name__ if callable(given) else "",
)
async def test_E9_each_workflow_says_what_it_does_where_temporals_ui_asks(
    client: Client, started: Callable[[], Started], says: str
) -> None:
    handle = await start(client, fresh(started))
    said = ""

    async def speaks() -> bool:
        nonlocal said
        said = await details(handle)
        return bool(said)

    await until(speaks, 30, "it has begun")
    assert says in said
    await handle.terminate()
