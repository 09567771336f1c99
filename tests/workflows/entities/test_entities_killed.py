"""A worker dies, a query comes, a timer falls due: what an entity decides then is what every replay decides (D1)."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import IO, cast

import pytest
from temporalio.client import Client, WorkflowQueryFailedError
from temporalio.common import SearchAttributeKey
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Replayer

from holdfast import names
from holdfast.local.programs.resolve import resolve
from holdfast.plugin import HoldfastPlugin
from tests.workflows.entities.fakes import Entities, Handle, Pretended

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(240)]


def temporal() -> str:
    return str(resolve(["temporal"], lambda _: None)["temporal"])


class Process:
    """A worker that has loaded all, and works once it is told to."""

    def __init__(self, *arguments: str) -> None:
        argv = [sys.executable, "-m", "tests.workflows.entity_worker", *arguments]
        root = Path(__file__).parents[3]
        self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=root)

    async def says(self, word: str) -> None:
        line = await asyncio.to_thread(cast("IO[bytes]", self._process.stdout).readline)
        assert line.decode().strip() == word

    async def works(self) -> None:
        stdin = cast("IO[bytes]", self._process.stdin)
        stdin.write(b"go\n")
        stdin.flush()
        await self.says("works")

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@contextmanager
def processes(*arguments: str) -> Iterator[tuple[Process, Process]]:
    both = Process(*arguments), Process(*arguments)
    try:
        yield both
    finally:
        for one in both:
            one.kill()


async def until(check: Callable[[], bool], what: str) -> None:
    for _ in range(600):
        if check():
            return
        await asyncio.sleep(0.1)
    raise AssertionError(what)


async def answered(handle: Handle) -> str:
    """Ask an entity how it stands; return why that was refused, empty if it was not."""
    try:
        await handle.query(names.QUERY_STATUS)
    except WorkflowQueryFailedError as error:
        return str(error)
    return ""


async def lived_through(client: Client, name: str) -> None:
    """Kill -9, query, signals, timers due, a new worker; then each goes on, and its whole history replays.

    Args:
        client: of the Temporal namespace that they live in.
        name: of their cluster, which only pretends.
    """
    cluster, entities = Pretended(), Entities(client, name)
    arguments = client.service_client.config.target_host, client.namespace, *entities.task_queues
    async with AsyncExitStack() as open_:
        for worker in cluster.workers(client, name):
            await open_.enter_async_context(worker)
        with processes(*arguments) as (first, second):
            await asyncio.gather(first.says("loaded"), second.says("loaded"))
            await first.works()
            await entities.start()
            begun = time.monotonic()
            # Its tries are 2, 4 and 8 s apart, and the queue looks again after 15 s: both fall due while none works.
            await until(lambda: cluster.provisioned >= 3, "it was tried three times")
            await entities.node_falls_silent()
            await asyncio.sleep(max(1.5, begun + 9 - time.monotonic()))
            tries, looks = cluster.provisioned, cluster.looked_at_queue
            first.kill()
            asked = {key: asyncio.create_task(answered(one)) for key, one in entities.handles.items()}
            await asyncio.sleep(1)
            await entities.news()
            await second.works()
            refusals = {key: await one for key, one in asked.items()}
            assert all(not why or "ask again" in why for why in refusals.values()), refusals
            # It goes on: the node is looked at, the queue looks again, the machine is tried again.
            await until(lambda: bool(cluster.looked_at_nodes), "the node is looked at")
            await until(lambda: cluster.provisioned > tries, "the machine is tried again")
            await until(lambda: cluster.looked_at_queue > looks, "the queue looks again")
            await asyncio.sleep(2)
        failures = await replayed(client, entities)
        assert failures == {}, refusals


async def test_what_a_query_shows_before_the_task_makes_no_history_that_cannot_replay() -> None:
    async with await WorkflowEnvironment.start_local(
        dev_server_existing_path=temporal(),
        dev_server_startup_timeout=timedelta(minutes=2),
        data_converter=pydantic_data_converter,
        search_attributes=[SearchAttributeKey.for_keyword(names.SA_PHASE)],
    ) as env:
        await lived_through(env.client, "c")


async def replayed(client: Client, entities: Entities) -> dict[str, str]:
    """Replay the first run of each; return what does not."""
    replayer = Replayer(workflows=[], plugins=[HoldfastPlugin(["workflows"])])
    failures = dict[str, str]()
    for name, handle in entities.handles.items():
        first = client.get_workflow_handle(handle.id, run_id=handle.first_execution_run_id)
        result = await replayer.replay_workflow(await first.fetch_history(), raise_on_replay_failure=False)
        if result.replay_failure is not None:
            failures[name] = str(result.replay_failure)[:300]
    return failures
