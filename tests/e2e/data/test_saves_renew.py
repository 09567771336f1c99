"""A real program that saves when it is asked to, and dies beyond each save: its budgets and its attempts (row P4)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast import names
from holdfast.model import Reason, Saved, Status
from holdfast.policy.attempt.checkpoint import CheckpointAsk
from tests.e2e.ground.site import until
from tests.e2e.ground.space import Handle, Space
from tests.e2e.nodes.test_progress_real_node import put_code
from tests.e2e.nodes.test_progress_real_node import training as without_saves
from tests.e2e.nodes.test_real_node import real

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.real_node,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(400),
]
ROW = pytest.mark.row
__all__ = ["real"]

PROGRAM = """
import http.server, json, os, sys, threading, time
sys.path.insert(0, "/code")
import progress

class Saves(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        path = f"/saves/{step}"
        with open(path, "w") as file:
            file.write(str(step))
        text = json.dumps({"state": "Complete", "uri": path}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

step, resumes = 0, os.environ["HOLDFAST_RESUME_FROM"]
if resumes:
    with open(resumes) as file:
        step = int(file.read())
threading.Thread(target=http.server.HTTPServer(("", 9471), Saves).serve_forever, daemon=True).start()
while not os.path.exists("/saves/dies-" + os.environ["HOLDFAST_ATTEMPT"]):
    time.sleep(0.1)
    step += 1
    progress.step(step, saved=step)  # which is a claim, and untrue
sys.exit(1)
"""


class Training:
    """A program whose saves and deaths the test asks for."""

    def __init__(self, space: Space, saves: Path) -> None:
        self.space = space
        self._saves = saves

    async def submit(self, limit: int, **progress: Any) -> Handle:
        """Submit it with so many restarts that are not renewed; `progress` as in the workload."""
        await put_code(self.space)
        document = without_saves("pass", bound="60s", **progress)
        document["policy"] = {
            "timings": {"retryPausePeriod": "1s"},
            "budgets": [{"name": "restart", "limit": limit}],
            "rules": [{"name": "dies", "match": {"classes": ["App"]}, "action": {"kind": "Restart", "grace": False}}],
        }
        document["checkpoint"] = {"protocol": "http", "port": 9471, "timeout": "30s"}
        pod = document["components"][0]["template"]["spec"]["template"]["spec"]
        pod["volumes"].append({"name": "saves", "hostPath": {"path": str(self._saves), "type": "DirectoryOrCreate"}})
        (main,) = pod["containers"]
        main["command"] = ["python", "-c", PROGRAM]
        main["volumeMounts"].append({"name": "saves", "mountPath": "/saves"})
        return await self.space.submit(document)

    async def steps(self, handle: Handle, attempt: int) -> Status:
        """Wait until an attempt has told a step, with its claim to have saved it."""
        found = [await self.space.reach(handle, "Running", attempt)]

        async def told() -> bool:
            found[:] = [await self.space.site.status(handle)]
            return found[0].attempt == attempt and "is saved" in found[0].steps

        await until(told, 60, f"attempt {attempt} tells its step")
        return found[0]

    async def save(self, handle: Handle, attempt: int) -> Saved:
        """Ask an attempt to save, and return what is confirmed."""
        await handle.execute_update(names.UPDATE_CHECKPOINT, CheckpointAsk())
        found: list[Saved | None] = []

        async def saved() -> bool:
            found[:] = [(await self.space.site.status(handle)).saved]
            return found[0] is not None and found[0].attempt == attempt

        await until(saved, 60, f"attempt {attempt} has saved")
        assert found[0] is not None
        return found[0]

    def die(self, attempt: int) -> None:
        """Let an attempt's program exit with 1."""
        (self._saves / f"dies-{attempt}").touch()


@pytest.fixture
def training(real: Space, tmp_path: Path) -> Training:
    return Training(real, tmp_path / "saves")


def used(status: Status) -> int:
    (budget,) = status.budgets
    return budget.used


def renewals(status: Status) -> list[str]:
    return [one.message for one in status.causes if one.reason is Reason.BUDGET_RENEWED]


@ROW("P4", level="e2e")
async def test_P4_a_confirmed_save_beyond_the_best_one_forgives_the_restart_before_it(training: Training):
    handle = await training.submit(limit=1)
    await training.steps(handle, 1)
    first = await training.save(handle, 1)
    training.die(1)
    status = await training.steps(handle, 2)
    assert (status.resumed_from, status.restarts) == (first.uri, 1)
    assert (used(status), renewals(status)) == (1, []), "what a program claims to have saved renews nothing"

    second = await training.save(handle, 2)
    status = await training.space.site.status(handle)
    assert first.step is not None
    assert second.step is not None
    assert (used(status), renewals(status)) == (
        0,
        [f"restart budget renewed: step {second.step:,} is saved, beyond {first.step:,}"],
    )
    training.die(2)
    status = await training.space.reach(handle, "Running", 3)
    assert (status.restarts, used(status)) == (2, 1), "beyond its limit of 1 in all"


@ROW("P4", level="e2e")
async def test_P4_a_program_that_dies_beyond_each_save_ends_when_its_executions_are_used_up(training: Training):
    handle = await training.submit(limit=1, executions=3)
    for attempt in (1, 2, 3):
        await training.steps(handle, attempt)
        await training.save(handle, attempt)
        training.die(attempt)
    status = await training.space.ended(handle)
    assert (status.phase, status.reason) == ("Failed", Reason.EXECUTIONS_EXCEEDED)
    assert status.message.startswith("it has begun 3 attempts, as many as progress.executions allows: ")
    assert (status.attempt, status.executions, status.restarts) == (3, 3, 2)
    assert (len(renewals(status)), used(status)) == (2, 0), "and its budget was never used up"
    await training.space.truth.settle()
    assert training.space.truth.attempts("train") == [1, 2, 3]
    training.space.truth.assert_one_attempt_at_a_time("train")
