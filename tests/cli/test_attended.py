"""A command that watches for an answer while it waits ends when its work has, whatever became of the watching (D36)."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from temporalio.api.taskqueue.v1 import PollerInfo
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest, DescribeTaskQueueResponse
from temporalio.service import RPCError, RPCStatusCode

from holdfast.cli.common.silence import ASKED, attended
from holdfast.cli.workloads.watch import _turned  # pyright: ignore[reportPrivateUsage]
from holdfast.client.silence import Silence, silence_of


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
