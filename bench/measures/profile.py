"""Where a life's milliseconds in the worker go: py-spy samples it while N two-pod workloads live and are removed.

Twice: the first lives give the table, the second the flame graph (`profile.svg`). Sampling itself takes some of the
time, so that these figures are shares of a life, and those of `start` are its cost.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.ground import Ground
from bench.measures.start import life
from bench.seeing import in_phase, seeing
from bench.systems.holdfast import HoldfastSystem, open_holdfast
from bench.usage import using
from bench.work import workload

NAME = "profile"
SIZES = (300,)
RATE = 200
"""Samples a second."""
GRAPH = "profile.svg"
OWNERS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("decisions", ("holdfast/policy/",)),
    ("documents", ("pydantic/", "holdfast/model/", "holdfast/formats/")),
    ("JSON", ("json/",)),
    ("HTTP", ("aiohttp/", "ssl.py", "holdfast/activities/kube/")),
    ("watch", ("holdfast/worker/watch/",)),
    ("activities", ("holdfast/activities/",)),
    ("workflow code", ("holdfast/workflows/",)),
    ("payloads", ("temporalio/converter", "temporalio/api/", "google/protobuf/")),
    ("workflow tasks", ("temporalio/worker/_workflow",)),
    ("activity tasks", ("temporalio/worker/_activity",)),
    ("Temporal's client", ("temporalio/",)),
    ("logs", ("structlog/", "logging/")),
    ("event loop", ("asyncio/",)),
)
"""Whose a sample is: of the innermost function whose file has one of these parts in its path."""
REST = "the rest"
_WAITING = ("_worker (concurrent/futures/thread.py", "wait (threading.py", "select (selectors.py")
"""The innermost functions of threads that wait; some are sampled as if they ran."""


async def measure(ground: Ground, sizes: tuple[int, ...] = SIZES) -> None:
    """Have workloads live twice at each size, with the worker being sampled."""
    for size in sizes:
        for repeat in range(ground.options.repeats):
            async with open_holdfast(ground) as system:
                await system.warm()
                await _table(ground, system, size, repeat)
        async with open_holdfast(ground) as system:
            await system.warm()
            with sampled(_worker(system), ground.options.out / GRAPH, "flamegraph"):
                await _live(system, size)


async def _table(ground: Ground, system: HoldfastSystem, size: int, repeat: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        stacks = Path(directory) / "stacks"
        async with using(system.pids) as usage:
            with sampled(_worker(system), stacks, "raw"):
                await _live(system, size)
        shares = owned(stacks.read_text().splitlines())
    spent = sum(usage.cpu.values()) * 1000 / size
    values = {f"{owner}_ms": share * spent for owner, share in shares.items()}
    ground.record(system.name, {"life_ms": spent, **values}, size={"n": size}, repeat=repeat)


async def _live(system: HoldfastSystem, size: int) -> None:
    documents = [workload(f"w{index}") for index in range(size)]
    async with seeing(system.kube, "v1", "Pod", system.namespace, running=in_phase("Running")) as pods:
        await life(system, pods, documents)
        await system.remove_all([f"w{index}" for index in range(size)], pods)
    system.past += size


def _worker(system: HoldfastSystem) -> int:
    (pid,) = system.pids.values()
    return pid


@contextmanager
def sampled(pid: int, file: Path, form: str) -> Iterator[None]:
    """Sample a process's threads, as far as they run, from here to the end of the block.

    Args:
        pid: the process.
        file: where the samples go.
        form: in which form: `raw` or `flamegraph`.

    Raises:
        RuntimeError: if the process cannot be sampled; it says why.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    program = Path(sys.executable).with_name("py-spy")
    options = ["--pid", str(pid), "--rate", str(RATE), "--format", form, "--function", "--nonblocking"]
    options += ["--output", str(file)]
    process = subprocess.Popen(
        [program, "record", *options], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        yield
    finally:
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=120)
    if not file.exists():
        raise RuntimeError(f"py-spy has recorded nothing: {said[-500:]}")


def owned(stacks: Iterable[str]) -> dict[str, float]:
    """Return each owner's share of the samples, the largest first. Pure.

    Args:
        stacks: lines of a stack and its number of samples: `outer (file.py:1);inner (file.py:2) 17`.
    """
    counts = Counter[str]()
    for line in stacks:
        stack, _, count = line.rpartition(" ")
        if stack and not stack.rpartition(";")[2].startswith(_WAITING):
            counts[owner_of(stack.split(";"))] += int(count)
    total = counts.total()
    return {owner: count / total for owner, count in counts.most_common()}


def owner_of(frames: list[str]) -> str:
    """Return whose a sample is. Pure."""
    for frame in reversed(frames):
        for owner, parts in OWNERS:
            if any(part in frame for part in parts):
                return owner
    return REST
