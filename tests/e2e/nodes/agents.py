"""Agents of fake nodes: a KWOK process of a test's own renews their leases and plays their pods, until it is killed.

Dead, it is a rack without power: no lease is renewed, no status said, and no pod that is deleted ever goes.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml

from holdfast.activities.kube.client import Kube
from holdfast.local import Stack
from holdfast.local.system.parts import Layout, kwok
from holdfast.local.system.ports import choose
from tests.e2e.ground.nodes import AGENT, Nodes, each, open_nodes
from tests.e2e.ground.site import until

LEASES = ("coordination.k8s.io/v1", "Lease")
SHORT_SILENCE = {
    "HOLDFAST_NODE_DEGRADED": "13s",
    "HOLDFAST_NODE_DOWN": "6s",
    "HOLDFAST_NODE_SENSITIVE_DOWN": "12s",
    "HOLDFAST_NODE_CHECK": "3s",
}
"""Other nodes of the stack, a real one among them, renew their leases every ten seconds, as kubelets do."""


class Agents:
    """The process behind some fake nodes."""

    def __init__(self, stack: Stack, directory: Path, name: str, lease_seconds: int, heartbeat: float) -> None:
        self.name = name
        self._stack, self._directory, self._seconds, self._heartbeat = stack, directory, lease_seconds, heartbeat
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; leases are renewed four times in each duration."""
        layout = Layout(self._stack.directory)
        ports = choose(["kwok"])
        part = kwok(layout, str(self._stack.binary("kwok")), ports)
        (given,) = (word for word in part.argv if word.startswith("--config="))
        config, *stages = yaml.safe_load_all(Path(given.removeprefix("--config=")).read_text())
        config["options"] |= {
            "manageNodesWithAnnotationSelector": f"kwok.x-k8s.io/node={self.name}",
            # A label, since KWOK is told when a node loses it, and plays that node no longer.
            "manageNodesWithLabelSelector": f"{AGENT}={self.name}",
            "nodeLeaseDurationSeconds": self._seconds,
            "nodeLeaseParallelism": 16,
        }
        (beats,) = (stage for stage in stages if stage["metadata"]["name"] == "node-heartbeat")
        beats["spec"]["delay"] = {"durationMilliseconds": int(self._heartbeat * 1000)}
        path = self._directory / f"kwok-{self.name}.yaml"
        path.write_text(yaml.safe_dump_all([config, *stages]))
        argv = [word if word != given else f"--config={path}" for word in part.argv]
        with (self._directory / f"kwok-{self.name}.log").open("ab") as out:
            self._process = subprocess.Popen(argv, stdout=out, stderr=out)

    def kill(self) -> None:
        """Kill it with -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    async def lose(self, nodes: Nodes, names: Sequence[str]) -> None:
        """Have some of its nodes lose power, as all of them do when it is killed; the others live on."""
        await each(lambda name: nodes.label(name, AGENT, None), names)

    def pause(self) -> None:
        """Freeze it."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGCONT)


@asynccontextmanager
async def open_agents(
    stack: Stack,
    kube: Kube,
    directory: Path,
    count: int,
    *,
    lease_seconds: int = 4,
    group: str = "",
    heartbeat: float = 10.0,
) -> AsyncIterator[tuple[Nodes, Agents]]:
    """Make some nodes whose leases are renewed by an agent of their own, and wait until they are.

    Args:
        stack: on which.
        kube: with an administrator's rights.
        directory: for the agent's log and configuration.
        count: how many nodes.
        lease_seconds: how long a lease lasts; it is renewed every quarter of that.
        group: the group of nodes that they join, so that pods may run here or there; empty: one of their own.
        heartbeat: seconds between two words of a node in its own status, which is no lease.
    """
    agents = Agents(stack, directory, f"a{secrets.token_hex(3)}", lease_seconds, heartbeat)
    await asyncio.to_thread(agents.start)
    try:
        async with open_nodes(kube, count, agent=agents.name, group=group) as nodes:

            async def leased() -> bool:
                found = (await kube.list(*LEASES, "kube-node-lease"))["items"]
                return {one["metadata"]["name"] for one in found} >= set(nodes.names)

            await until(leased, 60 + count / 20, f"{count} nodes have a lease", pause=0.05 + count / 2000)
            yield nodes, agents
    finally:
        agents.kill()


async def lease_of(kube: Kube, node: str) -> dict[str, Any]:
    """Return the lease of a node."""
    return await kube.get(*LEASES, node, "kube-node-lease")
