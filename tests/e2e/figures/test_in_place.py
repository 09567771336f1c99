"""Restarts in place with real containers: the kubelet restarts them, and the pods stay (row J24).

Each program is a `sleep` whose seconds name its in-place restart attempt, so the processes of the machine show which
attempts run at a time.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

import holdfast
from holdfast import names
from holdfast.local import Stack
from holdfast.model import OperationKind
from tests.e2e.ground.held import open_real
from tests.e2e.ground.site import open_site, until
from tests.e2e.ground.space import FOREIGN_FINALIZER, Handle, Space
from tests.e2e.jobset.jobset_life import Json, counted, ended, reach, told
from tests.e2e.nodes.test_real_node import real as real
from tests.e2e.peers.jobsets import jobset

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.real_node,
    pytest.mark.timeout(600),
    pytest.mark.asyncio(loop_scope="session"),
]
ROW = pytest.mark.row
PODS = 3
MAX_INT32 = 2**31 - 1
RULES = [{"action": "RestartAllContainers", "exitCodes": {"operator": "NotIn", "values": [0]}}]
SOURCES = Path(holdfast.__file__).parent


def in_place(name: str, token: int, **policy: Any) -> Json:
    """Return a JobSet of three pods on the real node, as the published example has it, with Holdfast's own agent."""
    placed = {
        "nodeSelector": {"holdfast.dev/node": "real"},
        "tolerations": [{"key": "holdfast.dev/real", "operator": "Exists"}],
        "terminationGracePeriodSeconds": 1,
    }
    agent = {
        "name": "in-place-restart-agent",
        "image": "holdfast.local/python:1",
        "imagePullPolicy": "Never",
        "command": ["python", "-m", "holdfast.agent", "in-place"],
        "env": [{"name": "PYTHONPATH", "value": "/agent"}],
        "restartPolicy": "Always",
        "restartPolicyRules": RULES,
        "startupProbe": {
            "httpGet": {"path": "/barrier-is-down", "port": 8081},
            "failureThreshold": 600,
            "periodSeconds": 1,
        },
        "volumeMounts": [{"name": "agent", "mountPath": "/agent"}],
    }
    program = {
        "name": "worker",
        "image": "holdfast.local/busybox:1",
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", f'exec sleep {token}$(cat "$HOLDFAST_IN_PLACE_RESTART_ATTEMPT_FILE")'],
        "restartPolicy": "Never",
        "restartPolicyRules": RULES,
    }
    volume = {"name": "agent", "configMap": {"name": "agent", "items": [*_files()]}}
    pods = {**placed, "volumes": [volume], "initContainers": [agent], "containers": [program]}
    job = {
        "completions": PODS,
        "parallelism": PODS,
        "completionMode": "Indexed",
        "backoffLimit": MAX_INT32,
        "podReplacementPolicy": "Failed",
        "template": {"spec": pods},
    }
    failure = {"maxRestarts": 3, "restartStrategy": "InPlaceRestart", **policy}
    return jobset(name, {"name": "workers", "template": {"spec": job}}, failurePolicy=failure)


def _files() -> list[Json]:
    """Return the agent's source files: the image on the node may be older than they are."""
    paths = [SOURCES / "__init__.py", SOURCES / "names.py", *sorted((SOURCES / "agent").glob("*.py"))]
    return [
        {"key": "-".join(one.relative_to(SOURCES).parts), "path": f"holdfast/{one.relative_to(SOURCES)}"}
        for one in paths
    ]


async def with_agent(space: Space) -> None:
    """Put the agent's source into the namespace."""
    data = {one["key"]: (SOURCES.parent / one["path"]).read_text() for one in _files()}
    await space.site.kube.create(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "agent", "namespace": space.namespace},
            "data": data,
        }
    )


class Processes:
    """The programs of one JobSet on this machine: which in-place restart attempts run, and whether two ever did."""

    def __init__(self, token: int) -> None:
        self._token = str(token)
        self.mixed: list[set[str]] = []

    def pids(self) -> dict[int, str]:
        """Return the attempt of each program that runs now, by its process id."""
        found: dict[int, str] = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    words = (entry / "cmdline").read_bytes().split(b"\0")
                except OSError:
                    continue
                if words[0] == b"sleep" and words[1].decode().startswith(self._token):
                    found[int(entry.name)] = words[1].decode().removeprefix(self._token)
        return found

    def kill(self) -> None:
        """Kill one of them with -9."""
        os.kill(min(self.pids()), signal.SIGKILL)

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Look again and again, and record each moment with programs of two attempts."""

        async def watch() -> None:
            while True:
                attempts = set((await asyncio.to_thread(self.pids)).values())
                if len(attempts) > 1:
                    self.mixed.append(attempts)
                await asyncio.sleep(0.02)

        task = asyncio.create_task(watch())
        try:
            yield
        finally:
            task.cancel()

    async def run(self, attempt: int, pods: int = PODS) -> None:
        """Wait until all programs run at an attempt."""

        seen: list[str] = []

        async def all_run() -> bool:
            seen[:] = sorted((await asyncio.to_thread(self.pids)).values())
            return seen == [str(attempt)] * pods

        await until(all_run, 120, lambda: f"{pods} programs run at in-place restart attempt {attempt}: {seen}")


async def places(space: Space) -> set[tuple[str, str, str]]:
    """Return the uid, node and address of each pod."""
    pods = await space.site.objects("v1", "Pod", space.namespace)
    return {(one["metadata"]["uid"], one["spec"]["nodeName"], one["status"].get("podIP", "")) for one in pods}


@pytest_asyncio.fixture(loop_scope="session")
async def ground(real: Space) -> Space:
    """A namespace for pods of the real node, with the agent."""
    await with_agent(real)
    return real


async def began(space: Space, token: int, **policy: Any) -> tuple[Handle, Json, Processes]:
    """Submit a JobSet, and wait until all its programs run."""
    document = in_place("train", token, **policy)
    handle = await space.submit(document)
    programs = Processes(token)
    await programs.run(0)
    await reach(space, handle, "Running", 1)
    return handle, document, programs


def token() -> int:
    return 10_000_000 + secrets.randbelow(80_000_000)


@ROW("J24", level="e2e")
async def test_J24_a_failed_program_restarts_all_pods_where_they_are(ground: Space):
    handle, document, programs = await began(ground, token())
    before = await places(ground)
    assert len(before) == PODS
    async with programs.watched():
        for number in (1, 2):
            await asyncio.to_thread(programs.kill)
            await programs.run(number)
            status = await reach(ground, handle, "Running", 1)
            assert (status.restarts, status.executions) == (number, 1)
    assert programs.mixed == [], "no process begins before all of the attempt before it are dead"
    assert await places(ground) == before, "uid, node and address stay"
    found = await told(ground, handle, document)
    assert counted(found) == (2, 2)
    assert (found["previousInPlaceRestartAttempt"], found["currentInPlaceRestartAttempt"]) == (1, 2)
    acts = [act.name for act in await ground.acts(handle)]
    assert (acts.count(OperationKind.BARRIER), acts.count(OperationKind.REMOVE)) == (3, 0)


@ROW("J24", level="e2e")
async def test_J24_after_the_maximum_of_restarts_the_set_fails_as_published(ground: Space):
    handle, document, programs = await began(ground, token(), maxRestarts=0)
    await asyncio.to_thread(programs.kill)
    await reach(ground, handle, "Failed", 1)
    found = await told(ground, handle, document)
    assert ended(found) == ("ReachedMaxRestarts", "jobset failed due to reaching max number of restarts")


@ROW("J24", level="e2e")
async def test_J24_after_a_pod_was_deleted_all_begin_together(ground: Space):
    handle, _, programs = await began(ground, token())
    before = await places(ground)
    (lost, *_) = sorted(before)
    pods = {one["metadata"]["uid"]: one for one in await ground.site.objects("v1", "Pod", ground.namespace)}
    async with programs.watched():
        await ground.site.kube.delete("v1", "Pod", pods[lost[0]]["metadata"]["name"], ground.namespace, uid=lost[0])
        await programs.run(1)
    assert programs.mixed == []
    status = await reach(ground, handle, "Running")
    assert status.restarts == 1
    # The Job may replace the pod before it is gone: then it is still being deleted, which means a new attempt.
    assert (status.attempt, len(await places(ground) & before)) in {(1, PODS - 1), (2, 0)}


@ROW("J24", level="e2e")
async def test_J24_while_a_pod_is_still_going_a_restart_means_a_new_attempt(ground: Space):
    handle, _, programs = await began(ground, token())
    before = await places(ground)
    (pod, *_) = await ground.site.objects("v1", "Pod", ground.namespace)
    name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
    await ground.finalize("v1", "Pod", name, FOREIGN_FINALIZER)
    async with programs.watched():
        await ground.site.kube.delete("v1", "Pod", name, ground.namespace, uid=uid)
        await reach(ground, handle, "Resetting", 1)
        await ground.finalize("v1", "Pod", name)
        await programs.run(1)
    assert programs.mixed == []
    status = await reach(ground, handle, "Running", 2)
    (reset,) = [one.message for one in status.causes if one.reason == "Resetting"]
    assert "it is recreated, since a pod of it is being deleted" in reset
    assert not before & await places(ground)


@ROW("J24", level="e2e")
@pytest.mark.parametrize("written", [names.ANNOTATION_RESTART_REQUEST, names.ANNOTATION_IN_PLACE_ATTEMPT])
async def test_J24_a_worker_killed_while_pods_restart_changes_nothing(stack: Stack, tmp_path: Path, written: str):
    async with open_site(stack, tmp_path, prefix="m") as site:
        worker = await site.start_worker()
        async with open_real(site) as space:
            await with_agent(space)
            handle, _, programs = await began(space, token())
            before = await places(space)

            async def is_written() -> bool:
                pods = await site.objects("v1", "Pod", space.namespace)
                return any(one["metadata"]["annotations"].get(written) == "1" for one in pods)

            async with programs.watched():
                await asyncio.to_thread(programs.kill)
                await until(is_written, 60, f"a pod has {written} 1")
                worker.kill()
                await site.start_worker()
                await programs.run(1)
            status = await reach(space, handle, "Running", 1)
            assert (status.restarts, status.executions) == (1, 1)
            assert programs.mixed == []
            assert await places(space) == before
