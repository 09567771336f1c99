"""The worker process: how it begins, refuses, waits, drains and ends; run as its users run it."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from temporalio.client import Client, WorkflowHandle
from temporalio.contrib.pydantic import pydantic_data_converter

from holdfast import names
from holdfast.local import Stack, worker_kubeconfig
from holdfast.stale import AsksAgain
from holdfast.workflows.entities.cluster_watch import (
    MEMO_CLUSTER_UID,
    MEMO_SHARD_SETS,
    ClusterWatchInput,
    ClusterWatchStatus,
)
from tests.worker.ground import register

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]


@dataclass
class Running:
    """A worker process, its log lines so far, and its pages."""

    process: asyncio.subprocess.Process
    lines: list[dict[str, Any]] = field(default_factory=list)
    raw: list[str] = field(default_factory=list)

    async def read(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            self.raw.append(line.decode())
            if line.startswith(b"{"):
                self.lines.append(json.loads(line))

    async def line(self, event: str, seconds: float = 90) -> dict[str, Any]:
        for _ in range(int(seconds / 0.02)):
            for line in self.lines:
                if event in str(line["event"]):
                    return line
            await asyncio.sleep(0.02)
        raise AssertionError(f"no line {event!r}: {''.join(self.raw)}")

    async def page(self, name: str, path: str) -> tuple[int, str]:
        address = (await self.line("starting"))[name]
        async with aiohttp.ClientSession() as session, session.get(f"http://{address}{path}") as response:
            return response.status, await response.text()

    async def ready(self, seconds: float = 90) -> None:
        for _ in range(int(seconds / 0.1)):
            if (await self.page("health", "/readyz"))[0] == 200:
                return
            await asyncio.sleep(0.1)
        raise AssertionError(f"not ready: {await self.page('health', '/readyz')}")

    async def end(self) -> int:
        async with asyncio.timeout(90):
            return await self.process.wait()


@asynccontextmanager
async def worker(*options: str, **environment: str) -> AsyncIterator[Running]:
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("HOLDFAST_", "TEMPORAL_"))}
    process = await asyncio.create_subprocess_exec(
        str(Path(sys.executable).parent / "holdfast"),
        "worker",
        *("--health-address", "127.0.0.1:0", "--metrics-address", "127.0.0.1:0", *options),
        env={**inherited, **environment},
        stderr=asyncio.subprocess.PIPE,
    )
    running = Running(process)
    reading = asyncio.create_task(running.read())
    try:
        yield running
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await reading


@pytest.fixture
async def place(stack: Stack) -> dict[str, str]:
    """An environment with a cluster name and a Temporal namespace of its own."""
    name = f"proc-{secrets.token_hex(3)}"
    await register(stack.temporal_address, name)
    return {
        "HOLDFAST_CLUSTER": name,
        "TEMPORAL_ADDRESS": stack.temporal_address,
        "TEMPORAL_NAMESPACE": name,
        "KUBECONFIG": str(worker_kubeconfig(stack)),
    }


async def connect(place: dict[str, str]) -> Client:
    return await Client.connect(
        place["TEMPORAL_ADDRESS"],
        namespace=place["TEMPORAL_NAMESPACE"],
        data_converter=pydantic_data_converter,
        interceptors=[AsksAgain()],
    )


async def parts(handle: WorkflowHandle[Any, Any]) -> tuple[tuple[int, int], ...]:
    return (await handle.query(names.QUERY_STATUS, result_type=ClusterWatchStatus)).shard_sets


async def test_it_becomes_ready_watches_and_drains(place: dict[str, str]) -> None:
    async with worker(**place) as running:
        await running.ready()
        await running.line("watching")
        status, body = await running.page("metrics", "/metrics")
        assert status == 200
        assert "holdfast_up{" in body
        assert "temporal_worker_start" in body
        watch = (await connect(place)).get_workflow_handle(names.watch_workflow_id(place["HOLDFAST_CLUSTER"]))
        answer = await watch.query(names.QUERY_STATUS, result_type=ClusterWatchStatus)
        assert answer.shard_sets == ((0, 255),)
        running.process.send_signal(signal.SIGTERM)
        assert await running.end() == 0
        assert (await running.line("stopped"))["code"] == 0


async def test_two_workers_share_and_the_second_takes_the_watch_over(place: dict[str, str]) -> None:
    async with worker(**place) as first:
        await first.line("watching")
        async with worker(**place) as second:
            await second.ready()
            first.process.kill()
            await first.end()
            await second.line("watching", seconds=40)


async def test_another_cluster_of_the_same_name_is_refused(place: dict[str, str]) -> None:
    cluster = place["HOLDFAST_CLUSTER"]
    await (await connect(place)).start_workflow(
        names.CLUSTER_WATCH_WORKFLOW,
        ClusterWatchInput(cluster=cluster, cluster_uid="another"),
        id=names.watch_workflow_id(cluster),
        task_queue=names.QUEUE_WORKFLOWS,
        memo={MEMO_CLUSTER_UID: "another"},
    )
    async with worker(**place) as running:
        assert await running.end() == 2
        line = await running.line("refused: cluster: the name")
        assert "another" in line["event"]
        assert "temporal workflow" in line["event"]


async def test_without_temporal_it_waits_and_says_where(place: dict[str, str]) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        nowhere = f"127.0.0.1:{probe.getsockname()[1]}"
    async with worker(**{**place, "TEMPORAL_ADDRESS": nowhere}) as running:
        line = await running.line("temporal does not answer")
        assert nowhere in line["address"]
        status, body = await running.page("health", "/readyz")
        assert status == 503
        assert nowhere in body
        assert (await running.page("health", "/livez"))[0] == 200
        running.process.send_signal(signal.SIGTERM)
        assert await running.end() == 0


@pytest.fixture
def nowhere(place: dict[str, str], tmp_path: Path) -> str:
    """A kubeconfig whose server is not there."""
    text = Path(place["KUBECONFIG"]).read_text()
    server = next(word for word in text.split() if word.startswith("https://"))
    moved = tmp_path / "kubeconfig"
    moved.write_text(text.replace(server, "https://127.0.0.1:1"))
    return str(moved)


async def test_without_the_cluster_it_waits_and_says_where(place: dict[str, str], nowhere: str) -> None:
    async with worker(**{**place, "KUBECONFIG": nowhere}) as running:
        line = await running.line("kubernetes does not answer")
        assert line["address"] == "https://127.0.0.1:1"
        assert (await running.page("health", "/readyz"))[0] == 503
        running.process.send_signal(signal.SIGTERM)
        assert await running.end() == 0


async def test_other_parts_are_taken_up_by_the_running_watch(place: dict[str, str]) -> None:
    async with worker(**place) as first:
        await first.line("watching")
        async with worker("--watch-shard-sets", "2", **place) as second:
            await second.ready()
            handle = (await connect(place)).get_workflow_handle(names.watch_workflow_id(place["HOLDFAST_CLUSTER"]))
            for _ in range(1200):
                if await parts(handle) == ((0, 127), (128, 255)):
                    break
                await asyncio.sleep(0.05)
            memo = await (await handle.describe()).memo()
            for _ in range(1200):
                if memo[MEMO_SHARD_SETS] == 2:
                    break
                await asyncio.sleep(0.05)
                memo = await (await handle.describe()).memo()
            assert memo[MEMO_SHARD_SETS] == 2
            assert memo[MEMO_CLUSTER_UID]


async def test_the_watch_ends_when_told(place: dict[str, str]) -> None:
    async with worker(**place) as running:
        await running.line("watching")
        handle = (await connect(place)).get_workflow_handle(names.watch_workflow_id(place["HOLDFAST_CLUSTER"]))
        await handle.signal("stop")
        async with asyncio.timeout(40):
            await handle.result()


async def test_wrong_settings_are_refused_before_anything_starts(place: dict[str, str]) -> None:
    async with worker("--roles", "dance", **place) as running:
        assert await running.end() == 2
    assert "expected some of workflows, cluster, wait, watch" in "".join(running.raw)


async def test_an_address_in_use_is_refused(place: dict[str, str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        async with worker("--metrics-address", address, **place) as running:
            assert await running.end() == 2
            assert address in (await running.line("refused: metrics_address"))["event"]
