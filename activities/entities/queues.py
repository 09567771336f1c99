"""Looks at an admission queue's cluster for workloads that ended without telling the queue (row L9)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final, NamedTuple

from temporalio import activity
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.common import SearchAttributeKey
from temporalio.service import RPCError, RPCStatusCode

from holdfast import names
from holdfast.activities.entities.executions import memo_of
from holdfast.activities.kube.client import NotFound
from holdfast.activities.kube.errors import Forbidden, UnknownKind
from holdfast.activities.site.site import Site
from holdfast.model import Phase
from holdfast.model.calls.queue import LookQueueInput, QueueHolder, SeenQueue

KUEUE: Final = (("kueue.x-k8s.io/v1beta2", "LocalQueue"), ("kueue.x-k8s.io/v1beta1", "LocalQueue"))
_DEADLINE: Final = timedelta(seconds=5)
_PHASE: Final = SearchAttributeKey.for_keyword(names.SA_PHASE)
_NOT_BEGUN: Final = {None, Phase.PENDING.value, Phase.SUSPENDED.value}


class _Listed(NamedTuple):
    """An open workload of a queue."""

    uid: str
    begun: bool


_NOBODY: Final = _Listed("", begun=False)


async def look_queue(site: Site, client: Client, given: LookQueueInput) -> SeenQueue:
    """Find out which workloads of a queue still exist (see `LookQueueInput`).

    Args:
        site: the cluster.
        client: of the Temporal namespace that the queue's workflows are in.
        given: the queue, and the workloads it has admitted.

    Raises:
        RPCError: if Temporal does not answer.
        KubeError: if the cluster does not answer.
    """
    workloads, gone = await _open(client, given), list[str]()
    for holder in given.holders:
        activity.heartbeat()
        # The list may lag behind: for a workload that it does not name, the workflow itself is read.
        listed = workloads.get(holder.workload, _NOBODY).uid == holder.uid
        if not listed and not await _lives(client, holder) and not await _holds(site, holder):
            gone.append(holder.uid)
    namespaces = await _kueue_namespaces(site)
    return SeenQueue(
        kueue=namespaces is None,
        kueue_namespaces=namespaces or (),
        workloads=tuple(workloads),
        gone=tuple(gone),
        begun=_begun(workloads, given.holders) if given.asks_begun else (),
    )


def _begun(workloads: dict[str, _Listed], holders: Sequence[QueueHolder]) -> tuple[str, ...]:
    held = {one.uid for one in holders}
    return tuple(one.uid for one in workloads.values() if one.begun and one.uid not in held)


async def _open(client: Client, given: LookQueueInput) -> dict[str, _Listed]:
    """Return each open workload of this queue, by its workflow's id."""
    query = (
        f"WorkflowType = '{names.WORKLOAD_WORKFLOW}' AND ExecutionStatus = 'Running' "
        f"AND {names.SA_CLUSTER} = '{given.cluster}' AND {names.SA_QUEUE} = '{given.queue}'"
    )
    found = dict[str, _Listed]()
    async for execution in client.list_workflows(query):
        activity.heartbeat()
        memo = await memo_of(execution)
        # One whose memo cannot be read is left out: if it holds quota here, it is read by itself.
        if memo is not None and memo.get(names.MEMO_QUEUED):
            phase = execution.typed_search_attributes.get(_PHASE)
            found[execution.id] = _Listed(str(memo.get(names.MEMO_UID, "")), phase not in _NOT_BEGUN)
    return found


async def _lives(client: Client, holder: QueueHolder) -> bool:
    """Whether the workflow of that workload is open, and not certainly that of a later one of its name."""
    try:
        description = await client.get_workflow_handle(holder.workload).describe(rpc_timeout=_DEADLINE)
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        return False
    if description.status is not WorkflowExecutionStatus.RUNNING:
        return False
    memo = await memo_of(description)
    if memo is None:
        return True  # It keeps its quota: whose it is, is not known.
    # A workload that was started with only a document may have no uid: the id of its first run is its uid.
    uid = memo.get(names.MEMO_UID) or description.raw_description.workflow_execution_info.first_run_id
    return uid == holder.uid


async def _holds(site: Site, holder: QueueHolder) -> bool:
    """Whether a workload has a pod, or an attempt that could still make one."""
    _, namespace, _ = names.parse_workflow_id(holder.workload)
    labels = f"{names.LABEL_WORKLOAD_UID}={holder.uid}"
    for api_version, kind in (("v1", "Pod"), (names.API_VERSION, names.ATTEMPT_KIND)):
        try:
            if (await site.kube.list(api_version, kind, namespace, labels=labels))["items"]:
                return True
        except NotFound:
            continue  # The cluster does not serve the kind.
        except Forbidden:  # Unknown is not gone; but a namespace that was deleted took the right to read it along.
            return await _is_there(site, namespace)
    return False


async def _is_there(site: Site, namespace: str) -> bool:
    try:
        return await site.kube.find("v1", "Namespace", namespace) is not None
    except Forbidden:
        return True


async def _kueue_namespaces(site: Site) -> tuple[str, ...] | None:
    """Return the namespaces that have a queue of Kueue's; None if the cluster serves them, and does not show them."""
    for api_version, kind in KUEUE:
        try:
            found = (await site.kube.list(api_version, kind))["items"]
        except (NotFound, UnknownKind):
            continue
        except Forbidden:
            return None
        return tuple(sorted({str(one["metadata"]["namespace"]) for one in found}))
    return ()
