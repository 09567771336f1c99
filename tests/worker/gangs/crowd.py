"""The agents of one gang as real processes, and the worker that serves it over TLS."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
from temporalio.service import RPCError
from temporalio.worker import Worker

from holdfast import names
from holdfast.activities.facts.workload_key import WorkloadKey
from holdfast.local import Stack
from holdfast.model.calls.gang import GangBegin
from holdfast.model.gang.state import Gang
from holdfast.model.gang.status import GangStatus
from holdfast.worker.gangs.hub import GangActivities
from holdfast.worker.gangs.opening import KEYS, open_door, renewed_certificate
from holdfast.worker.gangs.sessions import Gangs
from holdfast.worker.runtime.health import Health
from holdfast.worker.runtime.kube import Connector
from holdfast.worker.runtime.metrics import Metrics
from holdfast.worker.runtime.settings import Settings
from holdfast.workflows.entities.rendezvous import Rendezvous
from tests.worker.ground import Ground, opened
from tests.worker.temporal.authority import Authority
from tests.workflows.gathered import ToldWorkload

GANG, UID = "gang", "0b2f7c1e-5a3d-4c62-9a55-000000000001"
WORKER = """
import os, pathlib, time
folder = pathlib.Path(os.environ["FOLDER"])
print(os.environ["RANK"], os.environ["WORLD_SIZE"], flush=True)
name = f"{os.environ['HOLDFAST_MEMBER']}-{os.environ['WORLD_SIZE']}-{os.environ['RANK']}"
(folder / name).write_text(str(time.time()))
while not (folder / "finish").exists():
    time.sleep(0.05)
"""


@dataclass
class Crowd:
    """The agents of one gang, and the worker that serves it."""

    ground: Ground
    folder: Path
    gangs: GangActivities
    url: str
    ca: Path
    metrics: Metrics
    health: Health
    pods: dict[str, dict[str, Any]] = field(default_factory=dict)
    agents: dict[str, asyncio.subprocess.Process] = field(default_factory=dict)
    hubs: AsyncExitStack = field(default_factory=AsyncExitStack)

    @property
    def tls(self) -> ssl.SSLContext:
        """How anybody may verify the door."""
        return ssl.create_default_context(cafile=str(self.ca))

    async def pod(self, name: str, attempt: int = 1, uid: str = UID) -> dict[str, Any]:
        """A pod as a gang's are; the fake kubelet runs it, and the test its agent."""
        labels = self.ground.labels(uid, attempt, "worker")
        self.pods[name] = await self.ground.kube.create(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "namespace": self.ground.namespace, "labels": labels},
                "spec": {
                    "nodeSelector": {"holdfast.dev/node": "fake"},
                    "tolerations": [{"operator": "Exists"}],
                    "containers": [{"name": "main", "image": "none.invalid/none:1"}],
                },
            }
        )
        return self.pods[name]

    async def token(self, name: str, audience: str = names.RENDEZVOUS_AUDIENCE) -> str:
        """The token that a kubelet would mount into a pod."""
        metadata = self.pods[name]["metadata"]
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {
                "audiences": [audience],
                "expirationSeconds": 600,
                "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": name, "uid": metadata["uid"]},
            },
        }
        path = f"/api/v1/namespaces/{self.ground.namespace}/serviceaccounts/default/token"
        for _ in range(300):
            try:
                made = await self.ground.kube.mutate("POST", path, query={}, body=body)
            except Exception:  # The namespace's default account comes a moment after it.
                await asyncio.sleep(0.1)
            else:
                return str(made["status"]["token"])
        raise AssertionError("no token")

    async def agent(self, name: str, attempt: int = 1) -> None:
        """Start the real agent, as the first process of that pod's container would be."""
        file = self.folder / f"{name}.token"
        file.write_text(await self.token(name))
        self.agents[name] = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "holdfast", "agent", "--", sys.executable, "-c", WORKER),
            env={
                **os.environ,
                "FOLDER": str(self.folder),
                names.ENV_RENDEZVOUS: self.url,
                names.ENV_RENDEZVOUS_TOKEN: str(file),
                names.ENV_RENDEZVOUS_CA: str(self.ca),
                names.ENV_WORKLOAD_UID: UID,
                names.ENV_ATTEMPT: str(attempt),
                names.ENV_MEMBER: name,
                names.ENV_POD_UID: self.pods[name]["metadata"]["uid"],
                names.ENV_POD_ADDRESS: "127.0.0.1",
            },
            stdout=asyncio.subprocess.DEVNULL,
        )

    async def ran(self, world: int, seconds: float = 60) -> dict[str, int]:
        """Wait until as many workers ran in a world of that size; return their ranks, by member."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = [path.name.rsplit("-", 2) for path in self.folder.iterdir() if path.name.count("-") >= 2]
            ranks = {member: int(rank) for member, size, rank in found if size == str(world)}
            if len(ranks) == world:
                return ranks
            await asyncio.sleep(0.05)
        raise AssertionError(f"no world of {world}: {sorted(path.name for path in self.folder.iterdir())}")

    async def status(self) -> GangStatus:
        return await self.rendezvous.query(names.QUERY_STATUS, result_type=GangStatus)

    @property
    def rendezvous(self) -> Any:
        ground = self.ground
        return ground.client.get_workflow_handle(names.rendezvous_id(ground.cluster, ground.namespace, GANG))

    def begin(self, attempt: int = 1, **settings: Any) -> GangBegin:
        gang = Gang(**{"min": 1, "max": 4, "last_call": timedelta(seconds=1), **settings})
        return GangBegin(
            cluster=self.ground.cluster,
            cluster_uid=self.ground.cluster_uid,
            namespace=self.ground.namespace,
            workload=GANG,
            workload_uid=UID,
            workflow_id="told",
            submitted_at=datetime.now(UTC),
            attempt=attempt,
            gang=gang,
        )

    async def post(self, name: str, token: str | None, workload: str = UID, **more: Any) -> tuple[int, str]:
        """Post an announcement as anybody could; return the status and what is wrong."""
        pod = self.pods[name]["metadata"]
        join = {
            "member": name,
            "podUid": pod["uid"],
            "attempt": 1,
            "incarnation": "x",
            "startedAt": "2026-01-31T12:00:00Z",
            "address": "127.0.0.1",
            "port": 1,
        }
        said = {"join": {**join, **more}, "report": {"state": "INIT", "since": "2026-01-31T12:00:00Z"}}
        headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
        url = f"{self.url}/rendezvous/v1/{workload}/announce"
        async with (
            aiohttp.ClientSession() as session,
            session.post(url, json=said, headers=headers, ssl=self.tls) as answer,
        ):
            body = json.loads(await answer.text())
            return answer.status, str(body.get("error") or body.get("kind"))

    @property
    def keys(self) -> str:
        """What the page of health says of the keys that tokens are checked with."""
        return next((one.message for one in self.health.ready() if one.name == KEYS), "not read yet")

    def refused(self) -> float:
        """How many announcements the door has refused so far."""
        (family,) = self.metrics.gang_exchanges.collect()
        return sum(one.value for one in family.samples if one.labels["status"] != "200")

    async def served(self) -> None:
        for _ in range(600):
            gang = self.gangs.gangs.served.get(WorkloadKey(self.ground.namespace, UID))
            if gang is not None and gang.hub is not None:
                return
            await asyncio.sleep(0.05)
        raise AssertionError("the gang is not served")


@asynccontextmanager
async def hub(ground: Ground, gangs: GangActivities) -> AsyncIterator[Worker]:
    queues = (
        Worker(
            ground.client,
            task_queue=names.queue_gangs(ground.cluster),
            activities=[gangs.gang_hub],
            max_heartbeat_throttle_interval=timedelta(seconds=1),
            default_heartbeat_throttle_interval=timedelta(seconds=1),
        ),
    )
    async with queues[0] as worker:
        yield worker


Account = Callable[[Ground, Path], AbstractAsyncContextManager[Path]]
"""Makes the account as which the door asks the cluster; returns its kubeconfig."""


@asynccontextmanager
async def open_crowd(stack: Stack, folder: Path, kubeconfig_of: Account | None = None) -> AsyncIterator[Crowd]:
    """Open a gang's place; the door asks the cluster as the worker, or as an account of its own."""
    authority = Authority(folder / "authority", "gangs")
    pair = authority.sign("door")
    async with opened(stack, folder, [Rendezvous, ToldWorkload]) as ground, AsyncExitStack() as doors:
        metrics = Metrics()
        connector = Connector(ground.settings, metrics)
        gangs = GangActivities(ground.client, connector, cluster_uid=ground.cluster_uid, metrics=metrics, gangs=Gangs())
        kubeconfig = ground.settings.kubeconfig
        if kubeconfig_of is not None:
            kubeconfig = str(await doors.enter_async_context(kubeconfig_of(ground, folder)))
        given = Settings(
            cluster=ground.cluster,
            kubeconfig=kubeconfig,
            rendezvous_address="127.0.0.1:0",
            rendezvous_tls_cert_file=pair.certificate,
            rendezvous_tls_key_file=pair.key,
            rendezvous_tls_ca_file=authority.certificate,
        )
        health = Health()
        address = await open_door(
            doors, given, Connector(given, metrics), gangs.gangs, renewed_certificate(doors, given), metrics, health
        )
        ran = folder / "ran"
        ran.mkdir()
        crowd = Crowd(ground, ran, gangs, f"https://{address}", authority.certificate, metrics, health)
        await ground.client.start_workflow(ToldWorkload.run, id="told", task_queue=names.QUEUE_WORKFLOWS)
        try:
            async with crowd.hubs:
                await crowd.hubs.enter_async_context(hub(ground, gangs))
                yield crowd
                with suppress(RPCError):  # it may be over
                    await crowd.rendezvous.terminate()
        finally:
            for agent in crowd.agents.values():
                if agent.returncode is None:
                    agent.kill()
                    await agent.wait()
