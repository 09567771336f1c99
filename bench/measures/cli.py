"""What a command costs its user: wall and CPU seconds of the help and of two reads, beside one workload that runs.

Each command is a process of its own, from its start to its end. CPU is the command's alone, as the kernel counts it.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import tempfile
import time

from bench.ground import Ground
from bench.seeing import in_phase, seeing
from bench.systems.holdfast import HoldfastSystem, open_holdfast
from bench.work import PODS, workload

NAME = "cli"
RUNS = 20
WORKLOAD = "train"


async def measure(ground: Ground, runs: int = RUNS) -> None:
    """Run the commands so many times, in turn; each turn is a sample."""
    async with (
        open_holdfast(ground) as system,
        seeing(ground.kube, "v1", "Pod", system.namespace, running=in_phase("Running")) as pods,
    ):
        await system.submit(workload(WORKLOAD))
        await pods.all_reach("running", PODS)
        await system.recorded(1)
        # The first turn reads modules from the disk, and is not counted.
        if ground.options.warm:
            await _turn(system)
        await ground.rest(ground.options.settle)
        for repeat in range(runs):
            ground.record(system.name, await _turn(system), repeat=repeat)
        await system.remove_all([WORKLOAD], pods)


async def _turn(system: HoldfastSystem) -> dict[str, float]:
    (executable,), environment = system.site.command()
    commands = {
        "help": ["--help"],
        "list": ["list", "-n", system.namespace],
        "status": ["status", f"{system.namespace}/{WORKLOAD}"],
    }
    values: dict[str, float] = {}
    for name, arguments in commands.items():
        wall, cpu = await asyncio.to_thread(timed, [executable, *arguments], environment)
        values |= {f"{name}_s": wall, f"{name}_cpu_s": cpu}
    return values


def timed(command: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Run a command to its end, and return its wall and CPU seconds.

    Raises:
        subprocess.CalledProcessError: if it fails, with what it printed: its seconds are then not of what is measured.
    """
    with tempfile.TemporaryFile() as printed:
        begun = time.monotonic()
        process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=printed, stderr=subprocess.STDOUT
        )
        _, status, used = os.wait4(process.pid, 0)
        wall = time.monotonic() - begun
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            printed.seek(0)
            raise subprocess.CalledProcessError(process.returncode, command, printed.read().decode())
    return wall, used.ru_utime + used.ru_stime
