"""A gang of real agents on a real API server and a real Temporal: who may speak, and what a loss costs."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client import Counter, Gauge
from temporalio.service import RPCError
from temporalio.worker import Worker

from holdfast import names
from holdfast.activities.facts.workload_key import WorkloadKey
from holdfast.local import Stack
from holdfast.model.calls.gang import GangBegin, GangEnd
from holdfast.model.gang.orders import GangEnding, GangOutcome, GangStatus
from holdfast.model.gang.state import Gang, GangPhase
from holdfast.worker.gangs.door import Door
from holdfast.worker.gangs.hub import GangActivities
from holdfast.worker.gangs.proof import Proofs
from holdfast.worker.gangs.sessions import Gangs
from holdfast.worker.runtime.health import listen
from holdfast.worker.runtime.kube import Connector
from holdfast.worker.runtime.metrics import Metrics
from holdfast.workflows.entities.rendezvous import Rendezvous
from tests.e2e.ground.site import until
from tests.worker.ground import Ground, opened
from tests.workflows.gathered import ToldWorkload

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
ROW = pytest.mark.row
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
    metrics: Metrics
    pods: dict[str, dict[str, Any]] = field(default_factory=dict)
    agents: dict[str, asyncio.subprocess.Process] = field(default_factory=dict)
    hubs: AsyncExitStack = field(default_factory=AsyncExitStack)

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
        async with aiohttp.ClientSession() as session, session.post(url, json=said, headers=headers) as answer:
            body = json.loads(await answer.text())
            return answer.status, str(body.get("error") or body.get("kind"))

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


@pytest.fixture
async def crowd(stack: Stack, tmp_path: Path) -> AsyncIterator[Crowd]:
    async with opened(stack, tmp_path, [Rendezvous, ToldWorkload]) as ground:
        metrics = Metrics()
        connector = Connector(ground.settings, metrics)
        gangs = GangActivities(ground.client, connector, cluster_uid=ground.cluster_uid, metrics=metrics, gangs=Gangs())
        kube = await connector()
        runner, address = await listen(Door(gangs.gangs, Proofs(kube), metrics).application(), "127.0.0.1:0")
        folder = tmp_path / "ran"
        folder.mkdir()
        crowd = Crowd(ground, folder, gangs, f"http://{address}", metrics)
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
            await runner.cleanup()
            await kube.close()


def _value(metric: Counter | Gauge) -> float:
    return next(iter(next(iter(metric.collect())).samples)).value


@ROW("T9", level="e2e")
async def test_T9_four_agents_meet_one_is_killed_and_the_others_form_the_next_round_within_seconds(crowd: Crowd):
    members = [f"gang-{index}" for index in range(4)]
    for name in members:
        await crowd.pod(name)
    begin = crowd.begin(min=3, last_call=timedelta(seconds=5))
    await crowd.gangs.begin_gang(begin)
    # It may be repeated, whoever else has begun it meanwhile.
    await crowd.gangs.begin_gang(begin)
    for name in members:
        await crowd.agent(name)
    assert sorted((await crowd.ran(4)).values()) == [0, 1, 2, 3]
    before = (await crowd.status()).round
    for file in crowd.folder.glob("gang-*-3-*"):
        file.unlink()  # Of a round before all had joined.
    killed = time.time()
    crowd.agents["gang-2"].send_signal(signal.SIGKILL)
    pod = crowd.pods["gang-2"]["metadata"]
    await crowd.ground.kube.delete("v1", "Pod", "gang-2", crowd.ground.namespace, uid=pod["uid"], grace_period=0)
    ranks = await crowd.ran(3)
    assert sorted(ranks.values()) == [0, 1, 2]
    assert "gang-2" not in ranks
    took = max(float((crowd.folder / f"{name}-3-{rank}").read_text()) for name, rank in ranks.items()) - killed
    print(f"MEASURED {took:.1f} s from the kill until all others ran in the next round")
    status = await crowd.status()
    assert (status.round, status.charged, status.absent) == (before + 1, {}, {"gang-2": "its pod is gone"})
    (crowd.folder / "finish").touch()
    for name in ranks:
        assert await asyncio.wait_for(crowd.agents[name].wait(), 60) == 0
    told = list[GangOutcome]()

    async def is_told() -> bool:
        told[:] = await crowd.ground.client.get_workflow_handle("told").query("told", result_type=list[GangOutcome])
        return bool(told)

    await until(is_told, 60, "the workload is told how its gang ended")
    assert [one.ending for one in told] == [GangEnding.SUCCEEDED]
    await crowd.rendezvous.signal(names.SIGNAL_END, GangEnd(workload_uid=UID, attempt=1))
    await asyncio.wait_for(crowd.rendezvous.result(), 60)
    history = await crowd.rendezvous.fetch_history()
    updates = sum(1 for one in history.events if one.HasField("workflow_execution_update_accepted_event_attributes"))
    print(f"MEASURED {updates} updates and {len(history.events)} events for two rounds of four")
    # A gang that runs costs nothing: what is told is joins, starts, the loss, and the end.
    assert updates <= 10 * (before + 1)


@ROW("D4", level="e2e")
@pytest.mark.parametrize(("size", "dead"), [(2, 1), (4, 2), (4, 3)])
async def test_D4_a_gang_of_which_half_or_more_falls_silent_begins_a_new_round(crowd: Crowd, size: int, dead: int):
    members = [f"gang-{index}" for index in range(size)]
    for name in members:
        await crowd.pod(name)
    settings = {"min": 1, "max": size, "heartbeat": timedelta(seconds=1), "last_call": timedelta(seconds=5)}
    begin = crowd.begin(**settings)
    await crowd.gangs.begin_gang(begin)
    for name in members:
        await crowd.agent(name)
    await crowd.ran(size)
    before = (await crowd.status()).round
    for file in crowd.folder.glob(f"gang-*-{size - dead}-*"):
        file.unlink()  # Of a round before all had joined.
    for name in members[:dead]:
        # Their pods stay as they are: the cluster says nothing of it.
        crowd.agents[name].kill()
    killed = time.monotonic()
    ranks = await crowd.ran(size - dead, begin.gang.keep_alive.total_seconds() + 30)
    print(f"MEASURED {time.monotonic() - killed:.1f} s until {size - dead} of {size} ran in the next round")
    assert set(ranks) == set(members[dead:])
    status = await crowd.status()
    assert status.round > before
    assert (status.charged, set(status.absent)) == ({}, set(members[:dead]))


async def test_a_hub_that_dies_is_followed_by_another_and_nobody_is_lost(crowd: Crowd):
    members = ["gang-0", "gang-1"]
    for name in members:
        await crowd.pod(name)
    await crowd.gangs.begin_gang(crowd.begin(min=2, max=2))
    for name in members:
        await crowd.agent(name)
    await crowd.ran(2)
    before = (await crowd.status()).hub
    await crowd.hubs.aclose()  # With it goes all that it knew.
    async with hub(crowd.ground, crowd.gangs):
        (crowd.folder / "finish").touch()
        for name in members:
            assert await asyncio.wait_for(crowd.agents[name].wait(), 90) == 0
    status = await crowd.status()
    assert status.hub > before
    assert (status.round, status.charged, status.phase) == (1, {}, GangPhase.CLOSED)


async def test_a_hub_that_is_ended_while_the_rendezvous_does_not_answer_ends_and_comes_back_not(crowd: Crowd):
    for name in ("gang-0", "gang-1"):
        await crowd.pod(name)
        await crowd.gangs.begin_gang(crowd.begin(min=1, max=2))
        await crowd.agent(name)
    await crowd.ran(2)
    await crowd.ground.deciding.shutdown()
    pod = crowd.pods["gang-1"]["metadata"]
    await crowd.ground.kube.delete("v1", "Pod", "gang-1", crowd.ground.namespace, uid=pod["uid"], grace_period=0)
    failed, served = crowd.metrics.gang_updates.labels("failed"), crowd.metrics.gangs

    async def in_vain() -> bool:
        return _value(failed) > 0

    async def over() -> bool:
        return _value(served) == 0

    await until(in_vain, 60, "an update has failed")
    await asyncio.sleep(2)  # By now the next is under way.
    # Else it would attach for ever, against whoever serves the gang after it.
    assert _value(served) == 1
    await asyncio.wait_for(crowd.hubs.aclose(), 20)
    await until(over, 5, "the hub has ended")


async def test_only_a_pod_of_the_gang_may_speak_and_only_for_itself(crowd: Crowd):
    for name, attempt, uid in (("gang-0", 1, UID), ("gang-1", 1, UID), ("old-0", 2, UID), ("foreign", 1, "uid-2")):
        await crowd.pod(name, attempt, uid)
    token = await crowd.token("gang-0")
    assert (await crowd.post("gang-0", token))[0] == 421
    await crowd.gangs.begin_gang(crowd.begin())
    await crowd.served()
    assert await crowd.post("gang-0", token) == (200, "Wait")
    assert (await crowd.post("gang-0", None))[0] == 401
    assert (await crowd.post("gang-0", "nonsense"))[0] == 401
    assert (await crowd.post("gang-0", await crowd.token("gang-0", "https://kubernetes.default.svc")))[0] == 401
    status, why = await crowd.post("gang-1", token)
    assert (status, "the token is of pod gang-0" in why) == (403, True)
    status, why = await crowd.post("foreign", await crowd.token("foreign"))
    assert (status, "is of workload uid-2" in why) == (403, True)
    status, why = await crowd.post("old-0", await crowd.token("old-0"))
    assert (status, "is of attempt 2" in why) == (403, True)
    assert (await crowd.post("gang-0", token, attempt=0))[0] == 400
    assert (await crowd.post("gang-0", token, workload="uid-2"))[0] == 421
