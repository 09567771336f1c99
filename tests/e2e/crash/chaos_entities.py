"""What lives beside the workloads of a chaos run: a broker, a provisioner, data sets, graphs and gangs.

Somebody asks all of them all the time. An entity that cannot go on answers no query, and that is what is looked for.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import yaml
from temporalio.client import WorkflowQueryFailedError
from temporalio.service import RPCError

from holdfast import names
from holdfast.client.entities import graph as graphs
from holdfast.client.entities.provisioner import ProvisionerRun
from holdfast.errors import HoldfastError, NotAnswering, NotReachable
from holdfast.formats.graph import read_graph
from holdfast.model import Status
from holdfast.model.entities.broker import Broker
from holdfast.model.entities.provisioner import NodeAction, NodeAsk, NodeRequest, Result
from tests.e2e.crash.chaos_lives import QUEUE, SETS, Driver
from tests.e2e.entities.balancer import open_balancer
from tests.e2e.entities.elastic import FINISHES, Elastic, document, door, node_address
from tests.e2e.entities.test_graph import node
from tests.e2e.ground.nodes import Nodes, open_nodes
from tests.e2e.ground.site import Site, free_port, until
from tests.e2e.ground.space import Space
from tests.e2e.witness.invariants import check_decisions
from tests.e2e.witness.truth import Truth
from tests.redfish.server import Emulator
from tests.store import Store, open_store

GRAPHS: Final = 6
GANGS: Final = 3
MACHINES: Final = 4
PACE: Final = 0.25
"""Seconds between two queries."""
_LATE: Final = 600.0
"""Seconds that a gang may need for coming together and for its end."""
_ANSWER: Final = timedelta(seconds=10)
_GANG: Final = {"min": 2, "max": 2, "lastCall": "1s", "joinTimeout": "15m", "heartbeat": "5s", "keepAliveAttempts": 20}
"""Restarts of workers are no failures of members: a gang bears as long an outage as there is here."""


@dataclass
class Entities:
    """What is there beside the workloads, and how often each kind of it was asked and has answered."""

    site: Site
    store: Store
    machines: Nodes
    redfish: Emulator
    rendezvous: str
    """Where gangs' pods find a worker; empty without a real node, on which gangs run."""
    doors: list[tuple[str, int]]
    """Where the workers listen for them."""
    cache: Path
    served: dict[str, str] = field(default_factory=dict[str, str])
    """The settings by which a worker serves gangs."""
    asked: Counter[str] = field(default_factory=Counter[str])
    answered: Counter[str] = field(default_factory=Counter[str])
    refused: set[str] = field(default_factory=set[str])
    """Queries that a worker answered with a failure."""
    places: dict[str, str] = field(default_factory=dict[str, str])
    """The kind of each entity, by its workflow's id."""

    async def settings(self) -> dict[str, str]:
        """Return a worker's settings; gangs reach all workers at one address, as they do by a Service."""
        own = {"HOLDFAST_PROVISIONER_URL": self.redfish.template, **self.store.settings(self.cache)}
        if not self.rendezvous:
            return own
        self.served = self.served or await door(self.site)  # All have one certificate.
        host, port = self.served["HOLDFAST_RENDEZVOUS_ADDRESS"].rpartition(":")[0], free_port()
        self.doors.append((host, port))
        address = {"HOLDFAST_RENDEZVOUS_ADDRESS": f"{host}:{port}", "HOLDFAST_RENDEZVOUS_URL": self.rendezvous}
        return own | self.served | address

    def sentence(self) -> str:
        """Say what there is."""
        counts = Counter(self.places.values())
        return ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items())) + f", {SETS} data sets"

    async def ask(self, driver: Driver, rng: random.Random) -> None:
        """Query entities and workloads, for as long as it is needed."""
        while True:
            kinds = list(self.places.items()) + [
                (names.workflow_id(self.site.cluster, driver.namespace, name), "workload")
                for name in rng.sample(sorted(driver.board), min(3, len(driver.board)))
            ]
            if kinds:
                await self._query(*rng.choice(kinds))
            await asyncio.sleep(PACE)

    async def _query(self, place: str, kind: str) -> None:
        self.asked[kind] += 1
        try:
            await self.site.client.get_workflow_handle(place).query(names.QUERY_STATUS, rpc_timeout=_ANSWER)
        except WorkflowQueryFailedError as error:
            if "ask again" not in str(error):
                self.refused.add(f"{place}: {error}")
        except RPCError:
            return
        else:
            self.answered[kind] += 1

    async def broken(self) -> list[str]:
        """Return what is wrong once all is over: each entity answers, replays, and every request has ended."""
        told = ", ".join(f"{kind} {self.answered[kind]} of {self.asked[kind]}" for kind in sorted(self.asked))
        print(f"queries answered: {told}", flush=True)
        found = [f"a query was refused: {one}" for one in sorted(self.refused)]
        found += [f"no query of a {kind} was answered" for kind in sorted(self.asked) if not self.answered[kind]]
        for place, kind in sorted(self.places.items()):
            handle = self.site.client.get_workflow_handle(place)
            try:
                await asyncio.wait_for(handle.query(names.QUERY_STATUS), 60)
                await check_decisions(handle)
            except (AssertionError, RPCError, WorkflowQueryFailedError, TimeoutError) as error:
                found.append(f"{kind} {place}: {type(error).__name__}: {error}")
        return found


@asynccontextmanager
async def open_entities(site: Site, directory: Path, rng: random.Random) -> AsyncIterator[Entities]:
    """Bring up what entities need beside a cluster: a store of data sets, machines and their Redfish service."""
    with open_store(directory / "store") as store:
        for number in range(SETS):
            for part in range(4):
                store.put(f"set-{number}/{part:02}", bytes([part]) * 200_000)
        doors = list[tuple[str, int]]()
        async with open_nodes(site.kube, MACHINES) as machines, _open_rendezvous(site, doors, rng) as rendezvous:
            redfish = Emulator(directory, machines.names)
            await machines.identify(redfish.ids)
            await redfish.start()
            try:
                yield Entities(site, store, machines, redfish, rendezvous, doors, directory / "cache")
            finally:
                redfish.kill()


@asynccontextmanager
async def _open_rendezvous(site: Site, doors: list[tuple[str, int]], rng: random.Random) -> AsyncIterator[str]:
    if not site.stack.state.real_node:
        yield ""
        return
    address, port = await node_address(site), free_port()
    async with open_balancer(address, port, doors, rng):
        yield f"https://{address}:{port}"


async def start(entities: Entities, driver: Driver) -> None:
    """Put the broker there, and name the entities that are there by themselves."""
    cluster = entities.site.cluster
    broker = Broker(cluster=cluster, every=timedelta(seconds=10))
    await driver.insist(lambda: driver.holdfast.apply_broker(broker), HoldfastError)
    entities.places |= {
        names.broker_id(cluster): "broker",
        names.provisioner_id(cluster): "provisioner",
        names.node_monitor_id(cluster): "node monitor",
        names.watch_workflow_id(cluster): "watch",
        names.queue_id(cluster, QUEUE): "queue",
    }


# --- what each lives; what is returned is what was wrong


async def work_machines(entities: Entities, driver: Driver, seconds: float, rng: random.Random) -> list[str]:
    """Have machines wiped, powered off and booted, one after another, until the time is over."""
    run = ProvisionerRun(entities.site.client, driver.holdfast.place, entities.site.cluster)
    found, done = list[str](), 0
    clock = asyncio.get_running_loop()
    over = clock.time() + seconds
    while clock.time() < over:
        machine = rng.choice(entities.machines.names)
        for action in (NodeAction.POWER_OFF, NodeAction.BOOT, NodeAction.WIPE):
            force = action is NodeAction.POWER_OFF
            ask = NodeAsk(node=machine, action=action, by="chaos", why="it is its turn", force=force)
            request = await _requested(run, driver, ask)
            outcome = await run.ended(request.number, request.at)
            done += 1
            if outcome.result is not Result.DONE:
                found.append(f"provisioner: {action} of {machine} ended {outcome.result}: {outcome.said}")
    print(f"          the provisioner carried out {done} requests", flush=True)
    return found


async def _requested(run: ProvisionerRun, driver: Driver, ask: NodeAsk) -> NodeRequest:
    """Make a request, once the late copy of an earlier one has ended; any other refusal ends the run, and says so."""
    while True:
        try:
            return await driver.insist(lambda: run.request(ask), NotReachable, NotAnswering)
        except HoldfastError as error:
            if "ask again once" not in str(error):
                raise
            await asyncio.sleep(1.0)


async def live_graph(entities: Entities, driver: Driver, name: str, after: float) -> list[str]:
    """Live a graph of four nodes and five workloads: a diamond."""
    await asyncio.sleep(after)
    nodes = [
        node("first", kwok_complete="5s"),
        node("left", "first", tasks=2, kwok_complete="15s"),
        node("right", "first", kwok_complete="10s"),
        node("last", "left", "right", kwok_complete="5s"),
    ]
    content = {"apiVersion": names.API_VERSION, "kind": "Graph", "metadata": {"name": name}, "spec": {"nodes": nodes}}
    namespace = await driver.insist(entities.site.namespace)
    read = read_graph(yaml.safe_dump(content), cluster=entities.site.cluster, namespace=namespace)
    place, client = driver.holdfast.place, entities.site.client
    run = await driver.insist(
        lambda: graphs.submit(client, place, read.graph, read.workloads, again=False), HoldfastError
    )
    entities.places[run.workflow_id] = "graph"
    status = await driver.insist(run.result, NotReachable)
    phases = {item: str(one.phase) for item, one in status.items.items()}
    found = [f"graph {name}: {item} is {phase}" for item, phase in phases.items() if phase != "Succeeded"]
    if len(phases) != 5:
        found.append(f"graph {name}: {len(phases)} workloads, expected 5: {phases}")
    return found


async def live_gang(entities: Entities, driver: Driver, after: float, lasts: float) -> list[str]:
    """Live a gang of two real members, which are told to finish after a while."""
    await asyncio.sleep(after)
    site, marker = entities.site, secrets.token_hex(8)
    namespace = await driver.insist(site.namespace)
    await _account(driver, namespace)
    described = document(marker, _GANG)
    described["spec"]["policy"]["timings"]["successTtl"] = "0s"
    workload = site.read(described, namespace)
    await driver.insist(lambda: driver.holdfast.submit(workload))
    handle = site.client.get_workflow_handle(workload.workflow_id, result_type=Status)
    entities.places[names.rendezvous_id(site.cluster, namespace, "train")] = "rendezvous"
    gang = Elastic(Space(site, namespace, Truth(site, namespace, ())), handle, marker)
    ending = asyncio.create_task(driver.ended(handle))
    try:
        await asyncio.wait_for(_finished(gang, ending, lasts), lasts + _LATE)
    except TimeoutError:
        ending.cancel()
        return [f"gang: not ended {_LATE:g} s after its time: {await gang.told()}"]
    status = await ending
    if status is None:
        return ["gang: its workflow ended without a status"]
    ended = (str(status.phase), status.attempt, status.restarts)
    causes = "; ".join(f"{one.time:%H:%M:%S} {one.reason}: {one.message}" for one in status.causes)
    return [] if ended == ("Succeeded", 1, 0) else [f"gang: {ended}: {causes}"]


async def _finished(gang: Elastic, ending: asyncio.Task[Any], lasts: float) -> None:
    """Let a gang's workers run for a while together, then tell them to finish until it has ended."""
    over: float | None = None
    clock = asyncio.get_running_loop()
    while not ending.done():
        workers = await gang.workers()
        if over is None and [one.rank for one in workers] == [0, 1]:
            over = clock.time() + lasts
        if over is not None and clock.time() >= over:
            for one in workers:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(one.pid, FINISHES)
        await asyncio.sleep(1.0)


async def _account(driver: Driver, namespace: str) -> None:
    async def there() -> bool:
        found = await driver.insist(lambda: driver.site.kube.find("v1", "ServiceAccount", "default", namespace))
        return found is not None

    await until(there, 600, f"{namespace} has its service account", pause=0.5)


def lives(
    entities: Entities, driver: Driver, seconds: float, rng: random.Random
) -> dict[str, Callable[[], Awaitable[list[str]]]]:
    """Return what is to be lived beside the workloads, all at once, by name."""
    planned: dict[str, Callable[[], Awaitable[list[str]]]] = {
        "provisioner": lambda: work_machines(entities, driver, seconds * 0.8, rng)
    }
    for number in range(GRAPHS):
        name, after = f"graph-{number}", seconds * number / (GRAPHS + 1)
        planned[name] = lambda name=name, after=after: live_graph(entities, driver, name, after)
    for number in range(GANGS if entities.rendezvous else 0):
        after, lasts = seconds * number / 4, seconds * rng.uniform(0.1, 0.4)
        planned[f"gang-{number}"] = lambda after=after, lasts=lasts: live_gang(entities, driver, after, lasts)
    return planned
