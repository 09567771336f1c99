"""The sweep's lookups: which cluster this is, what objects it has, and what Temporal reports of a workload."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final

from temporalio.api.errordetails.v1 import NamespaceNotFoundFailure
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import (
    Client,
    WorkflowExecution,
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
    WorkflowQueryFailedError,
)
from temporalio.common import SearchAttributeKey
from temporalio.service import RPCError, RPCStatusCode

from holdfast import names
from holdfast.activities.kube.client import Kube, NotFound, Object
from holdfast.activities.kube.raw import mapping
from holdfast.activities.site.site import Site
from holdfast.model import Limits, Reason
from holdfast.worker.cleanup.sweep import Found, Judgement, Left, Life, RunFact, find, judge
from holdfast.worker.reach import IdentityError
from holdfast.workflows.entities.cluster_watch import MEMO_CLUSTER_UID, MEMO_INSTALLATION

_DEADLINE: Final = timedelta(seconds=5)
_QUERY_DEADLINE: Final = timedelta(seconds=3)
_ASKED_AT_ONCE: Final = 16
_PAGE: Final = 500
_NO_ANSWER: Final = frozenset(
    {RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED, RPCStatusCode.FAILED_PRECONDITION}
)
_ATTEMPT: Final = SearchAttributeKey.for_int(names.SA_ATTEMPT)


@dataclass(frozen=True, slots=True)
class Item:
    """The objects found of one workload, and its verdict."""

    left: Left
    judgement: Judgement


@dataclass(frozen=True, slots=True)
class Survey:
    """The objects of the whole cluster, with a verdict on every workload."""

    found: Found
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Ground:
    """The cluster to sweep, and the Temporal namespace to ask."""

    client: Client
    site: Site
    watched: bool
    """Whether this Temporal namespace knows the cluster's watch, and so has the cluster's workloads."""
    managed_by: str
    """What an AppWrapper's `spec.managedBy` says that is for this installation."""


async def ground(client: Client, kube: Kube, cluster: str, installation: str, managed_by: str) -> Ground:
    """Identify the cluster and the installation, as a worker does at its start.

    Args:
        client: the client of the Temporal namespace to ask.
        kube: the client of the cluster.
        cluster: the cluster's name in workflow ids.
        installation: the installation's id; empty for the one whose worker watches this cluster.
        managed_by: what an AppWrapper's `spec.managedBy` says that is for this installation.

    Raises:
        IdentityError: if the name belongs to another cluster or installation.
        RPCError: if Temporal does not answer, or has no such namespace.
        KubeError: if the cluster does not answer, or refuses.
    """
    await client.workflow_service.describe_namespace(
        DescribeNamespaceRequest(namespace=client.namespace), timeout=_DEADLINE
    )
    uid = str((await kube.get("v1", "Namespace", "kube-system"))["metadata"]["uid"])
    watch_id = names.watch_workflow_id(cluster)
    watch = await describe(client, watch_id)
    memo: Mapping[str, Any] = await watch.memo() if watch is not None else {}
    if watch is not None and watch.status is WorkflowExecutionStatus.RUNNING:
        _same(cluster, "cluster", memo.get(MEMO_CLUSTER_UID), uid, watch_id)
        if installation:
            _same(cluster, "installation", memo.get(MEMO_INSTALLATION), installation, watch_id)
    known = str(memo.get(MEMO_INSTALLATION) or "")
    site = Site(kube, cluster, uid, installation or known or f"holdfast-{uid[:8]}", Limits())
    return Ground(client, site, watched=memo.get(MEMO_CLUSTER_UID) == uid, managed_by=managed_by)


def _same(cluster: str, what: str, bound: object, found: str, watch_id: str) -> None:
    if bound is not None and bound != found:
        raise IdentityError(
            f"cluster: the name {cluster!r} belongs to {what} {bound} in this Temporal namespace (workflow {watch_id}) "
            f"and this {what} is {found}: nothing is touched; check the kubeconfig, --cluster and --installation"
        )


async def survey(ground: Ground) -> Survey:
    """List all anchors and attempts of the cluster, and judge each workload of this installation.

    Raises:
        RPCError: if Temporal does not answer.
        KubeError: if the cluster does not answer, or refuses.
    """
    found = find(await _objects(ground.site.kube), ground.site.installation, ground.site.cluster)
    slots = asyncio.Semaphore(_ASKED_AT_ONCE)

    async def judged(left: Left) -> Item:
        async with slots:
            return Item(left, await judgement(ground, left))

    return Survey(found, tuple(await asyncio.gather(*(judged(left) for left in found.left))))


async def look(ground: Ground, left: Left) -> Left:
    """List the objects of one workload again; without anchor and attempts if all are gone."""
    labels = f"{names.LABEL_WORKLOAD_UID}={left.workload_uid}"
    objects = await _objects(ground.site.kube, left.namespace, labels)
    found = find(objects, ground.site.installation, ground.site.cluster)
    gone = replace(left, anchor=False, attempts=())
    return next((one for one in found.left if one.workload_uid == left.workload_uid), gone)


async def judgement(ground: Ground, left: Left) -> Judgement:
    """Ask Temporal about a workload, and judge its objects."""
    return judge(left, Life() if left.problem else await life(ground.client, left))


async def _objects(kube: Kube, namespace: str = "", labels: str = "") -> list[Object]:
    listed: list[Object] = []
    for kind in (names.ANCHOR_KIND, names.ATTEMPT_KIND):
        try:
            items = (await kube.list(names.API_VERSION, kind, namespace, labels=labels, limit=_PAGE))["items"]
        except NotFound:
            continue  # The cluster does not serve the kind.
        listed += [{**item, "kind": kind} for item in items]
    return listed


async def life(client: Client, left: Left) -> Life:
    """Ask Temporal about a workload: the latest run of its workflow id, and its own run.

    Raises:
        RPCError: if Temporal does not answer.
    """
    latest = await describe(client, left.workflow_id)
    if latest is None:
        return Life()
    current = await _fact(latest)
    if current.running and not current.unreadable and (not current.said or current.attempt is None):
        current = await _asked(client, latest, current)
    if current.uid == left.workload_uid or current.unreadable:
        return Life(current)
    return Life(current, await _own(client, left, latest.run_id))


async def _own(client: Client, left: Left, latest: str) -> RunFact | None:
    """Return the workload's own run, if a later workload has taken its name."""
    workflow_id = left.workflow_id.replace("\\", "\\\\").replace("'", "\\'")
    query = (
        f"WorkflowType = '{names.WORKLOAD_WORKFLOW}' AND WorkflowId = '{workflow_id}' "
        "AND ExecutionStatus != 'ContinuedAsNew'"
    )
    async for execution in client.list_workflows(query, rpc_timeout=_DEADLINE):
        if execution.run_id == latest or (await _fact(execution)).uid != left.workload_uid:
            continue
        # The list may be behind: the description of the run is authoritative.
        described = await describe(client, left.workflow_id, execution.run_id)
        if described is not None:
            return await _fact(described)
    return None


async def describe(client: Client, workflow_id: str, run_id: str | None = None) -> WorkflowExecutionDescription | None:
    """Describe a run of a workflow id, the latest if none is named; return None if Temporal knows none.

    Raises:
        RPCError: if Temporal does not answer, or does not know the namespace.
    """
    try:
        return await client.get_workflow_handle(workflow_id, run_id=run_id).describe(rpc_timeout=_DEADLINE)
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND or _is_namespace(error):
            raise
        return None


def _is_namespace(error: RPCError) -> bool:
    """Whether the Temporal namespace itself was not found."""
    return any(detail.Is(NamespaceNotFoundFailure.DESCRIPTOR) for detail in error.grpc_status.details)


async def _fact(execution: WorkflowExecution) -> RunFact:
    word = execution.status.name.replace("_", " ").title().replace(" ", "") if execution.status else "Unknown"
    running = execution.status is WorkflowExecutionStatus.RUNNING
    first = execution.raw_info.first_run_id or execution.run_id
    try:
        memo: Mapping[str, Any] = await execution.memo()
    except Exception as error:  # A missing codec can raise any error.
        return RunFact("", running, word, unreadable=" ".join(str(error).split())[:200] or type(error).__name__)
    status = mapping(memo.get(names.MEMO_STATUS))
    said = str(memo.get(names.MEMO_UID) or status.get("uid") or "")
    told = (execution.typed_search_attributes.get(_ATTEMPT), status.get("attempt"))
    attempts = [one for one in told if isinstance(one, int)]
    return RunFact(
        uid=said or first,
        running=running,
        word=word,
        said=bool(said),
        phase=str(status.get("phase") or ""),
        held=status.get("reason") == Reason.HELD.value,
        attempt=max(attempts, default=None),
    )


async def _asked(client: Client, latest: WorkflowExecutionDescription, fact: RunFact) -> RunFact:
    """Query the workflow for what its memo lacks; without an answer, return the facts unchanged."""
    handle = client.get_workflow_handle(latest.id, run_id=latest.run_id)
    try:
        async with asyncio.timeout(_QUERY_DEADLINE.total_seconds()):
            status = mapping(await handle.query(names.QUERY_STATUS, rpc_timeout=_QUERY_DEADLINE))
    except (TimeoutError, WorkflowQueryFailedError):
        return fact
    except RPCError as error:
        if error.status in _NO_ANSWER:
            return fact
        raise
    uid, attempt = status.get("uid"), status.get("attempt")
    if not isinstance(uid, str) or not isinstance(attempt, int):
        return fact
    held = status.get("reason") == Reason.HELD.value
    return replace(fact, uid=uid, said=True, attempt=attempt, held=held)
