"""The machine that a run is on: what a reader needs to know to compare."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

from bench.report.samples import Machine
from holdfast.local.programs import tools


def this_machine() -> Machine:
    """Return what this machine is, and how busy it was before the run."""
    return Machine(
        processor=_processor(),
        cores=len(os.sched_getaffinity(0)),
        memory_gib=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        kernel=platform.release(),
        python=platform.python_version(),
        load=round(os.getloadavg()[0], 2),
        versions={
            "Kubernetes": tools.KUBERNETES,
            "etcd": tools.ETCD,
            "KWOK": tools.KWOK,
            "Temporal CLI": tools.TEMPORAL,
            "JobSet": tools.JOBSET,
            "AppWrapper": tools.APPWRAPPER,
            "temporalio": version("temporalio"),
        },
        commit=_commit(),
    )


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _commit() -> str:
    argv = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=Path(__file__).parent)
    return done.stdout.strip()
