"""`holdfast demo --elastic`: real processes train on a real kubelet; members are killed, added and preempted.

The same training runs twice, once undisturbed. Both runs must end with the same result, to the last bit.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from holdfast.cli.demo.setup import NAMESPACE, enabled, free_port, named, say, worker
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.client import Run
    from holdfast.local import Stack

FILE: Final = "elastic.yaml"
_DEADLINE: Final = 300.0
_TRAINER: Final = b"/code/train.py"
_TOLD: Final = ("rank ", "from step ", "result ")
"""Beginnings of the lines that the training prints."""


def elastic(stack: Stack, keep: bool) -> bool:
    """Run both trainings on a stack with a real node, and return whether their results are equal."""
    from holdfast.local.identity import worker_kubeconfig
    from holdfast.local.node.certificate import gang_door
    from holdfast.local.node.real_node import RealNode

    say("\n2. A worker, which also serves the rendezvous of elastic gangs")
    asyncio.run(enabled(stack))
    door = gang_door(stack.directory, RealNode(stack.directory).address, free_port())
    folder = Path("/var/tmp") / f"holdfast-elastic-{secrets.token_hex(8)}"  # noqa: S108 - its name is random
    try:
        with worker(stack, worker_kubeconfig(stack), keep, door) as log:
            try:
                return asyncio.run(_both(stack, folder))
            except TimeoutError:
                say(f"   not done after {_DEADLINE:.0f} s; the worker's log: {log}")
                return False
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def _both(stack: Stack, folder: Path) -> bool:
    from holdfast.client import Holdfast

    environment = stack.environment
    async with (
        asyncio.timeout(_DEADLINE),
        Holdfast.connect(environment["TEMPORAL_ADDRESS"], environment["TEMPORAL_NAMESPACE"], stack.name) as holdfast,
    ):
        say("\n3. Four members train, and nothing happens to them\n")
        calm = _Training(stack, await holdfast.submit(_workload(stack, "calm", folder, least=4)))
        await calm.follow(lambda: calm.result is not None)
        await calm.run.result()
        say("\n4. The same training, begun by three of up to four members\n")
        rough = _Training(stack, await holdfast.submit(_workload(stack, "rough", folder, least=2, most=3)))
        await rough.follow(lambda: rough.world == 3 and rough.steps_done(folder / "rough") > 10)
        say(f"\n   A worker is killed with -9: its member, {rough.kill()}, is charged; all meet again\n")
        await rough.follow(lambda: rough.rounds > 1 and rough.world == 3)
        before = rough.rounds
        say(f"\n   $ holdfast scale {rough.run.namespace}/{rough.run.name} 4\n")
        await rough.run.scale(4, note="a node has become free")
        await rough.follow(lambda: rough.rounds > before and rough.world == 4)
        say(f"\n   A member is preempted: pod {rough.preempt()} is deleted, and its Job makes another\n")
        before = rough.rounds
        await rough.follow(lambda: rough.rounds > before and rough.world == 4)
        await rough.follow(lambda: rough.result is not None)
        status = await rough.run.result()
    same = calm.result == rough.result
    link = f"{stack.temporal_ui}/namespaces/default/workflows/{quote(rough.run.workflow_id, safe='')}"
    say(
        f"\n{'The same result' if same else 'ANOTHER RESULT'}, after {rough.rounds} rounds: {rough.result}\n"
        f"   {status.phase.value}, restarts of the workload: {status.restarts}\n"
        f"   its whole life     {link}\n"
        f"   its rounds         {link.replace('workload%2F', 'rendezvous%2F')}\n"
        f"   clean up           holdfast dev down{named(stack)} --purge"
    )
    return same


def _workload(stack: Stack, name: str, folder: Path, *, least: int, most: int = 4) -> Any:
    """Read the published example, with a folder of its own for its checkpoints."""
    import yaml

    from holdfast import formats

    document = yaml.safe_load(Path(__file__).with_name(FILE).read_text(encoding="utf-8"))
    document["spec"]["gang"] |= {"min": least, "max": most}
    title = f"elastic-{name}-{secrets.token_hex(2)}"
    document["metadata"]["name"] = title
    for one in document["spec"]["components"]:
        one["template"]["metadata"]["name"] = title
    (job,) = (one["template"] for one in document["spec"]["components"] if one["template"]["kind"] == "Job")
    code, checkpoints = job["spec"]["template"]["spec"]["volumes"]
    code["configMap"]["name"] = title
    checkpoints["hostPath"]["path"] = str(folder / name)
    return formats.read(yaml.safe_dump(document), cluster=stack.name, namespace=NAMESPACE)[0]


@dataclass
class _Training:
    """One run of the training, followed through the logs of its pods."""

    stack: Stack
    run: Run
    heard: dict[str, int] = field(default_factory=dict)
    """How many log lines were read of each pod, by pod name."""
    world: int = 0
    """Members of the last round whose first rank has begun to train."""
    rounds: int = 0
    result: str | None = None

    async def follow(self, enough: Any) -> None:
        """Print the output of the training until `enough` returns true."""
        while True:
            await asyncio.to_thread(self._listen)
            if enough():
                return
            status = await self.run.status()
            if status.phase.ended and self.result is None:
                raise HoldfastError(f"{self.run.namespace}/{self.run.name} has ended: {status.status.message}")
            await asyncio.sleep(0.5)

    def _listen(self) -> None:
        for pod in self._pods():
            name = pod["metadata"]["name"]
            lines = self._log(name).splitlines()
            for line in lines[self.heard.get(name, 0) :]:
                if line.startswith(_TOLD):
                    say(f"   {name}  {line}")
                self._note(line)
            self.heard[name] = len(lines)

    def _note(self, line: str) -> None:
        if line.startswith("rank 0 of "):
            self.world = int(line.rpartition(" ")[2])
        elif line.startswith("from step "):
            self.rounds += 1
        elif line.startswith("result "):
            self.result = line.removeprefix("result ")

    def _pods(self) -> list[dict[str, Any]]:
        from holdfast import names

        selector = f"{names.LABEL_WORKLOAD_UID}={self.run.uid}"
        listed = self.stack.kubectl("get", "pods", "-n", self.run.namespace, "-l", selector, "-o", "json")
        return sorted(json.loads(listed)["items"], key=lambda pod: pod["metadata"]["name"])

    def _log(self, pod: str) -> str:
        from holdfast.local import StackError

        try:
            return self.stack.kubectl("logs", "-n", self.run.namespace, pod, "--tail=-1")
        except StackError:
            return ""  # not begun yet, or gone

    def steps_done(self, folder: Path) -> int:
        """Return the step of the last checkpoint; 0 without one."""
        try:
            return json.loads((folder / "checkpoint.json").read_text(encoding="utf-8"))["step"]
        except FileNotFoundError:
            return 0

    def kill(self) -> str:
        """Kill one member's training process with -9, and return the member."""
        for pod in self._pods():
            for process in _processes_of(pod["metadata"]["uid"]):
                os.kill(process, signal.SIGKILL)
                return pod["metadata"]["name"]
        raise HoldfastError("no process of the training runs")

    def preempt(self) -> str:
        """Delete one member's pod, as a scheduler does to make room, and return its name."""
        name = next(pod["metadata"]["name"] for pod in self._pods() if pod["status"]["phase"] == "Running")
        self.stack.kubectl("delete", "pod", name, "-n", self.run.namespace, "--wait=false")
        return name


def _processes_of(pod_uid: str) -> list[int]:
    """Return the training's processes in a pod of this machine's real node."""
    found: list[int] = []
    limit = time.monotonic() + 10
    while not found and time.monotonic() < limit:
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and pod_uid in (entry / "cgroup").read_text(encoding="utf-8"):
                    argv = (entry / "cmdline").read_bytes().split(b"\0")
                    if argv[:2] == [b"python", _TRAINER]:
                        found.append(int(entry.name))
            except OSError:
                pass  # the process has ended meanwhile
    return found
