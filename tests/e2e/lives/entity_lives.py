"""Lives of entities, for the crash harness: what each needs, what happens in it, and what it must come to.

A life has a site of its own, since a cluster has one provisioner, one monitor of nodes and one broker.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import yaml
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowHandle

from holdfast import names
from holdfast.activities.data.cache import data_path
from holdfast.client import Holdfast
from holdfast.client.connection import Place
from holdfast.formats.graph import read_graph
from holdfast.model import Phase, Status
from holdfast.model.entities.broker import Broker
from holdfast.model.entities.graph import GraphOrder, GraphStatus
from holdfast.model.entities.queue import Queue, QueueOrder, QueueStatus
from tests.e2e.ground.site import Site, asked, until
from tests.e2e.ground.space import Handle, Space, pod_template
from tests.e2e.lives.saving import REQUEST, gang, noted, save
from tests.e2e.witness import ledger
from tests.store import BUCKET, metered, open_store

PATIENCE = 120.0
"""Seconds in which each step of a life comes, whoever dies over it."""
FAST = {
    "failureGracePeriod": "0s",
    "retryPausePeriod": "0s",
    "successTTL": "0s",
}


def job(name: str, pods: int = 1, **settings: str) -> dict[str, Any]:
    """Return a Job on fake nodes; settings as in `holdfast.dev/<setting>`."""
    given = {f"{names.GROUP}/{key}": value for key, value in {**FAST, "retryLimit": "0", **settings}.items()}
    spec = {"parallelism": pods, "completions": pods, "backoffLimit": 0, "template": pod_template()}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "annotations": given},
        "spec": spec,
    }


class Life(ABC):
    """One life of an entity: what it needs, what happens in it, and what it has to come to."""

    name: str
    """Of the scenario."""

    def __init__(self, site: Site) -> None:
        """Take the site of its own."""
        self.site = site
        self.settings: Mapping[str, str] = {}
        """What its worker is set to, by the variables of its environment; known once it is open."""

    @property
    def entities(self) -> tuple[str, ...]:
        """The workflows that it is about."""
        return ()

    @property
    def holdfast(self) -> Holdfast:
        """The client, as its user has it."""
        return Holdfast(self.site.client, Place(self.site.temporal_address, self.site.cluster), self.site.cluster)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Have what it needs beside a worker."""
        yield

    @abstractmethod
    async def live(self, space: Space) -> None:
        """Live it: wait only for what stays until it goes on."""

    @abstractmethod
    async def check(self, space: Space) -> None:
        """Check what it has come to.

        Raises:
            AssertionError: if that is not what it comes to without a crash.
        """


class QueueLife(Life):
    """Two that ask for a quota of one: one is let in, and the other once the first has ended."""

    name = "queue-of-one"
    who = ("a", "b")

    @property
    def entities(self) -> tuple[str, ...]:
        return (names.queue_id(self.site.cluster, "gpus"),)

    async def live(self, space: Space) -> None:
        await self.holdfast.apply_queue(Queue(name="gpus", cluster=self.site.cluster, quota={"pods": "1"}))
        left = {name: await self._submitted(space, name) for name in self.who}
        while left:
            name = await _one_runs(space, left)
            await space.complete(name)
            assert (await space.ended(left.pop(name))).phase is Phase.SUCCEEDED
        found: list[QueueStatus] = []

        async def is_empty() -> bool:
            found[:] = [await self._status()]
            return (found[0].admitted, found[0].waiting, found[0].used.get("pods")) == (0, 0, "0")

        await until(is_empty, PATIENCE, lambda: f"the queue is empty: {found}", pause=0.3)

    async def _submitted(self, space: Space, name: str) -> Handle:
        workload = self.site.read(job(name), space.namespace)
        return await space.submit(workload.model_copy(update={"queue": "gpus", "queued": True}))

    async def _status(self) -> QueueStatus:
        handle = self.site.client.get_workflow_handle(*self.entities)
        return await asked(lambda: handle.query(names.QUERY_STATUS, result_type=QueueStatus))

    async def check(self, space: Space) -> None:
        owners = [one for one in known(space).lives.values() if one.place[1] == names.ATTEMPT_PLURAL]
        assert sorted(one.place[3] for one in owners) == [names.attempt_name(name, 1) for name in self.who]
        first, second = sorted(owners, key=lambda one: one.received)
        pods = [one for one in known(space).lives.values() if (one.workload, one.place[1]) == (first.workload, "pods")]
        ended = {one.place[3]: _ended(space, one.place[3]) for one in pods}
        runs = [f"{one}, ended {ended[one.place[3]]}" for one in pods if ended[one.place[3]] > second.received]
        assert not runs, f"both held the quota of one: {runs} ran when {second} was asked for"
        orders = [QueueOrder.model_validate(one) for one in await told(self.site, self.entities[0], names.SIGNAL_QUEUE)]
        admitted = Counter(one.uid for one in orders if one.admit)
        assert set(admitted.values()) == {1}, f"let in twice: {admitted}"


class GraphLife(Life):
    """Three of which the second comes after the first, and the third only if that fails: it never begins."""

    name = "graph-in-order"

    @property
    def entities(self) -> tuple[str, ...]:
        return tuple(self._ids)

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._ids: list[str] = []
        self._ended: GraphStatus | None = None

    async def live(self, space: Space) -> None:
        nodes = (_node("a"), _node("b", ("a", "Success")), _node("c", ("a", "Failure")))
        document = {"apiVersion": names.API_VERSION, "kind": "Graph", "metadata": {"name": "etl"}}
        text = yaml.safe_dump({**document, "spec": {"nodes": list(nodes)}})
        found = read_graph(text, cluster=self.site.cluster, namespace=space.namespace)
        self._ids.append(found.graph.workflow_id)
        run = await self.holdfast.submit_graph(found.graph, found.workloads)
        handles: dict[str, Handle] = {
            one.name: self.site.client.get_workflow_handle(one.workflow_id, result_type=Status)
            for one in found.workloads
        }
        space.handles += handles.values()
        for name in ("etl-a", "etl-b"):
            assert await _one_runs(space, {name: handles[name]}) == name
            await space.complete(name)
            assert (await space.ended(handles[name])).phase is Phase.SUCCEEDED
        self._ended = await asyncio.wait_for(run.result(), PATIENCE)

    async def check(self, space: Space) -> None:
        assert self._ended is not None
        told_so = (self._ended.phase, self._ended.counts)
        assert told_so == (Phase.SUCCEEDED, {"Succeeded": 2, "Cancelled": 1}), self._ended
        owners = sorted(known(space).lives.values(), key=lambda one: one.received)
        made = [one.place[3] for one in owners if one.place[1] == names.ATTEMPT_PLURAL]
        assert made == [names.attempt_name(name, 1) for name in ("etl-a", "etl-b")], "each once, in their order"
        orders = [GraphOrder.model_validate(one) for one in await told(self.site, self.entities[0], names.SIGNAL_GRAPH)]
        admitted = Counter(one.workload_uid for one in orders if one.admit)
        assert sorted(admitted.values()) == [1, 1], f"let begin twice: {admitted}"


def _node(name: str, *after: tuple[str, str]) -> dict[str, Any]:
    made = job(name)
    del made["metadata"]["name"]
    return {"name": name, "after": [{"node": one, "on": on} for one, on in after], "template": made}


class BrokerLife(Life):
    """A workload that the broker has save its state, and that ends once it has."""

    name = "broker-has-one-save"

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._number = 0

    @property
    def entities(self) -> tuple[str, ...]:
        return (names.broker_id(self.site.cluster),)

    async def live(self, space: Space) -> None:
        handle = await space.submit(gang("train", pods=1))
        await space.reach(handle, "Running", 1)
        # Due after 3 s, and then not before its cost in seconds, by the measure, comes to minutes.
        numbers = {"every": "2s", "least": "3s", "most": "10m", "cost": "1s", "node_mtbf": "1m", "at_once": 1}
        await self.holdfast.apply_broker(Broker.model_validate({"cluster": self.site.cluster, **numbers}))
        await save(space, "s3://saved/1", "train", pods=1)
        found: list[Status] = []

        async def has_saved() -> bool:
            found[:] = [await self.site.status(handle)]
            return found[0].saved is not None

        await until(has_saved, PATIENCE, lambda: f"it has saved its state: {found}")
        await space.complete("train")
        status = await space.ended(handle)
        assert status.phase is Phase.SUCCEEDED
        assert status.checkpoint is not None
        self._number = status.checkpoint.number

    async def check(self, space: Space) -> None:
        handle: WorkflowHandle[Any, Any] = self.site.client.get_workflow_handle(*self.entities)
        asks = await space.acts(handle, names.ACTIVITY_ASK)
        # One whose answer was lost with its worker is sent again after 20 s, when all may be over.
        assert 1 <= self._number <= len(asks), f"more saves than requests: {self._number} of {len(asks)}"
        told_of = [one.result["number"] for one in asks if one.result and one.result.get("number")]
        assert len(set(told_of)) == len(told_of), f"two requests came to one save: {told_of}"
        sent = [one.body for one in space.truth.requests() if (one.verb, one.resource) == ("patch", "pods")]
        wanted = Counter(said for body in sent if (said := noted({"metadata": {}, **body}).get(REQUEST)))
        assert len(wanted) == self._number, wanted


class StagingLife(Life):
    """A workload that reads a data set, fails, and reads it again: it is fetched once."""

    name = "staged-once"
    pieces, size = 6, 200_000

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._cache = site.directory / "cache"
        self._status: Status | None = None

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        with open_store(self.site.directory / "store") as store:
            for at in range(self.pieces):
                store.put(f"corpus/{at:02}", bytes([at]) * self.size)
            async with metered(store, 2 * self.pieces * self.size) as self._line:
                self.settings = store.settings(self._cache, self._line.endpoint)
                yield

    async def live(self, space: Space) -> None:
        mounts = f"[{{name: corpus, source: s3://{BUCKET}/corpus, path: /data/corpus}}]"
        handle = await space.submit(yaml.safe_dump(job("train", retryLimit="3", mounts=mounts)))
        await space.reach(handle, "Running", 1)
        await space.fail_pod("train")
        await space.reach(handle, "Running", 2)
        await space.complete("train")
        self._status = await space.ended(handle)

    async def check(self, space: Space) -> None:
        assert self._status is not None
        assert (self._status.phase, self._status.attempt, self._status.restarts) == (Phase.SUCCEEDED, 2, 1)
        (digest,) = {one.digest for one in self._status.data}
        folder = self._cache / space.namespace
        homes = [one.name for one in folder.iterdir() if one.is_dir() and not one.name.startswith(".")]
        assert homes == [digest], f"one version: {homes}"
        files = sorted((folder / data_path(digest)).iterdir())
        whole = [one.read_bytes() == bytes([at]) * self.size for at, one in enumerate(files)]
        assert whole == [True] * self.pieces, files
        # Twice as much passes before it is held back, and once is the data set itself.
        assert not self._line.stalled.is_set(), "it was fetched twice"


# --- what they share


def known(space: Space) -> ledger.Ledger:
    """Return what the audit log tells of a namespace."""
    return ledger.within(space.truth.log(), space.namespace)


def _ended(space: Space, pod: str) -> datetime:
    """Return when a pod was said to have ended, by the audit log: from then on it holds no quota."""
    said = [
        one for one in space.truth.requests() if (one.resource, one.subresource, one.name) == ("pods", "status", pod)
    ]
    over = [one.time for one in said if (one.body.get("status") or {}).get("phase") in {"Succeeded", "Failed"}]
    return min(over, default=datetime.max.replace(tzinfo=UTC))


async def _one_runs(space: Space, handles: Mapping[str, Handle]) -> str:
    """Wait until the pod of one of these workloads runs, and return which."""
    found: list[str] = []

    async def check() -> bool:
        running = [one for one in await space.pods() if one["status"].get("phase") == "Running"]
        found[:] = sorted({noted(one).get(names.ANNOTATION_WORKLOAD, "") for one in running} & set(handles))
        return bool(found)

    await until(check, PATIENCE, f"one of {sorted(handles)} runs")
    await space.reach(handles[found[0]], "Running")
    return found[0]


async def told(site: Site, workflow_id: str, signal: str) -> list[Any]:
    """Return what all runs of a workflow have told others by a signal."""
    said: list[Any] = []
    converter = site.client.data_converter.payload_converter
    async for run in site.client.list_workflows(f"WorkflowId = '{workflow_id}'"):
        handle = site.client.get_workflow_handle(run.id, run_id=run.run_id)
        for event in (await handle.fetch_history()).events:
            sent = event.signal_external_workflow_execution_initiated_event_attributes
            if (
                event.event_type == EventType.EVENT_TYPE_SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED
                and sent.signal_name == signal
            ):
                said += converter.from_payloads(list(sent.input.payloads))
    return said
