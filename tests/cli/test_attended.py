"""A command that watches for an answer while it waits ends when its work has, whatever became of the watching (D36).

And what it says of a queue, of the broker and of a workload that no worker has taken. Temporal's answers are given.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from temporalio.api.taskqueue.v1 import PollerInfo
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest, DescribeTaskQueueResponse
from temporalio.client import WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode
from typer.testing import CliRunner

from holdfast.cli.app import app
from holdfast.cli.common import several
from holdfast.cli.common.options import Output
from holdfast.cli.common.silence import ASKED, BEGUN, attended
from holdfast.cli.entities import broker
from holdfast.cli.workloads import watch
from holdfast.cli.workloads.watch import _turned  # pyright: ignore[reportPrivateUsage]
from holdfast.client import silence as client_silence
from holdfast.client.connection import Place
from holdfast.client.entities.broker import BrokerRun
from holdfast.client.entities.queue import QueueRun
from holdfast.client.run import Run
from holdfast.client.silence import Silence, silence_of
from holdfast.client.views import ActivityView, StatusView
from holdfast.errors import HoldfastError, NotAnswering
from holdfast.model import Phase
from holdfast.model.entities.queue import Queue
from holdfast.past import Story
from tests.cli.text.test_render import status
from tests.client.conftest import a_workload

PLACE = Place("here:7233", "default")


async def work() -> str:
    return "done"


@pytest.mark.row("D36", level="pure")
async def test_D36_a_command_ends_although_the_watching_has_failed() -> None:
    async def silence() -> Silence | None:
        raise RuntimeError("what nobody has foreseen")

    run: Any = SimpleNamespace(silence=silence)
    async with asyncio.timeout(5):
        assert await attended(run, work(), ASKED) == "done"


@pytest.mark.row("D36", level="pure")
async def test_D36_what_a_server_says_in_several_lines_is_said_in_one(capsys: pytest.CaptureFixture[str]) -> None:
    found = Silence(why="no worker answers, and Temporal does not say who polls: upstream\nreset", remedy="start\none")

    async def silence() -> Silence | None:
        return found

    run: Any = SimpleNamespace(silence=silence)
    async with asyncio.timeout(5):
        assert await attended(run, work(), ASKED) == "done"
    first, second, third = capsys.readouterr().err.splitlines()
    assert first == "stale      no worker answers, and Temporal does not say who polls: upstream reset"
    assert (second.strip(), third.strip()) == (ASKED, "start one")
    view: Any = SimpleNamespace(silence=found)
    first, _, third = _turned(view)
    assert first.endswith("upstream reset")
    assert third.endswith("  start one")


@pytest.mark.row("D36", level="pure")
async def test_D36_how_often_a_task_was_tried_is_said() -> None:
    poller = PollerInfo(identity="4711@node")
    poller.last_access_time.FromDatetime(datetime.now(UTC).replace(tzinfo=None))

    async def describe_task_queue(_request: DescribeTaskQueueRequest) -> DescribeTaskQueueResponse:
        return DescribeTaskQueueResponse(pollers=[poller])

    async def away(*_: Any, **__: Any) -> None:
        raise RPCError("no worker answers", RPCStatusCode.DEADLINE_EXCEEDED, b"")

    service = SimpleNamespace(describe_task_queue=describe_task_queue)
    client: Any = SimpleNamespace(
        namespace="default",
        workflow_service=service,
        get_workflow_handle=lambda *_, **__: SimpleNamespace(query=away, describe=away),
    )
    raw = SimpleNamespace(pending_workflow_task=SimpleNamespace(attempt=3))
    description: Any = SimpleNamespace(id="workload/x", run_id="1", task_queue="holdfast", raw_description=raw)
    found = await silence_of(client, description)
    assert found.why == "no worker can answer: its workflow task has been tried 3 times (4711@node polls)"


def unpolled() -> Any:
    """Return a client of a Temporal in which all workflows run, and nobody polls: no update is ever answered."""

    async def describe_task_queue(_request: DescribeTaskQueueRequest) -> DescribeTaskQueueResponse:
        return DescribeTaskQueueResponse()

    async def describe(*_: Any, **__: Any) -> Any:
        return SimpleNamespace(id="queue/dev/q", run_id="1", task_queue="q", status=WorkflowExecutionStatus.RUNNING)

    async def execute_update(*_: Any, **__: Any) -> Any:
        await asyncio.Event().wait()

    return SimpleNamespace(
        namespace="default",
        workflow_service=SimpleNamespace(describe_task_queue=describe_task_queue),
        get_workflow_handle=lambda *_, **__: SimpleNamespace(describe=describe, execute_update=execute_update),
    )


@pytest.mark.row("D36", level="pure")
async def test_D36_a_queue_that_nobody_runs_names_the_role_that_it_waits_for() -> None:
    for run, role in (
        (QueueRun(unpolled(), PLACE, "queue/dev/q"), "admission"),
        (BrokerRun(unpolled(), PLACE, "checkpoint-broker/dev"), "workflows"),
    ):
        found = await run.silence()
        assert found is not None
        assert f"`holdfast worker --roles {role}`" in found.remedy


@pytest.mark.row("D36", level="pure")
async def test_D36_a_queue_that_nobody_runs_is_not_waited_for_as_a_busy_one_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_silence, "ANSWER_TIMEOUT", timedelta(seconds=0.01))
    run, wanted = QueueRun(unpolled(), PLACE, "queue/dev/q"), Queue(cluster="dev", name="q")
    async with asyncio.timeout(5):
        with pytest.raises(NotAnswering, match="no worker answers"):
            await run.configure(wanted)


@pytest.mark.row("D36", level="pure")
async def test_D36_of_a_workload_that_no_worker_has_taken_what_was_submitted_is_in_force() -> None:
    workload = a_workload()
    story = Story(workload, "u", ())

    class Recorded(Run):
        async def story(self) -> Story:
            return story

    nobody: Any = None
    run = Recorded(nobody, PLACE, workload.workflow_id, "u")
    assert await run.in_force() == workload
    story.contradictions.append("run 1, event 4: it decided otherwise")
    with pytest.raises(HoldfastError, match="another release"):
        await run.in_force()


@pytest.mark.row("D36", level="pure")
def test_D36_a_broker_that_nobody_runs_yet_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    run = BrokerRun(unpolled(), PLACE, "checkpoint-broker/dev")

    async def apply_broker(_: Any) -> BrokerRun:
        return run

    @asynccontextmanager
    async def session(_: Any) -> AsyncIterator[Any]:
        yield SimpleNamespace(apply_broker=apply_broker)

    monkeypatch.setattr(broker, "session", session)
    result = CliRunner().invoke(app, ["broker", "start", "--cluster", "dev", "-o", "json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == {"workflowId": "checkpoint-broker/dev"}
    first, second, _ = result.stderr.splitlines()
    assert first.startswith("stale      no worker answers: ")
    assert second.strip() == BEGUN


MANY = [f"train-{number}" for number in range(40)]


def deaf(monkeypatch: pytest.MonkeyPatch, answered: asyncio.Event, *, served: bool) -> list[str]:
    """Let no worker answer a request until then, and return the names of the workloads that are being asked."""
    asked: list[str] = []

    class Deaf(Run):
        async def recorded(self) -> StatusView:
            return StatusView(status=status(name=self.name), fresh=False)

        async def silence(self) -> Silence | None:
            return None if served else Silence(why="no worker answers: no poll")

        async def checkpoint(self, note: str = "", *, wait: bool = False) -> StatusView:
            asked.append(self.name)
            if len(asked) == len(MANY):
                answered.set()
            await answered.wait()
            return await self.recorded()

        async def status(self) -> StatusView:
            return await self.recorded()

        async def under_way(self) -> tuple[ActivityView, ...]:
            return ()

    async def get(name: str, namespace: str) -> Run:
        nobody: Any = None
        return Deaf(nobody, PLACE, f"workload/dev/{namespace}/{name}", "u")

    @asynccontextmanager
    async def session(_: Any) -> AsyncIterator[Any]:
        yield SimpleNamespace(get=get)

    monkeypatch.setattr(several, "session", session)
    return asked


@pytest.mark.row("D36", level="pure")
def test_D36_if_no_worker_answers_all_are_asked_and_none_waits_for_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = deaf(monkeypatch, asyncio.Event(), served=False)
    result = CliRunner().invoke(app, ["checkpoint", *MANY, "-n", "research", "--wait", "--timeout", "60s"])
    assert result.exit_code == 0, result.output
    assert sorted(asked) == sorted(MANY)
    assert result.stderr.count("no worker answers") == 1


@pytest.mark.row("E5", level="pure")
def test_E5_a_timeout_is_that_of_all_and_not_of_each_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = deaf(monkeypatch, asyncio.Event(), served=True)
    result = CliRunner().invoke(app, ["checkpoint", *MANY, "-n", "research", "--wait", "--timeout", "1s"])
    assert result.exit_code == 4
    assert len(asked) == 16
    assert result.stderr.count("it is not known whether checkpoint was asked for") == 16
    assert result.stderr.count("nothing was asked of it: time was up before its turn had come") == 24


def followed(name: str, *views: StatusView | HoldfastError) -> Any:
    """Return a workload that tells this, one after the other."""
    told = iter(views)

    async def status() -> StatusView:
        if isinstance(view := next(told), HoldfastError):
            raise view
        return view

    return SimpleNamespace(name=name, namespace="research", status=status)


@pytest.mark.row("E3", level="pure")
@pytest.mark.parametrize("last", [Phase.SUCCEEDED, Phase.FAILED])
async def test_E3_of_several_that_are_watched_an_error_of_one_stops_no_other(
    last: Phase, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(watch, "INTERVAL", 0)
    runs, ends = (StatusView(status=status(phase=phase), fresh=True) for phase in (Phase.RUNNING, last))
    lost = followed("lost", HoldfastError("its workflow was terminated in Temporal"))
    with pytest.raises(typer.Exit) as left:
        await watch.follow_all([lost, followed("train", runs, ends)], Output.TABLE, "60s")
    assert left.value.exit_code == 2, "the worst of both"
    said = capsys.readouterr()
    assert said.err == "Error: lost: its workflow was terminated in Temporal\n"
    assert f"train: 02:11:50Z  {last.value}" in said.out
    with pytest.raises(HoldfastError, match="terminated"):
        await watch.follow_all([followed("lost", HoldfastError("terminated"))], Output.TABLE, None)
