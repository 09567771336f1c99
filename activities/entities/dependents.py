"""Finds out whether workloads depend on an entity: only then is a terminated entity started again (row D2)."""

from __future__ import annotations

from typing import Final

from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.common import SearchAttributeKey

from holdfast import names
from holdfast.activities.entities.executions import described, memo_of
from holdfast.activities.entities.last_documents import NotNow, graph_document
from holdfast.model import Phase

_PHASE: Final = SearchAttributeKey.for_keyword(names.SA_PHASE)
_ENDED: Final = {phase.value for phase in Phase if phase.ended}


async def depended_on(client: Client, workflow_type: str, workflow_id: str) -> bool:
    """Whether an open workload depends on an entity.

    Raises:
        RPCError: if Temporal does not answer.
    """
    cluster = workflow_id.split("/")[1]
    match workflow_type:
        case names.QUEUE_WORKFLOW:
            queue = names.parse_queue_id(workflow_id)[1]
            return await _any_workload(client, cluster, f" AND {names.SA_QUEUE} = '{queue}'", names.MEMO_QUEUED)
        case names.BROKER_WORKFLOW:
            return await _any_workload(client, cluster, "", names.MEMO_SAVES)
        case names.GRAPH_WORKFLOW:
            return await _graph_has_open(client, workflow_id)
        case _:
            _, _, namespace, name = workflow_id.split("/")
            workload = await described(client, names.workflow_id(cluster, namespace, name))
            if workload is None or workload.status is not WorkflowExecutionStatus.RUNNING:
                return False
            return workload.typed_search_attributes.get(_PHASE) not in _ENDED


async def _any_workload(client: Client, cluster: str, more: str, key: str) -> bool:
    query = (
        f"WorkflowType = '{names.WORKLOAD_WORKFLOW}' AND ExecutionStatus = 'Running' "
        f"AND {names.SA_CLUSTER} = '{cluster}'{more}"
    )
    async for execution in client.list_workflows(query):
        stored = await memo_of(execution)
        if stored is None or stored.get(key):  # One whose memo cannot be read may depend on it.
            return True
    return False


async def _graph_has_open(client: Client, workflow_id: str) -> bool:
    try:
        graph, _, _, _ = await graph_document(client, workflow_id)
    except NotNow:
        return False
    for item in graph.items:
        found = await described(client, names.workflow_id(graph.cluster, graph.namespace, graph.workload(item)))
        if found is not None and found.status is WorkflowExecutionStatus.RUNNING:
            return True
    return False
