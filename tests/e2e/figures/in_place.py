"""JobSets that restart in place with real containers on this machine's kubelet, and their processes (row J24).

Each program is a `sleep` whose seconds name its in-place restart attempt, so the processes of the machine show which
attempts run at a time.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import holdfast
from holdfast import names
from tests.e2e.ground.site import until
from tests.e2e.ground.space import Space
from tests.e2e.peers.jobsets import jobset

Json = dict[str, Any]
PODS = 3
MAX_INT32 = 2**31 - 1
RULES = [{"action": "RestartAllContainers", "exitCodes": {"operator": "NotIn", "values": [0]}}]
SOURCES = Path(holdfast.__file__).parent


def in_place(name: str, token: int, pods: int = PODS, **policy: Any) -> Json:
    """Return a JobSet of pods on the real node, as the published example has it, with Holdfast's own agent."""
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
        "command": ["sh", "-c", f'exec sleep {token}$(cat "${names.ENV_IN_PLACE_ATTEMPT_FILE}")'],
        "restartPolicy": "Never",
        "restartPolicyRules": RULES,
    }
    volume = {"name": "agent", "configMap": {"name": "agent", "items": [*_files()]}}
    spec = {**placed, "volumes": [volume], "initContainers": [agent], "containers": [program]}
    job = {
        "completions": pods,
        "parallelism": pods,
        "completionMode": "Indexed",
        "backoffLimit": MAX_INT32,
        "podReplacementPolicy": "Failed",
        "template": {"spec": spec},
    }
    failure = {"maxRestarts": 3, "restartStrategy": "InPlaceRestart", **policy}
    return jobset(name, {"name": "workers", "template": {"spec": job}}, failurePolicy=failure)


def pod_of(document: Json) -> Json:
    """Return the pod spec of such a JobSet."""
    return document["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]


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

    async def run(
        self, attempt: int, pods: int = PODS, seconds: float = 120, without: Collection[int] = frozenset()
    ) -> None:
        """Wait until all programs run at an attempt, and none of the processes `without`."""

        seen: list[str] = []

        async def all_run() -> bool:
            running = await asyncio.to_thread(self.pids)
            seen[:] = sorted(running.values())
            return seen == [str(attempt)] * pods and running.keys().isdisjoint(without)

        await until(all_run, seconds, lambda: f"{pods} programs run at in-place restart attempt {attempt}: {seen}")


async def places(space: Space) -> set[tuple[str, str, str]]:
    """Return the uid, node and address of each pod."""
    pods = await space.site.objects("v1", "Pod", space.namespace)
    return {(one["metadata"]["uid"], one["spec"]["nodeName"], one["status"].get("podIP", "")) for one in pods}


def token() -> int:
    """Return a number that no other program sleeps for."""
    return 10_000_000 + secrets.randbelow(80_000_000)
