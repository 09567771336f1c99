"""Elastic gangs of real processes: workers that print their ranks, found and signalled by process id."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from holdfast import names
from holdfast.agent.environment import ERROR_FILE
from holdfast.local import Stack
from holdfast.local.node.certificate import gang_door
from holdfast.model import Status
from holdfast.model.gang.status import GangStatus
from tests.e2e.ground.site import Site, asked, free_port, open_site, until
from tests.e2e.ground.space import Handle, Space

IMAGE = "holdfast.local/python:1"
FINISHES, FAILS, DIES = signal.SIGUSR1, signal.SIGUSR2, signal.SIGKILL
EXIT_CODE = 3
"""Of a worker that fails."""

_WORKER = """\
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
signal.signal(signal.SIGUSR1, lambda *_: sys.exit(0))
signal.signal(signal.SIGUSR2, lambda *_: sys.exit(3))
print("RANK", os.environ["RANK"], "WORLD_SIZE", os.environ["WORLD_SIZE"], flush=True)
while True:
    time.sleep(0.05)
"""
_GANG = {"lastCall": "1s", "joinTimeout": "60s", "heartbeat": "1s"}


@asynccontextmanager
async def open_gangs(
    stack: Stack, directory: Path, within: Site | None = None, kubeconfig: Path | None = None, **environment: str
) -> AsyncIterator[Site]:
    """Open a site whose worker is reached from the real node's pods, or start that worker in a site that is open."""
    async with AsyncExitStack() as opened:
        site = within or await opened.enter_async_context(open_site(stack, directory, prefix="g"))
        await site.start_worker(kubeconfig=kubeconfig, **await door(site), **environment)
        yield site


async def node_address(site: Site) -> str:
    """Return the address of this machine that the real node's pods reach."""
    node = await site.kube.find("v1", "Node", "real")
    if node is None:
        pytest.skip("this stack has no real node: holdfast dev up --real-node, as root")
    (address,) = [one["address"] for one in node["status"]["addresses"] if one["type"] == "InternalIP"]
    return address


async def door(site: Site) -> dict[str, str]:
    """Return the settings of a worker that the real node's pods reach."""
    return gang_door(site.directory, await node_address(site), free_port())


@dataclass(frozen=True, slots=True)
class Process:
    """A process of a gang, as the kernel has it: a worker, or an agent, which has no rank."""

    pid: int
    member: str
    rank: int | None
    world: int
    restarts: int
    round: str = ""
    """Of a worker: where its agent reads errors of its round, which tells one round from another."""


@dataclass
class Elastic:
    """A workload whose gang runs real processes."""

    space: Space
    handle: Handle
    marker: str

    @classmethod
    async def submit(cls, space: Space, least: int, most: int, **gang: Any) -> Elastic:
        """Start one."""
        marker = secrets.token_hex(8)
        return cls(space, await space.submit(document(marker, {**_GANG, "min": least, "max": most, **gang})), marker)

    # --- its processes

    async def processes(self) -> list[Process]:
        """Return its processes that live."""
        return await asyncio.to_thread(_found, self.marker)

    async def workers(self) -> list[Process]:
        """Return its workers, by rank."""
        found = [one for one in await self.processes() if one.rank is not None]
        return sorted(found, key=lambda one: one.rank or 0)

    async def agents(self) -> dict[str, int]:
        """Return the process ids of its agents, by member."""
        found = [one for one in await self.processes() if one.rank is None]
        return {one.member: min(each.pid for each in found if each.member == one.member) for one in found}

    async def indexes(self) -> dict[str, int]:
        """Return the completion indexes of its pods, by member."""
        pods = (await self.space.site.kube.list("v1", "Pod", self.space.namespace))["items"]
        key = "batch.kubernetes.io/job-completion-index"
        return {one["metadata"]["name"]: int(one["metadata"]["annotations"][key]) for one in pods}

    async def meets(self, size: int, seconds: float = 120, *, without: str = "") -> list[Process]:
        """Wait until so many workers run with contiguous ranks in a world of that size, and return them (row T11)."""
        seen: list[Process] = []

        async def check() -> bool:
            seen[:] = await self.workers()
            whole = [one.rank for one in seen] == list(range(size)) and {one.world for one in seen} == {size}
            # One that has not heard yet that its round is over has a place in a world of that size, too.
            whole = whole and len({one.round for one in seen}) == 1
            return whole and without not in {one.member for one in seen} and all(_traps(one.pid) for one in seen)

        await self.waits(check, seconds, f"{size} workers run in one round")
        return seen

    async def waits(self, check: Callable[[], Awaitable[bool]], seconds: float, what: str) -> None:
        """Wait until a check holds; who waits in vain is told where the gang stands, by everybody who knows."""
        try:
            await until(check, seconds, what, pause=0.2)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{await self.told()}") from None

    async def told(self) -> str:
        """Return where it stands, a line for each that can tell: processes, rendezvous, workload, pods, agents."""
        lines = [f"process: {one}" for one in await self.processes()]
        for who, asks in (("rendezvous", self.rendezvous), ("workload", self.status)):
            try:
                lines.append(f"{who}: {(await asyncio.wait_for(asks(), 10)).model_dump_json(exclude_defaults=True)}")
            except Exception as error:
                lines.append(f"{who}: {error!r}")
        for pod in (await self.space.site.kube.list("v1", "Pod", self.space.namespace))["items"]:
            name, status = pod["metadata"]["name"], pod.get("status", {})
            lines.append(f"pod {name}: {status.get('phase')} {status.get('containerStatuses')}")
            with contextlib.suppress(Exception):
                lines += [f"  {line}" for line in (await self._printed(name))[-8:]]
        return "\n".join(lines)

    async def signal(self, process: Process, what: signal.Signals) -> None:
        os.kill(process.pid, what)

    # --- what is said of it

    async def reaches(self, phase: str, seconds: float = 120) -> Status:
        """Wait until the workload is in a phase of its first attempt."""

        async def check() -> bool:
            status = await self.status()
            return (status.phase, status.attempt) == (phase, 1)

        await self.waits(check, seconds, f"it is {phase}")
        return await self.status()

    async def rendezvous(self) -> GangStatus:
        """Return where its gang stands, as its rendezvous says."""
        place = names.rendezvous_id(*names.parse_workflow_id(self.handle.id))
        client = self.space.site.client
        return await asked(lambda: client.get_workflow_handle(place).query(names.QUERY_STATUS, result_type=GangStatus))

    async def status(self) -> Status:
        return await self.space.site.status(self.handle)

    async def scale(self, most: int, least: int | None = None) -> dict[str, int]:
        handle: Any = self.handle
        return await handle.execute_update(names.UPDATE_SCALE, {"max": most, "min": least}, result_type=dict[str, int])

    async def logs(self, member: str) -> list[str]:
        """Return what a member's workers have printed."""
        return [line for line in await self._printed(member) if line.startswith("RANK ")]

    async def _printed(self, member: str) -> list[str]:
        space = self.space
        text = await asyncio.to_thread(space.site.stack.kubectl, "logs", "-n", space.namespace, member)
        return text.splitlines()

    async def prints(self, member: str, line: str) -> None:
        """Wait until this is the last that a member's workers have printed."""

        async def check() -> bool:
            return (await self.logs(member))[-1:] == [line]

        await until(check, 30, f"{member} prints {line}", pause=0.2)


def _traps(pid: int) -> bool:
    """Whether a worker has come so far that it answers its signals itself."""
    try:
        told = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    (caught,) = (int(line.split()[1], 16) for line in told.splitlines() if line.startswith("SigCgt:"))
    return all(caught >> number - 1 & 1 for number in (FINISHES, FAILS, signal.SIGTERM))


def document(marker: str, gang: dict[str, Any]) -> dict[str, Any]:
    """Return a workload whose members run the worker under Holdfast's agent, on the real node."""
    pod = {
        "restartPolicy": "Never",
        "nodeSelector": {"holdfast.dev/node": "real"},
        "tolerations": [{"key": "holdfast.dev/real", "operator": "Exists"}],
        "containers": [
            {
                "name": "agent",
                "image": IMAGE,
                "imagePullPolicy": "Never",
                "command": ["holdfast", "agent", "--", "python", "-c", f"# {marker}\n{_WORKER}"],
            }
        ],
    }
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"}, "spec": {"template": {"spec": pod}}}
    return {
        "apiVersion": names.API_VERSION,
        "kind": "Workload",
        "metadata": {"name": "train"},
        "spec": {
            "gang": gang,
            "policy": {"timings": {"retryPausePeriod": "1s", "forcefulDeletionGracePeriod": "90s"}},
            "components": [{"name": "trainer", "template": job}],
        },
    }


def _found(marker: str) -> list[Process]:
    found: list[Process] = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            command = (entry / "cmdline").read_bytes()
            told = (entry / "environ").read_bytes() if marker.encode() in command else b""
        except OSError:
            continue
        env = dict(one.split("=", 1) for one in told.decode(errors="replace").split("\0") if "=" in one)
        words = command.split(b"\0")
        if names.ENV_MEMBER not in env or not words[0].endswith(b"python"):
            continue
        rank = env.get("RANK")
        found.append(
            Process(
                int(entry.name),
                env[names.ENV_MEMBER],
                int(rank) if rank is not None else None,
                int(env.get("WORLD_SIZE", 0)),
                int(env.get("TORCHELASTIC_RESTART_COUNT", 0)),
                Path(env.get(ERROR_FILE, "")).parent.parent.name,
            )
        )
    return found
