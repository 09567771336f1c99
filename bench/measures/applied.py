"""N AppWrappers by one `kubectl apply`, of which the published Kueue admits fifty at a time, until all have succeeded.

Under the AppWrapper controller and under Holdfast, each with the same Kueue (row F12). Each is a Job of one pod that
runs for two seconds. One that ran twice would have a second pod.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

import yaml

from bench.audit import tally
from bench.ground import Ground
from bench.measures.start import written_events
from bench.seeing import PATIENCE, Json, Seen, in_phase, seeing
from bench.systems import CONTROLLERS, Controller, in_turn
from bench.usage import using
from bench.work import workload
from tests.e2e.peers.kueue import LABEL_QUEUE, QUEUE, open_kueue

NAME = "applied"
SIZES = (1000,)
AT_ONCE = 50
_KIND = ("workload.codeflare.dev/v1beta2", "AppWrapper")


async def measure(ground: Ground, sizes: tuple[int, ...] = SIZES, at_once: int = AT_ONCE) -> None:
    """Run both systems at every size, in turn, as often as is asked for."""

    async def one(ground: Ground, system: Controller, size: int, repeat: int) -> None:
        await _one(ground, system, size, repeat, at_once)

    await in_turn(ground, CONTROLLERS, sizes, one)


async def _one(ground: Ground, system: Controller, size: int, repeat: int, at_once: int) -> None:
    directory = ground.directory / f"{system.namespace}-kueue"
    await asyncio.to_thread(directory.mkdir)
    async with AsyncExitStack() as exits:
        opened = open_kueue(ground.stack, directory, system.namespace, manageJobsWithoutQueueName=False)
        kueue = await exits.enter_async_context(opened)
        await kueue.quota(str(at_once))
        file = directory / "all.yaml"
        file.write_text(yaml.safe_dump_all([_document(f"w{index}", system) for index in range(size)]))
        mark, events = ground.audit.mark(), await written_events(ground, system)
        see = (ground.kube, *_KIND, system.namespace)
        wrappers = await exits.enter_async_context(seeing(*see, ended=in_phase("Succeeded"), failed=in_phase("Failed")))
        pods = await exits.enter_async_context(seeing(ground.kube, "v1", "Pod", system.namespace))
        async with using(ground.pids() | system.pids) as usage:
            values = await _applied(ground, system, file, wrappers, size)
        values["cpu_s"] = sum(usage.cpu.values())
        seen = Counter(life.name.rpartition("-")[0] for life in pods.lives.values())
        values |= {"twice": sum(count > 1 for count in seen.values()), "failed": wrappers.count("failed")}
        # Kueue goes only after them: it holds finalizers of its own on what is queued.
        await _kubectl(ground, system, "delete", "appwrappers", "--all", "--wait=false")
        await wrappers.all_gone()
    asked = tally(ground.audit.since(mark), system.asks)
    events = await written_events(ground, system) - events
    values |= {"requests": (asked.total() + events) / size, "requests_events": events / size}
    values |= {f"requests {what}": count / size for what, count in asked.items()}
    ground.record(system.name, values | usage.values(), size={"n": size}, repeat=repeat)


async def _applied(ground: Ground, system: Controller, file: Path, wrappers: Seen, size: int) -> dict[str, float]:
    begun = time.monotonic()
    await _kubectl(ground, system, "apply", "-f", str(file))
    applied = time.monotonic()
    ended = await wrappers.all_reach("ended", size)
    return {"submitted_s": applied - begun, "ended_s": ended[-1] - begun}


async def _kubectl(ground: Ground, system: Controller, *argv: str) -> None:
    own = (*argv, "--namespace", system.namespace)
    await asyncio.to_thread(ground.stack.kubectl, *own, seconds=PATIENCE)


def _document(name: str, system: Controller) -> Json:
    made = workload(name, pods=1)
    made["metadata"]["labels"] = {LABEL_QUEUE: QUEUE}
    if system.manager:
        made["spec"]["managedBy"] = system.manager
    pods = made["spec"]["components"][0]["template"]["spec"]["template"]
    pods["metadata"]["annotations"] = {"holdfast.dev/kwok-complete": "2s"}
    pods["spec"].pop("nodeSelector", None)
    pods["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
    return made
