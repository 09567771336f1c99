"""A training in a real PyTorch hangs: noticed by its steps, its stacks read, gone on from its save (P1 to P3)."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp
import pytest

from holdfast.model import Progress
from holdfast.model.life.progress import PodStep, Step
from holdfast.policy.verdicts.progress import read, stalled
from holdfast.progress import ENV_FILE, server
from tests.torchrun.fleet import PACKAGES, pytorch

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]
STEPS, SAVED_EVERY, HANGS_AT = 200, 40, 90
RULES = Progress(period=timedelta(seconds=1), bound=timedelta(seconds=5))


@contextmanager
def sidecar(file: Path) -> Iterator[str]:
    """Serve a program's step as the sidecar does; yield the address."""
    serving = server(file, 0, "127.0.0.1")
    threading.Thread(target=serving.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{serving.server_address[1]}"
    finally:
        serving.shutdown()
        serving.server_close()


async def begin(folder: Path, name: str, attempt: int, *, hangs_at: int = -1) -> asyncio.subprocess.Process:
    """Start the training with the file of its step, and its save beside."""
    program = Path(__file__).with_name("steps.py")
    environment = {**os.environ, "PYTHONPATH": str(PACKAGES), "HOLDFAST_ATTEMPT": str(attempt)}
    return await asyncio.create_subprocess_exec(
        pytorch().python,
        str(program),
        str(folder / f"{name}.pt"),
        *map(str, (STEPS, SAVED_EVERY, hangs_at)),
        env={**environment, ENV_FILE: str(folder / "step.json")},
        stdout=asyncio.subprocess.PIPE,
    )


async def ends(process: asyncio.subprocess.Process) -> list[str]:
    """Wait until a training has ended well, and return its lines."""
    out, _ = await process.communicate()
    assert process.returncode == 0
    return out.decode().splitlines()


@pytest.mark.row("P1", level="pure")
@pytest.mark.row("P2", level="pure")
@pytest.mark.row("P3", level="pure")
async def test_P2_a_training_that_hangs_is_noticed_and_goes_on_from_its_save_to_the_same_loss(tmp_path: Path) -> None:
    hanging = await begin(tmp_path, "train", 1, hangs_at=HANGS_AT)
    record, told = None, Step()
    with sidecar(tmp_path / "step.json") as address:
        async with aiohttp.ClientSession() as session:
            while record is None or stalled(record, RULES) is None:
                await asyncio.sleep(RULES.period.total_seconds())
                async with session.get(address) as answer:
                    told = Step.model_validate({k: v for k, v in (await answer.json()).items() if k != "loss"})
                pod = PodStep(uid="a", name="train-0", told=told if told.step is not None else None)
                record = read(record, 1, [pod], RULES, datetime.now(UTC))
            async with session.get(f"{address}/stacks") as answer:
                stacks = await answer.text()
    assert (told.step, told.total, told.saved) == (HANGS_AT, STEPS, HANGS_AT - HANGS_AT % SAVED_EVERY)
    assert "in batches" in stacks, stacks
    assert "steps.py" in stacks
    hanging.kill()
    await hanging.wait()

    again = await ends(await begin(tmp_path, "train", 2))
    assert again[0] == f"begins after step {told.saved}"
    assert again[1:] == (await ends(await begin(tmp_path, "whole", 1)))[1:], "as if it had never hung"
