"""The session with Temporal: submit, find and list workloads."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, Final, Self, cast

from temporalio.client import Client, WorkflowExecution
from temporalio.common import SearchAttributeKey

from holdfast import names
from holdfast.activities.entities.executions import word_for
from holdfast.client import broker as brokers
from holdfast.client import graph as graphs
from holdfast.client import provisioner as provisioners
from holdfast.client import queue as queues
from holdfast.client.broker import BrokerRun
from holdfast.client.connection import Place, reached, refusals
from holdfast.client.graph import GraphRun
from holdfast.client.provisioner import ProvisionerRun
from holdfast.client.queue import Directory, QueueRun
from holdfast.client.run import Run
from holdfast.client.submission import Begun, begin, check_secrets, find
from holdfast.client.views import Summary
from holdfast.errors import HoldfastError, Undecodable, WorkloadNotFound
from holdfast.model import NodeBook, Phase, Workload
from holdfast.model.entities.broker import Broker
from holdfast.model.entities.graph import Graph
from holdfast.model.entities.queue import Queue
from holdfast.model.life.ledger import Account, Ledger, together
from holdfast.model.selector import Selector

_SETTLING: Final = 0.05
_PAGE: Final = 1000
_HISTORIES: Final = 8
"""How many histories are read at the same time."""


@dataclass(frozen=True)
class Holdfast:
    """Workloads of one Temporal namespace.

    Example:
        ```python
        async with Holdfast.connect() as h:
            run = await h.submit(workload)
            await run.suspend(reason="making room", wait=True)
            status = await run.result()
        ```
    """

    client: Client
    place: Place
    cluster: str | None = None
    """The cluster to use if only a name is given."""

    @classmethod
    @asynccontextmanager
    async def connect(
        cls,
        address: str | None = None,
        namespace: str | None = None,
        cluster: str | None = None,
        client: Client | None = None,
    ) -> AsyncGenerator[Self]:
        """Connect to Temporal and yield a session with it.

        Args:
            address: `host:port`, or several with commas between them; else TEMPORAL_ADDRESS, else the profile of
                Temporal's own configuration file, else localhost:7233. TLS and API keys come from the same places.
            namespace: Temporal namespace; else TEMPORAL_NAMESPACE, else `default`.
            cluster: The cluster to use if only a name is given; else HOLDFAST_CLUSTER.
            client: A Temporal client to use as it is, with its codec, address and namespace.

        Raises:
            NotReachable: if Temporal does not answer within a few seconds; the error names the address and a remedy.
        """
        async with AsyncExitStack() as stack:
            if client is None:
                client, place = await stack.enter_async_context(reached(address, namespace))
            else:
                place = Place(target=client.service_client.config.target_host, namespace=client.namespace)
            try:
                yield cls(client=client, place=place, cluster=cluster or os.environ.get("HOLDFAST_CLUSTER") or None)
            finally:
                # If the program ends right after its last call, a client thread that still holds the interpreter
                # crashes it (temporalio/sdk-python#300).
                await asyncio.sleep(_SETTLING)

    async def submit(self, workload: Workload, *, again: bool = False) -> Run:
        """Start a workload, or return the run that already runs it.

        Args:
            workload: The workload to start. This method sets its uid and time of submission.
            again: Whether to start anew if an earlier run of this workload has ended.

        Returns:
            The run. If the same workload (same specification) is already running, that run.

        Raises:
            SpecConflict: if a workload of this name is running with another specification.
            AlreadyEnded: if it has ended, and `again` is not given.
            InvalidWorkload: if its cluster has admission queues, but none of the name that it gives.
            NotReachable: if Temporal does not answer.
        """
        check_secrets(self.client, workload.components, f"workload {workload.name}")
        placed = await self._queues.placed(workload)
        return self._run(await begin(self.client, self.place, placed, again=again))

    async def submit_graph(self, graph: Graph, workloads: Sequence[Workload], *, again: bool = False) -> GraphRun:
        """Start a graph of workloads. Each begins once the workloads that it comes after have ended (row L31).

        To continue an interrupted submission, submit the same graph again, as often as needed.

        Args:
            graph: Its nodes, and what each waits for.
            workloads: All of its workloads, each with its place (`holdfast.formats.graph.read_graph` reads both).
            again: Whether to start anew if an earlier run of this graph, or of a workload of it, has ended.

        Raises:
            SpecConflict: if a graph of this name is under way with other nodes or workloads.
            AlreadyEnded: if the graph, or one of its workloads, has ended, and `again` is not given.
            InvalidWorkload: if its cluster has admission queues, but none of the name that one of its workloads gives.
            NotReachable: if Temporal does not answer.
        """
        for one in workloads:
            check_secrets(self.client, one.components, f"workload {one.name}")
        placed = [await self._queues.placed(one) for one in workloads]
        return await graphs.submit(self.client, self.place, graph, placed, again=again)

    def graph(self, name: str, namespace: str = "default", cluster: str | None = None) -> GraphRun:
        """Return a graph by its name, without checking that it exists."""
        return GraphRun(self.client, self.place, names.graph_id(self.require_cluster(cluster), namespace, name))

    async def apply_queue(self, queue: Queue) -> QueueRun:
        """Create an admission queue, or change the quota, strategy or stop policy of the existing one (row L9).

        A new quota evicts no admitted workload. Workloads that were submitted before a queue of their name existed do
        not belong to it: they have begun by themselves.

        Raises:
            HoldfastError: if it exists, and no worker answers for it.
            NotReachable: if Temporal does not answer.
        """
        self._queues.forget()
        return await queues.apply(self.client, self.place, queue)

    def queue(self, name: str, cluster: str | None = None) -> QueueRun:
        """Return an admission queue by its name, without checking that it exists."""
        return QueueRun(self.client, self.place, names.queue_id(self.require_cluster(cluster), name))

    async def queues(self, cluster: str | None = None) -> list[QueueRun]:
        """Return the existing admission queues of a cluster, sorted by name."""
        return await queues.of_cluster(self.client, self.place, self.require_cluster(cluster))

    async def apply_broker(self, broker: Broker) -> BrokerRun:
        """Create a cluster's checkpoint broker, or change the configuration of the existing one (row L11).

        Raises:
            HoldfastError: if it exists, and no worker answers for it.
            NotReachable: if Temporal does not answer.
        """
        return await brokers.apply(self.client, self.place, broker)

    def broker(self, cluster: str | None = None) -> BrokerRun:
        """Return a cluster's checkpoint broker, without checking that it exists."""
        return BrokerRun(self.client, self.place, names.broker_id(self.require_cluster(cluster)))

    def provisioner(self, cluster: str | None = None) -> ProvisionerRun:
        """Return the provisioner of a cluster's nodes, without checking that it exists (row L15)."""
        return ProvisionerRun(self.client, self.place, self.require_cluster(cluster))

    async def node_book(self, cluster: str | None = None) -> NodeBook | None:
        """Return what a cluster's node monitor knows about unhealthy nodes; None if the cluster has no node monitor.

        Raises:
            NotReachable: if Temporal does not answer.
        """
        return await provisioners.node_book(self.client, self.place, self.require_cluster(cluster))

    async def get(self, name: str, namespace: str = "default", cluster: str | None = None) -> Run:
        """Find a workload's latest run, open or closed.

        Args:
            name: Its name; `KIND/NAME`, as `jobset/train`, for a custom resource of that kind alone.
            namespace: Its Kubernetes namespace.
            cluster: Its cluster; by default the session's.

        Raises:
            WorkloadNotFound: if there is none, or Temporal no longer knows it.
            HoldfastError: if no cluster is named, or several workloads have this name.
        """
        within, (kind, _, own) = self.require_cluster(cluster), name.rpartition("/")
        kinds = (kind,) if kind else ("", *names.KINDS_IN_IDS)
        ids = [names.workflow_id(within, namespace, own, one) for one in kinds]
        found = [one for one in await asyncio.gather(*(find(self.client, self.place, id_) for id_ in ids)) if one]
        if not found:
            raise WorkloadNotFound(ids[0])
        if len(found) > 1:
            several = ", ".join(one.workflow_id for one in found)
            raise HoldfastError(
                f"{namespace}/{own} is the name of {len(found)} workloads ({several}): give the kind, as "
                f"{namespace}/{kinds[-1]}/{own}, or {namespace}/appwrapper/{own} for the one whose id has none"
            )
        return self._run(found[0])

    def run_of(self, summary: Summary) -> Run:
        """Return the run of a workload that was listed; a later submission of its name is another one."""
        return Run(self.client, self.place, summary.workflow_id, summary.uid, summary.run_id)

    async def list(
        self,
        *,
        cluster: str | None = None,
        namespace: str | None = None,
        phase: Phase | str | None = None,
        queue: str | None = None,
        labels: Selector | None = None,
        running: bool | None = None,
        query: str | None = None,
        limit: int | None = None,
        foreign: Callable[[str], None] | None = None,
    ) -> AsyncIterator[Summary]:
        """Yield a summary of each workload that matches, from Temporal's visibility store and in its order.

        Temporal lists running workflows first, by their start, then those that have ended, by their end.

        Args:
            cluster: Only workloads of this cluster; by default of all.
            namespace: Only workloads of this Kubernetes namespace.
            phase: Only workloads in this phase.
            queue: Only workloads of this queue.
            labels: Only workloads with these labels. Temporal has no index of them: this reads all that match the rest.
            running: Only workloads whose workflow is running (True) or over (False).
            query: A further condition in Temporal's own list filter language.
            limit: The highest number of workloads.
            foreign: Called with the id of each workflow of type `Workload` that is not Holdfast's. These are left out
                (row D54).
        """
        terms = _terms(cluster, namespace, phase, queue, running, query)
        with refusals(self.place):
            found, size = 0, _PAGE if limit is None or labels is not None else min(limit, _PAGE)
            async for execution in self.client.list_workflows(terms, page_size=size):
                summary = await _summary(execution)
                if summary is None:
                    if foreign is not None:
                        foreign(execution.id)
                    continue
                if labels is not None and not labels.matches(summary.labels):
                    continue
                yield summary
                found += 1
                if found == limit:
                    return

    async def account(
        self,
        *,
        cluster: str | None = None,
        namespace: str | None = None,
        queue: str = "",
        node: str = "",
        cause: str = "",
        limit: int = 100,
    ) -> Account:
        """Return what the time of a cluster's newest workloads was spent on, together (row P5).

        This reads the whole history of each.

        Args:
            cluster: The cluster; by default the session's.
            namespace: Only workloads of this Kubernetes namespace.
            queue: Only workloads of this queue.
            node: Only time that is the price of failures on this node.
            cause: Only time that is the price of this failure class or reason.
            limit: The highest number of workloads. The notes say whether there are more, and whose history is unread.
        """
        within = self.require_cluster(cluster)
        listed = self.list(cluster=within, namespace=namespace, queue=queue or None, limit=limit + 1)
        found = [one async for one in listed]
        notes = [f"Only the newest {limit} workloads are counted."] if len(found) > limit else []
        turns = asyncio.Semaphore(_HISTORIES)

        async def of(one: Summary) -> Ledger | None:
            async with turns:
                try:
                    return await Run(self.client, self.place, one.workflow_id, one.uid, one.run_id).ledger()
                except HoldfastError as error:
                    notes.append(f"{one.namespace}/{one.name} is left out: {error}")
                    return None

        ledgers = await asyncio.gather(*map(of, found[:limit]))
        counted = [one for one in ledgers if one is not None]
        return together(counted, queue=queue, node=node, cause=cause, notes=tuple(notes))

    async def count(
        self, *, cluster: str | None = None, namespace: str | None = None, phase: Phase | str | None = None
    ) -> int:
        """Return how many workloads match, from Temporal's visibility store. The arguments are those of `list`."""
        with refusals(self.place):
            counted = await self.client.count_workflows(_terms(cluster, namespace, phase))
        return counted.count

    def require_cluster(self, cluster: str | None = None) -> str:
        """Return the given cluster, or the session's.

        Raises:
            HoldfastError: if neither is set.
        """
        chosen = cluster or self.cluster
        if not chosen:
            raise HoldfastError("which cluster? Set HOLDFAST_CLUSTER, or give --cluster (cluster=...)")
        return chosen

    @cached_property
    def _queues(self) -> Directory:
        return Directory(self.client, self.place)

    def _run(self, begun: Begun) -> Run:
        return Run(self.client, self.place, begun.workflow_id, begun.uid, begun.run_id)


def _terms(
    cluster: str | None,
    namespace: str | None,
    phase: Phase | str | None,
    queue: str | None = None,
    running: bool | None = None,
    query: str | None = None,
) -> str:
    """Return the workloads that match as a condition in Temporal's list filter language."""
    terms = [f"WorkflowType = {_quoted(names.WORKLOAD_WORKFLOW)}"]
    wanted = {
        names.SA_CLUSTER: cluster,
        names.SA_NAMESPACE: namespace,
        names.SA_PHASE: str(phase) if phase is not None else None,
        names.SA_QUEUE: queue,
    }
    terms += [f"{key} = {_quoted(value)}" for key, value in wanted.items() if value is not None]
    if running is not None:
        terms.append(f"ExecutionStatus {'=' if running else '!='} 'Running'")
    else:
        terms.append("ExecutionStatus != 'ContinuedAsNew'")
    if query:
        terms.append(f"({query})")
    return " AND ".join(terms)


def _quoted(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _texts(labels: object) -> dict[str, str]:
    """Return a memo's labels as far as they are texts: anyone may have written the memo."""
    given = cast("dict[object, object]", labels) if isinstance(labels, dict) else {}
    return {key: value for key, value in given.items() if isinstance(key, str) and isinstance(value, str)}


def _time(given: object) -> datetime | None:
    with suppress(ValueError, TypeError):
        return datetime.fromisoformat(str(given)) if given else None
    return None


async def _summary(execution: WorkflowExecution) -> Summary | None:
    """Return a workload's summary; None if the workflow is not Holdfast's and only has the same type."""
    try:
        cluster, namespace, name = names.parse_workflow_id(execution.id)
    except ValueError:
        return None
    unreadable = ""
    try:
        memo = await execution.memo()
    except Exception as error:  # The codec is the user's and may raise any error.
        memo = dict[str, Any]()
        unreadable = str(error) if isinstance(error, Undecodable) else ""
    attributes = execution.typed_search_attributes
    recorded = memo.get(names.MEMO_STATUS)
    status = cast("dict[str, Any]", recorded) if isinstance(recorded, dict) else {}
    labels = memo.get(names.MEMO_LABELS)

    def keyword(key: str) -> str:
        return attributes.get(SearchAttributeKey.for_keyword(key)) or ""

    return Summary(
        workflow_id=execution.id,
        run_id=execution.run_id,
        cluster=cluster,
        namespace=namespace,
        name=name,
        uid=str(memo.get(names.MEMO_UID, "")),
        kind=keyword(names.SA_KIND) or str(memo.get(names.MEMO_KIND, "")),
        queue=keyword(names.SA_QUEUE),
        phase=keyword(names.SA_PHASE) or str(status.get("phase", "")),
        reason=keyword(names.SA_REASON) or str(status.get("reason", "")),
        message=str(status.get("message", "")) or unreadable,
        attempt=attributes.get(SearchAttributeKey.for_int(names.SA_ATTEMPT)) or 0,
        restarts=attributes.get(SearchAttributeKey.for_int(names.SA_RESTARTS)) or 0,
        labels=_texts(labels),
        submitted_at=_time(status.get("submittedAt")),
        started_at=execution.start_time,
        closed_at=execution.close_time,
        spec_hash=str(memo.get(names.MEMO_SPEC_HASH, "")),
        execution=word_for(execution),
    )
