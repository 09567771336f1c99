"""The session with Temporal: submit, find and list workloads."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final, Self

from temporalio.client import Client

from holdfast import names
from holdfast.client.connection import Place, reached, refusals
from holdfast.client.summary import Summary, summarize
from holdfast.errors import HoldfastError, WorkloadNotFound

if TYPE_CHECKING:  # What a method needs is imported in it: a list of workloads loads little else (row E13).
    from holdfast.client.entities.broker import BrokerRun
    from holdfast.client.entities.graph import GraphRun
    from holdfast.client.entities.provisioner import ProvisionerRun
    from holdfast.client.entities.queue import Directory, QueueRun
    from holdfast.client.found import Begun
    from holdfast.client.run import Run
    from holdfast.model import NodeBook, Phase, Workload
    from holdfast.model.entities.broker import Broker
    from holdfast.model.entities.graph import Graph
    from holdfast.model.entities.queue import Queue
    from holdfast.model.life.ledger import Account, Ledger
    from holdfast.model.selector import Selector

READ_MAXIMUM: Final = 10_000
"""How many workloads are read at most for a true order. Temporal cannot sort them, so that needs all of them."""
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
            again: Whether to start anew if an earlier run of this workload has ended; one that is being removed is
                waited for.

        Returns:
            The run. If the same workload (same specification) is already running, that run.

        Raises:
            SpecConflict: if a workload of this name is running with another specification.
            AlreadyEnded: if it has ended, also if it is still kept in the cluster, and `again` is not given.
            HoldfastError: if it is being removed after a cancel, and `again` is not given.
            InvalidWorkload: if its cluster has admission queues, but none of the name that it gives.
            NotReachable: if Temporal does not answer.
        """
        from holdfast.client.submission import begin, check_secrets

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
        from holdfast.client.entities import graph as graphs
        from holdfast.client.submission import check_secrets

        for one in workloads:
            check_secrets(self.client, one.components, f"workload {one.name}")
        placed = [await self._queues.placed(one) for one in workloads]
        return await graphs.submit(self.client, self.place, graph, placed, again=again)

    def graph(self, name: str, namespace: str = "default", cluster: str | None = None) -> GraphRun:
        """Return a graph by its name, without checking that it exists."""
        from holdfast.client.entities.graph import GraphRun

        return GraphRun(self.client, self.place, names.graph_id(self.require_cluster(cluster), namespace, name))

    async def apply_queue(self, queue: Queue) -> QueueRun:
        """Create an admission queue, or change the quota, strategy or stop policy of the existing one (row L9).

        A new quota evicts no admitted workload. Workloads that were submitted before a queue of their name existed do
        not belong to it: they have begun by themselves.

        Raises:
            HoldfastError: if it exists, and no worker answers for it.
            NotReachable: if Temporal does not answer.
        """
        from holdfast.client.entities import queue as queues

        self._queues.forget()
        return await queues.apply(self.client, self.place, queue)

    def queue(self, name: str, cluster: str | None = None) -> QueueRun:
        """Return an admission queue by its name, without checking that it exists."""
        from holdfast.client.entities.queue import QueueRun

        return QueueRun(self.client, self.place, names.queue_id(self.require_cluster(cluster), name))

    async def queues(self, cluster: str | None = None) -> list[QueueRun]:
        """Return the existing admission queues of a cluster, sorted by name."""
        from holdfast.client.entities import queue as queues

        return await queues.of_cluster(self.client, self.place, self.require_cluster(cluster))

    async def apply_broker(self, broker: Broker) -> BrokerRun:
        """Create a cluster's checkpoint broker, or change the configuration of the existing one (row L11).

        Raises:
            HoldfastError: if it exists, and no worker answers for it.
            NotReachable: if Temporal does not answer.
        """
        from holdfast.client.entities import broker as brokers

        return await brokers.apply(self.client, self.place, broker)

    def broker(self, cluster: str | None = None) -> BrokerRun:
        """Return a cluster's checkpoint broker, without checking that it exists."""
        from holdfast.client.entities.broker import BrokerRun

        return BrokerRun(self.client, self.place, names.broker_id(self.require_cluster(cluster)))

    def provisioner(self, cluster: str | None = None) -> ProvisionerRun:
        """Return the provisioner of a cluster's nodes, without checking that it exists (row L15)."""
        from holdfast.client.entities.provisioner import ProvisionerRun

        return ProvisionerRun(self.client, self.place, self.require_cluster(cluster))

    async def node_book(self, cluster: str | None = None) -> NodeBook | None:
        """Return what a cluster's node monitor knows about unhealthy nodes; None if the cluster has no node monitor.

        Raises:
            NotReachable: if Temporal does not answer.
        """
        from holdfast.client.entities import provisioner as provisioners

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
        from holdfast.client.found import find, several

        ids = names.workflow_ids(self.require_cluster(cluster), namespace, name)
        found = [one for one in await asyncio.gather(*(find(self.client, self.place, id_) for id_ in ids)) if one]
        if not found:
            raise WorkloadNotFound(ids[0])
        if len(found) > 1:
            raise several(namespace, name, [one.workflow_id for one in found])
        return self._run(found[0])

    def run_of(self, summary: Summary) -> Run:
        """Return the run of a workload that was listed; a later submission of its name is another one."""
        from holdfast.client.run import Run

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
                summary = await summarize(execution)
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
        from holdfast.model.life.ledger import together

        within = self.require_cluster(cluster)
        listed = self.list(cluster=within, namespace=namespace, queue=queue or None, limit=READ_MAXIMUM + 1)
        found = [one async for one in listed]
        cut = f" of the {READ_MAXIMUM:,} that Temporal lists first" if len(found) > READ_MAXIMUM else ""
        # After a reset in Temporal a life is listed twice: first by the run that goes on.
        lives = {(one.workflow_id, one.uid or one.run_id): one for one in reversed(found[:READ_MAXIMUM])}
        found = sorted(lives.values(), key=lambda one: one.since, reverse=True)
        notes = [f"Only the newest {limit} workloads{cut} are counted."] if len(found) > limit or cut else []
        if queue and not found:
            notes.append(await self._none_of(queue, within, namespace))
        turns = asyncio.Semaphore(_HISTORIES)

        async def of(one: Summary) -> Ledger | None:
            async with turns:
                try:
                    return await self.run_of(one).ledger()
                except HoldfastError as error:
                    notes.append(f"{one.namespace}/{one.name} is left out: {error}")
                    return None

        ledgers = await asyncio.gather(*map(of, found[:limit]))
        counted = [one for one in ledgers if one is not None]
        return together(counted, queue=queue, node=node, cause=cause, notes=tuple(notes))

    async def count(
        self,
        *,
        cluster: str | None = None,
        namespace: str | None = None,
        phase: Phase | str | None = None,
        running: bool | None = None,
        query: str | None = None,
    ) -> int:
        """Return how many workloads match, from Temporal's visibility store. The arguments are those of `list`."""
        with refusals(self.place):
            terms = _terms(cluster, namespace, phase, running=running, query=query)
            counted = await self.client.count_workflows(terms)
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

    async def _none_of(self, queue: str, cluster: str, namespace: str | None) -> str:
        """Say that a queue has no workload, and whether there is such a queue: a queue of Kueue's is not known here."""
        from holdfast.model.life.ledger import some

        where = f"cluster {cluster}" if namespace is None else f"cluster {cluster} in namespace {namespace}"
        there = [one.name for one in await self.queues(cluster)]
        none = f"no workload of queue {queue} on {where}"
        return none if queue in there or not there else f"{none}; there is no such queue: expected {some(there)}"

    @cached_property
    def _queues(self) -> Directory:
        from holdfast.client.entities.queue import Directory

        return Directory(self.client, self.place)

    def _run(self, begun: Begun) -> Run:
        from holdfast.client.run import Run

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
    terms = [f"WorkflowType = {quoted(names.WORKLOAD_WORKFLOW)}"]
    wanted = {
        names.SA_CLUSTER: cluster,
        names.SA_NAMESPACE: namespace,
        names.SA_PHASE: str(phase) if phase is not None else None,
        names.SA_QUEUE: queue,
    }
    terms += [f"{key} = {quoted(value)}" for key, value in wanted.items() if value is not None]
    if running:
        terms.append("ExecutionStatus = 'Running'")
    else:
        terms += ["ExecutionStatus != 'Running'"] if running is not None else []
        terms.append("ExecutionStatus != 'ContinuedAsNew'")
    if query:
        terms.append(f"({query})")
    return " AND ".join(terms)


def quoted(value: str) -> str:
    """Return a text as a value in Temporal's list filter language."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
