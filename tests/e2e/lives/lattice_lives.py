"""Lives of Lattice's allocations, for the crash harness: lost and silent nodes, launches, walltimes, probes."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from holdfast import names
from holdfast.activities.kube.client import Conflict
from holdfast.policy.verdicts.walltime import WalltimeExtension
from tests.activities.operations.test_askers import own_address
from tests.e2e.ground.nodes import GROUP, open_nodes
from tests.e2e.ground.site import free_port, until
from tests.e2e.ground.space import PENDING, Handle, Space, pod_template
from tests.e2e.lives import lattice
from tests.e2e.lives.lattice import NAME, allocation
from tests.e2e.nodes.agents import open_agents

Pod = dict[str, Any]


async def _bound(space: Space, attempt: int, *, node: bool = True) -> Pod:
    """Wait for a pod of an attempt, until it has a node (or, if that is not asked for, is there)."""
    found: list[Pod] = []

    async def check() -> bool:
        pods = [one for one in await space.pods(NAME) if one["metadata"]["labels"][names.LABEL_ATTEMPT] == str(attempt)]
        found[:] = [one for one in pods if one["spec"].get("nodeName") or not node]
        return bool(found)

    await until(check, 150, f"a pod of attempt {attempt} has a node")
    return found[0]


async def _says(space: Space, attempt: int, status: dict[str, Any]) -> None:
    """Say this of an attempt's pod, as its kubelet would."""
    while True:
        pod = (await _bound(space, attempt))["metadata"]
        change: dict[str, Any] = {"uid": pod["uid"], "resource_version": pod["resourceVersion"]}
        with contextlib.suppress(Conflict):
            await space.site.kube.patch(
                "v1", "Pod", pod["name"], space.namespace, patch={"status": status}, subresource="status", **change
            )
            return


def _container(state: dict[str, Any], *, ready: bool = False) -> dict[str, Any]:
    image = "example.com/train:1"
    return {"name": "main", "image": image, "imageID": "", "ready": ready, "restartCount": 0, "state": state}


# --- back to the queue, and a person's word


async def loses_its_node(space: Space, handle: Handle) -> None:
    """Run, be requeued, run again and complete."""
    await space.reach(handle, "Running", 1)
    await lattice.loses_its_node(space)
    await space.reach(handle, "Running", 2)
    await space.complete(NAME)


async def waits_for_a_person(space: Space, handle: Handle) -> None:
    """Have a person run it again; then its walltime runs out by itself."""
    await space.reach(handle, "Running", 1)
    await lattice.loses_its_node(space)
    await space.reach(handle, "Pending", 1)
    await handle.signal(names.SIGNAL_RETRY, "looked into it")


async def is_extended(space: Space, handle: Handle) -> None:
    """Be given more walltime, which the attempt after a requeue has as well, until that is over by itself."""
    before = await space.reach(handle, "Running", 1)
    change = WalltimeExtension(by="5s", note="more data came").model_dump(mode="json")
    # With an id of its own, an update that is sent again is the same one.
    await handle.execute_update(names.UPDATE_EXTEND, change, id="extend", result_type=dict[str, Any])
    after = await space.reach(handle, "Running", 1)
    assert before.walltime_until is not None
    assert after.walltime_until is not None
    assert (after.walltime_until - before.walltime_until).total_seconds() == 5
    await lattice.loses_its_node(space)
    until_then = (await space.reach(handle, "Running", 2)).walltime_until
    assert until_then is not None
    status = await space.ended(handle)
    assert status.failure is not None
    assert status.failure.message == "its walltime of 30s is over"
    assert until_then <= status.failure.time < datetime.now(UTC)


# --- a launch that its node cannot do is tried on another, charged to a budget of its own


def launches() -> dict[str, Any]:
    """Return a Job of one pod that no node starts by itself."""
    template = pod_template(labels=PENDING, annotations={"holdfast.dev/kwok-delete-delay": "1s"})
    settings = {"profile": "lattice-batch", "retryPausePeriod": "0s", "successTTL": "0s"}
    notes = {f"{names.GROUP}/{key}": value for key, value in settings.items()}
    spec = {"backoffLimit": 0, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": NAME, "annotations": notes}, "spec": spec}


async def fails_to_launch(space: Space, handle: Handle) -> None:
    """Be refused by the first node's kubelet, and run on another."""
    begun = (await _bound(space, 1))["metadata"]["creationTimestamp"]
    failed = {"terminated": {"exitCode": 128, "reason": "StartError", "finishedAt": begun}}
    await _says(space, 1, {"phase": "Failed", "containerStatuses": [_container(failed)]})
    again = (await _bound(space, 2))["metadata"]["name"]
    await space.patch("v1", "Pod", again, {"metadata": {"labels": dict.fromkeys(PENDING)}})
    await space.reach(handle, "Running", 2)
    await space.complete(NAME)


# --- a node whose agent falls silent


def has_a_place_of_its_own() -> str:
    """Return two pods that run on nodes of a group of their own, which are still to be made."""
    spec = pod_template()["spec"]
    spec["nodeSelector"] = {GROUP: f"g{secrets.token_hex(3)}"}
    spec["tolerations"] = [{"key": GROUP, "operator": "Exists"}]
    return allocation("batch", spec, spec)


async def has_its_node_fall_silent(space: Space, handle: Handle) -> None:
    """Run on a node that loses its power, be found there no more, and run on another."""
    group = (await _bound(space, 1, node=False))["spec"]["nodeSelector"][GROUP]
    site = space.site
    async with open_agents(site.stack, site.kube, site.directory, 1) as (nodes, agents):
        # Only now: KWOK can miss a pod that is bound to a node just as it takes that over.
        await nodes.label(nodes.names[0], GROUP, group)
        await space.reach(handle, "Running", 1)
        async with open_nodes(site.kube, 1, group=group) as others:
            agents.kill()
            status = await space.reach(handle, "Running", 2)
            (why,) = [cause.message for cause in status.causes if cause.reason == "Requeued"]
            # Told late, as by a worker that died twice meanwhile, it is Down for sensitive workloads too.
            assert "NodeDown on own-" in why or "NodeStillDown on own-" in why, why
            places = {one["spec"]["nodeName"] for one in await space.pods(NAME)}
            assert places == set(others.names), f"{places}, expected {others.names}"
            await space.complete(NAME)
            await space.ended(handle)


# --- a service that does not answer any more


def serves() -> dict[str, Any]:
    """Return a service of one pod, which its test plays: at this machine's address, at a port that is free."""
    template = pod_template(name=NAME, labels=PENDING, annotations={"holdfast.dev/kwok-delete-delay": "1s"})
    port = free_port()
    template["spec"]["containers"][0]["ports"] = [{"containerPort": port}]
    return {
        "schemaVersion": 1,
        "name": NAME,
        "lifecycle": {"kind": "Unbounded"},
        "policy": {"profile": "lattice-service", "timings": {"retryPausePeriod": "1s", "successTtl": "0s"}},
        "probe": {
            "kind": "HTTP",
            "port": port,
            "path": "/healthz",
            "initialDelay": "1s",
            "period": "2s",
            "timeout": "2s",
        },
        "components": [{"name": "main", "template": {"apiVersion": "v1", "kind": "Pod", **template}}],
    }


class Server:
    """What listens where the pods are said to be."""

    def __init__(self) -> None:
        self.well = True
        self.asked = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            self.asked += 1
            said = "200 OK" if self.well else "503 Service Unavailable"
            writer.write(f"HTTP/1.1 {said}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
            await writer.drain()
        writer.close()

    async def twice(self) -> None:
        """Wait until it has been asked twice more."""
        goal = self.asked + 2

        async def check() -> bool:
            return self.asked >= goal

        await until(check, 60, "its pod has been asked twice more")


@asynccontextmanager
async def _listening(port: int) -> AsyncIterator[Server]:
    server = Server()
    async with await asyncio.start_server(server.answer, own_address(), port, reuse_address=True):
        yield server


async def _runs_here(space: Space, attempt: int) -> None:
    """Have an attempt's pod run, with the address of this machine."""
    now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    kinds = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")
    status = {
        "phase": "Running",
        "startTime": now,
        "podIP": own_address(),
        "podIPs": [{"ip": own_address()}],
        "conditions": [{"type": one, "status": "True", "lastTransitionTime": now} for one in kinds],
        "containerStatuses": [_container({"running": {"startedAt": now}}, ready=True)],
    }
    await _says(space, attempt, status)


async def stops_answering(space: Space, handle: Handle) -> None:
    """Serve, say three times in a row that it cannot, be requeued, and serve again."""
    port = (await _bound(space, 1))["spec"]["containers"][0]["ports"][0]["containerPort"]
    async with _listening(port) as server:
        await _runs_here(space, 1)
        await space.reach(handle, "Running", 1)
        await server.twice()
        server.well = False
        await _bound(space, 2)
        server.well = True
        await _runs_here(space, 2)
        status = await space.reach(handle, "Running", 2)
        (why,) = [cause.message for cause in status.causes if cause.reason == "Requeued"]
        assert f"GET :{port}/healthz failed 3 times in a row: HTTP 503" in why
        await server.twice()
        await space.complete(NAME)
        await space.ended(handle)
