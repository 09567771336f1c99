"""Real torchrun processes, one a member of a gang, with the interpreter that has PyTorch."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import holdfast
from tests.agent.stage import Puppet, Stage, open_stage
from tests.torchrun.gathering import LIMIT, Gathering, environment, gather

TRAIN = Path(__file__).with_name("train.py")
PACKAGES = Path(holdfast.__file__).parent.parent
ENV_PYTHON = "HOLDFAST_TORCH_PYTHON"


@dataclass(frozen=True)
class PyTorch:
    """An interpreter with PyTorch."""

    python: str
    version: tuple[int, int]
    asks: bool
    """Whether it asks for entry points, and this distribution's are installed there."""


@cache
def pytorch() -> PyTorch:
    """Return the PyTorch that the environment names, or skip the test."""
    python = os.environ.get(ENV_PYTHON)
    if not python:
        pytest.skip(f"{ENV_PYTHON} names no interpreter with PyTorch: make test-torch")
    code = (
        "import json, torch, importlib.metadata as m\n"
        "import torch.distributed.elastic.rendezvous.registry as r\n"
        "named = [one.name for one in m.entry_points(group='torchrun.handlers')]\n"
        "asks = hasattr(r, '_register_out_of_tree_handlers') and 'holdfast' in named\n"
        "print(json.dumps([torch.__version__, asks]))"
    )
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False, cwd="/")
    assert done.returncode == 0, done.stderr
    version, asks = json.loads(done.stdout)
    major, minor = version.split(".")[:2]
    return PyTorch(python, (int(major), int(minor)), asks)


@dataclass
class Torchrun:
    """One torchrun."""

    member: str
    process: asyncio.subprocess.Process
    log: Path

    async def ends(self) -> int:
        return await asyncio.wait_for(self.process.wait(), LIMIT)

    def said(self) -> str:
        return self.log.read_text(errors="replace")


class Fleet:
    """The torchruns of a gang."""

    def __init__(self, gathering: Gathering, stage: Stage, folder: Path) -> None:
        self.gathering = gathering
        self.stage = stage
        self._folder = folder
        self.running: list[Torchrun] = []

    async def start(self, member: str, *options: str, **variables: str) -> Torchrun:
        """Start a member's torchrun; again under the same name, it is another process in the same pod."""
        using = pytorch()
        (self._folder / "token").write_text("token")
        told = environment(self.gathering.url, member, str(self._folder / "token"))
        module = ["torch.distributed.run", "--rdzv_backend=holdfast"] if using.asks else ["holdfast.torchrun"]
        given = {"--max_restarts": "100", "--monitor_interval": "0.1", "--log_dir": str(self._folder / "logs")}
        if using.version < (2, 0):
            # With Python 3.11 that torchrun cannot start anything but with redirections for one rank or another.
            given |= {"--redirects": "9:3", "--tee": "9:3"}
        given |= dict(option.split("=", 1) for option in options)
        words = [f"{name}={value}" for name, value in given.items()]
        log = self._folder / f"{member}-{len(self.running)}.log"
        with log.open("wb") as file:
            process = await asyncio.create_subprocess_exec(
                using.python,
                "-m",
                *module,
                *words,
                str(TRAIN),
                str(self._folder / "s"),
                env={**_clean(), "OMP_NUM_THREADS": "1", **_path(using), **told, **variables},
                stdout=file,
                stderr=file,
                cwd="/",
            )
        one = Torchrun(member, process, log)
        self.running.append(one)
        return one

    async def workers(self, *members: str) -> dict[str, Puppet]:
        """Wait for a worker of each, whose process group has formed."""
        return {name: await self.stage.enters(name, LIMIT) for name in members}

    def close(self) -> None:
        for one in self.running:
            if one.process.returncode is None:
                one.process.send_signal(signal.SIGKILL)

    def words(self) -> str:
        """All that was printed, for a failure's sake."""
        return "\n".join(f"--- {one.member}\n{one.said()}" for one in self.running)


@asynccontextmanager
async def fleet(folder: Path, **gang: Any) -> AsyncIterator[Fleet]:
    """Open a rendezvous with these settings, for torchruns to join."""
    pytorch()
    async with gather(**gang) as gathering, open_stage(folder) as stage:
        found = Fleet(gathering, stage, folder)
        try:
            yield found
        except BaseException:
            print(found.words())
            print(found.gathering.state.model_dump_json(indent=1))
            print(found.gathering.said)
            raise
        finally:
            found.close()


def _clean() -> dict[str, str]:
    foreign = ("HOLDFAST_", "PYTHON", "VIRTUAL")
    return {name: value for name, value in os.environ.items() if not name.startswith(foreign)}


def _path(using: PyTorch) -> dict[str, str]:
    return {} if using.asks else {"PYTHONPATH": str(PACKAGES)}
