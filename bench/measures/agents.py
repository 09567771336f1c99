"""A thousand simulated agents of one gang: what their meeting costs the worker, Temporal and its history.

Agents are coroutines of the bench's own process that speak as real ones do: what is new at once, then held back. Their
pods are the fake kubelet's, their tokens the API server's.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowHandle

from bench.ground import Ground
from bench.seeing import PATIENCE
from bench.systems.holdfast import HoldfastSystem, open_holdfast
from bench.usage import using
from bench.work import in_flight
from holdfast import names
from holdfast.model.calls.gang import GangBegin, GangEnd, RendezvousInput
from holdfast.model.gang.state import Gang
from holdfast.model.gang.status import GangStatus
from tests.e2e.ground.site import Worker, free_port, until

NAME = "agents"
SIZES = (1000,)
WORKLOAD, UID = "gang", "0b2f7c1e-5a3d-4c62-9a55-00000000000a"
STEADY = 60.0
_PATIENCE = 300.0


class GangSystem(HoldfastSystem):
    """Holdfast with a worker that serves gangs."""

    door = ""
    """Where it answers agents."""

    async def start_worker(self) -> Worker:
        """Start one more worker, which answers agents too, and wait until it is ready."""
        self.door = f"127.0.0.1:{free_port()}"
        settings = {
            **self.ground.options.worker,
            "HOLDFAST_RENDEZVOUS_ADDRESS": self.door,
            "HOLDFAST_RENDEZVOUS_INSECURE": "true",
        }
        worker = self.site.launch(kubeconfig=None, **settings)
        await self.site.ready(worker, PATIENCE)
        return worker


@dataclass
class Agents:
    """All of them."""

    door: str
    session: aiohttp.ClientSession
    pods: dict[str, str]
    tokens: dict[str, str]
    rounds: dict[str, int] = field(default_factory=dict)
    """In which round each runs."""
    silenced: set[str] = field(default_factory=set)
    exchanges: int = 0

    async def live(self, name: str) -> None:
        """Be one agent, until cancelled: it does as it is told, at once."""
        state, number, seen, heard = "INIT", 0, 0, False
        join = {
            "member": name,
            "podUid": self.pods[name],
            "attempt": 1,
            "incarnation": name,
            "startedAt": datetime.now(UTC).isoformat(),
            "address": "127.0.0.1",
            "port": 29500,
        }
        url, headers = (
            f"http://{self.door}/rendezvous/v1/{UID}/announce",
            {"Authorization": f"Bearer {self.tokens[name]}"},
        )
        while name not in self.silenced:
            report = {"state": state, "round": number, "since": "2026-01-31T12:00:00Z"}
            said = {"join": join, "report": report, "seen": seen, "wait": "5s" if heard else "0s"}
            self.exchanges += 1
            try:
                async with self.session.post(url, json=said, headers=headers) as answer:
                    told = json.loads(await answer.text())
                    if answer.status != 200:
                        raise aiohttp.ClientError(str(told))
            except (aiohttp.ClientError, TimeoutError):
                heard = False
                await asyncio.sleep(1)
                continue
            heard, seen, before = True, told["revision"], (state, number)
            if told["kind"] == "Run" and told["assignment"]["round"] != number:
                state, number = "HEALTHY", told["assignment"]["round"]
                self.rounds[name] = number
            elif told["kind"] == "Rejoin":
                state = "INIT"
            elif told["kind"] in {"Leave", "Finish"}:
                return
            heard = before == (state, number)

    async def all_in(self, number: int, size: int) -> None:
        """Wait until so many run in a round."""

        async def met() -> bool:
            return sum(one >= number for name, one in self.rounds.items() if name not in self.silenced) >= size

        await until(met, _PATIENCE, f"{size} agents run in round {number}", pause=0.05)


async def measure(ground: Ground, sizes: tuple[int, ...] = SIZES, steady: float = STEADY) -> None:
    """A gang meets, is left alone for `steady` seconds, loses a member, and meets again."""
    for size in sizes:
        for repeat in range(ground.options.repeats):
            async with open_holdfast(ground, kind=GangSystem) as system:
                assert isinstance(system, GangSystem)
                await _once(ground, system, size, repeat, steady)


async def _once(ground: Ground, system: GangSystem, size: int, repeat: int, steady: float) -> None:
    members = [f"{WORKLOAD}-{index}" for index in range(size)]
    async with _gang(ground, system, members) as (agents, handle):
        async with using(ground.pids() | system.pids) as joining:
            began = time.monotonic()
            tasks = [asyncio.create_task(agents.live(name)) for name in members]
            await agents.all_in(1, size)
            joined = time.monotonic() - began
        updates = await _updates(handle)
        async with using(ground.pids() | system.pids) as resting:
            await asyncio.sleep(steady)
        quiet = await _updates(handle) - updates
        exchanges = agents.exchanges
        agents.silenced.add(members[-1])
        found = await ground.kube.get("v1", "Pod", members[-1], system.namespace)
        lost = time.monotonic()
        await ground.kube.delete(
            "v1", "Pod", members[-1], system.namespace, uid=found["metadata"]["uid"], grace_period=0
        )
        await agents.all_in(2, size - 1)
        formed = time.monotonic() - lost
        status = await handle.query(names.QUERY_STATUS, result_type=GangStatus)
        history = await handle.fetch_history()
        await handle.signal(names.SIGNAL_END, GangEnd(workload_uid=UID, attempt=1))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    values = {
        "joined_s": joined,
        "join_updates": updates,
        "quiet_updates": quiet,
        "formed_again_s": formed,
        "rounds": status.round,
        "updates": await _updates(handle),
        "events": len(history.events),
        "history_kib": len(history.to_json()) / 1024,
        "cpu_join_s": joining.cpu["worker"],
        "cpu_steady_share": resting.cpu["worker"] / resting.seconds,
        "exchanges": exchanges,
    }
    ground.record(system.name, values, size={"n": size}, repeat=repeat)


@asynccontextmanager
async def _gang(
    ground: Ground, system: GangSystem, members: list[str]
) -> AsyncIterator[tuple[Agents, WorkflowHandle[Any, Any]]]:
    """Make the pods of a gang and their tokens, and begin its rendezvous."""
    pods, tokens = dict[str, str](), dict[str, str]()

    async def make(name: str) -> None:
        made = await ground.kube.create(_pod(name, system.namespace))
        pods[name] = made["metadata"]["uid"]
        bound = {"kind": "Pod", "apiVersion": "v1", "name": name, "uid": pods[name]}
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"audiences": [names.RENDEZVOUS_AUDIENCE], "expirationSeconds": 3600, "boundObjectRef": bound},
        }
        path = f"/api/v1/namespaces/{system.namespace}/serviceaccounts/default/token"
        tokens[name] = (await ground.kube.mutate("POST", path, query={}, body=body))["status"]["token"]

    await in_flight([lambda name=name: make(name) for name in members], 20)
    cluster, client = system.site.cluster, system.site.client
    begin = GangBegin(
        cluster=cluster,
        namespace=system.namespace,
        workload=WORKLOAD,
        workload_uid=UID,
        workflow_id="nobody",
        submitted_at=datetime.now(UTC),
        attempt=1,
        gang=Gang(min=len(members) - 1, max=len(members), last_call=timedelta(seconds=2)),
    )
    handle = await client.start_workflow(
        names.RENDEZVOUS_WORKFLOW,
        RendezvousInput(**dict(begin)),
        id=names.rendezvous_id(cluster, system.namespace, WORKLOAD),
        task_queue=names.QUEUE_WORKFLOWS,
    )
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=30)) as session:
        yield Agents(system.door, session, pods, tokens), client.get_workflow_handle(handle.id)


def _pod(name: str, namespace: str) -> dict[str, Any]:
    labels = {names.LABEL_WORKLOAD_UID: UID, names.LABEL_ATTEMPT: "1"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {
            "nodeSelector": {"holdfast.dev/node": "fake"},
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "main", "image": "none.invalid/none:1"}],
        },
    }


async def _updates(handle: WorkflowHandle[Any, Any]) -> int:
    found = 0
    async for event in handle.fetch_history_events():
        found += event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED
    return found
