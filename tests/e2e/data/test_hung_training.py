"""The published training that hangs: noticed, its stacks kept, made again from its save; what it cost (rows P2, P3)."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from holdfast import names, progress
from holdfast.local import Stack
from holdfast.model import Reason
from holdfast.policy.attempt.checkpoint import CheckpointAsk
from holdfast.worker.cleanup.namespace import enable
from tests.e2e.data.test_evidence import SOURCE, Ground
from tests.e2e.ground.held import open_real
from tests.e2e.ground.site import open_site, until
from tests.store import Store

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.real_node,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(600),
]
ROW = pytest.mark.row
EXAMPLE = Path(__file__).parents[3] / "examples/progress/train.yaml"


@pytest_asyncio.fixture(loop_scope="session")
async def ground(stack: Stack, store: Store, tmp_path: Path) -> AsyncIterator[Ground]:
    async with open_site(stack, tmp_path, prefix="h") as site, open_real(site) as space:
        made = Ground(space, store, None)
        await enable(site.kube, space.namespace, logs=True)
        await site.start_worker(kubeconfig=None, **made.environment, HOLDFAST_EVIDENCE_STORE=SOURCE)
        yield made


def training(saves: Path) -> dict[str, Any]:
    """Return the example, with `holdfast.progress` copied beside the program, which may be newer than the image's."""
    document = yaml.safe_load(EXAMPLE.read_text())
    document["spec"]["policy"] = {"timings": {"retryPausePeriod": "1s"}}
    job, code = (one["template"] for one in document["spec"]["components"])
    pod = job["spec"]["template"]["spec"]
    pod["volumes"][2]["hostPath"]["path"] = str(saves)
    pod["initContainers"][0]["command"][1:3] = ["/code/progress.py"]
    code["data"]["progress.py"] = Path(progress.__file__).read_text()
    program = code["data"]["train.py"]
    assert "import holdfast.progress as progress" in program
    program = program.replace("import holdfast.progress as progress", "import progress")
    # However late the request to save arrives: attempt 1 hangs after it, and does not end before it.
    assert "STEPS, PAUSE, HANGS_FROM = 250, 0.1, 120" in program
    code["data"]["train.py"] = program.replace("= 250, 0.1, 120", "= 1_000_000 if ATTEMPT == 1 else 250, 0.1, 20")
    return document


@ROW("P2", level="e2e")
@ROW("P3", level="e2e")
async def test_P3_a_training_that_hangs_leaves_its_stacks_and_goes_on_from_its_save(
    ground: Ground, tmp_path: Path
) -> None:
    space = ground.space
    handle = await space.submit(training(tmp_path / "saves"))
    name = f"{space.namespace}/hangs"
    await space.reach(handle, "Running", 1, 240)

    async def trains() -> bool:
        return bool((await space.site.status(handle)).steps)

    await until(trains, 60, "it tells its step")
    await handle.execute_update(names.UPDATE_CHECKPOINT, CheckpointAsk())
    status = await space.reach(handle, "Succeeded", 2, 180)
    assert (status.phase, status.attempt, status.restarts) == ("Succeeded", 2, 1)
    (stalled,) = [one.message for one in status.causes if one.reason is Reason.RESETTING]
    assert re.search(r"NoProgress: step [\d,]+ of 1,000,000, no new step for \d+s; bound 6s", stalled), stalled
    gone = [one.message for one in status.causes if one.reason is Reason.DELETION_COMPLETE and one.attempt == 1]
    assert "evidence of 1 pod with 2 logs and the stacks of 1 program is kept at s3://" in gone[0], gone

    code, out, errors = await ground.run("logs", name, "--attempt", "1")
    assert code == 0, errors
    [saved] = re.findall(r"step (\d+) is saved", out)
    _, _, stacks = out.partition("stacks of its program, before its pod was deleted:")
    assert re.search(r'File "/code/train.py", line \d+ in wait_for_shard\n', stacks), out
    assert re.search(r"queue.py\", line \d+ in get\n.*File \"/code/train.py\", line \d+ in train\n", stacks), out
    assert f"attempt 2 begins after step {saved}\n" in (await ground.run("logs", name))[1]

    cost = json.loads((await ground.run("goodput", name, "-o", "json"))[1])
    assert cost["executions"] == 2
    lost = [one["milliseconds"] for one in cost["charges"] if (one["cause"], one["bucket"]) == ("NoProgress", "lost")]
    assert len(lost) == 1, cost
    assert lost[0] > 0
    page = tmp_path / "life.html"
    assert (await ground.run("report", name, "-o", str(page)))[0] == 0
    text = await asyncio.to_thread(page.read_text)
    assert "the stacks of 1 program" in text
    assert "NoProgress" in text
