"""Two Temporal servers on a PostgreSQL, killed with -9: one, the other, and all with the database (L1-L3, L10)."""

from __future__ import annotations

import asyncio
import secrets
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client
from temporalio.service import RPCError

from holdfast import names
from holdfast.client import Holdfast
from holdfast.errors import NotReachable
from holdfast.local import Stack, StackError
from holdfast.local.extras import ha
from holdfast.model import ConditionType, Status
from tests.e2e.cleanup.test_restored import older_than_the_cluster
from tests.e2e.crash.scene import pod
from tests.e2e.ground.held import real_node
from tests.e2e.ground.restored import open_restored
from tests.e2e.ground.site import appwrapper, open_site, until
from tests.e2e.ground.space import Handle, Space, open_space
from tests.e2e.nodes.test_real_node import FOREVER, job, processes

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900), pytest.mark.asyncio(loop_scope="session")]
ROW = pytest.mark.row
SERVERS = ("temporal-1", "temporal-2")
LIVES = 50
STARTS = 100


@pytest.fixture(scope="module", autouse=True)
def _database() -> None:
    try:
        ha.program("postgres")
    except StackError as error:
        pytest.skip(str(error))


@pytest.fixture
def servers(stack: Stack) -> Iterator[Stack]:
    """Two Temporal servers and their database, of the test's own, beside the shared stack's Kubernetes."""
    name = f"ha-{secrets.token_hex(3)}"
    opened = Stack.up(name, ha=True, kubeconfig=stack.kubeconfig, apply=False)
    try:
        yield opened
    finally:
        opened.down(purge=True)


@asynccontextmanager
async def opened(stack: Stack, servers: Stack, directory: Path, worker: bool = True) -> AsyncIterator[Space]:
    """A site on both servers, whose worker knows both."""
    async with open_site(stack, directory, temporal_address=servers.temporal_address, prefix="h") as site:
        await both_know(servers, site.cluster)
        if worker:
            await site.start_worker()
        async with open_space(site) as space:
            try:
                yield space
            finally:
                await start(servers, "postgresql", *SERVERS)  # What is left is ended through either.


async def both_know(servers: Stack, namespace: str) -> None:
    """Wait until each server knows a namespace's columns: what one has written down the other looks up now and then."""
    for address in servers.temporal_address.split(","):
        client = await Client.connect(address, namespace=namespace)

        async def known(client: Client = client) -> bool:
            try:
                await client.count_workflows(f"{names.SA_KIND} = 'Workload'")
            except RPCError:
                return False
            return True

        await until(known, 60, f"{address} knows {namespace}", pause=0.2)


async def kill(servers: Stack, *parts: str) -> None:
    for part in parts:
        await asyncio.to_thread(servers.stop_part, part, signal.SIGKILL)


async def start(servers: Stack, *parts: str) -> None:
    for part in parts:
        await asyncio.to_thread(servers.start_part, part)


def life(name: str, grace: str) -> dict[str, Any]:
    """One pod that nothing replaces: where it fails, a grace begins."""
    return appwrapper(name, pod(name), failureGracePeriodDuration=grace)


async def all_are(space: Space, check: Callable[[Status], bool], seconds: float, what: str) -> None:
    """Wait until this is so of all workloads, asked one after the other: fifty at once would slow each other."""

    late: list[str] = []

    async def whole() -> bool:
        for handle in space.handles:
            try:
                status = await space.site.status(handle)
            except RPCError as error:  # A server has just been killed.
                late[:] = [f"{handle.id}: {error}"]
                return False
            if not check(status):
                late[:] = [f"{handle.id}: {status.model_dump_json(exclude_defaults=True)}"]
                return False
        return True

    try:
        await until(whole, seconds, what, pause=0.5)
    except AssertionError as error:
        raise AssertionError(f"{error}; {late}") from None


async def all_run(space: Space, attempt: int, seconds: float) -> None:
    def runs(status: Status) -> bool:
        return (status.phase, status.attempt) == ("Running", attempt)

    await all_are(space, runs, seconds, f"all run attempt {attempt}")


async def told(handle: Handle) -> None:
    """Have a workload cancelled, however long that is not heard."""

    async def heard() -> bool:
        try:
            await handle.signal(names.SIGNAL_CANCEL, "the test is over")
        except RPCError:
            return False
        return True

    await until(heard, 120, f"{handle.id} is cancelled", pause=0.5)


def unhealthy(status: Status) -> bool:
    return any(one.type is ConditionType.UNHEALTHY and one.status for one in status.conditions)


@ROW("L1", level="e2e")
async def test_L1_with_one_of_two_servers_killed_no_life_is_lost_and_a_replacement_takes_its_share(
    stack: Stack, servers: Stack, tmp_path: Path
):
    async with opened(stack, servers, tmp_path) as space:
        for index in range(LIVES):
            await space.submit(life(f"life-{index:02}", "60s"))
        await all_run(space, 1, 240)
        await asyncio.gather(*(space.fail_pod(f"life-{index:02}") for index in range(LIVES)))
        await all_are(space, unhealthy, 50, "the grace of all runs")
        await kill(servers, "temporal-1")
        killed = time.monotonic()
        await all_run(space, 2, 240)
        print(f"MEASURED {LIVES} lives were reset {time.monotonic() - killed:.1f} s after the kill, grace 60 s")
        for handle in space.handles:
            assert (await space.site.status(handle)).restarts == 1

        await start(servers, "temporal-1")
        await kill(servers, "temporal-2")
        for handle in space.handles:
            await told(handle)
        ends = await asyncio.gather(*(space.ended(handle, 240) for handle in space.handles))
        assert [status.phase for status in ends] == ["Cancelled"] * LIVES


@ROW("L2", level="e2e")
@ROW("L10", level="e2e")
async def test_L2_L10_a_server_killed_during_100_submissions_loses_none_and_starts_none_twice(
    stack: Stack, servers: Stack, tmp_path: Path
):
    async with opened(stack, servers, tmp_path, worker=False) as space:
        begun = list[str]()
        waited = list[float]()
        async with Holdfast.connect(servers.temporal_address, space.site.cluster, space.site.cluster) as holdfast:

            async def submit(index: int) -> None:
                workload = space.site.read(life(f"start-{index:03}", "0s"), space.namespace)
                since = time.monotonic()
                while True:
                    try:
                        run = await holdfast.submit(workload)
                    except NotReachable:
                        await asyncio.sleep(0.2)
                        continue
                    begun.append(run.workflow_id)
                    waited.append(time.monotonic() - since)
                    return

            async def all_of_them() -> None:
                turns = asyncio.Semaphore(4)

                async def one(index: int) -> None:
                    async with turns:
                        await submit(index)
                        await asyncio.sleep(0.05)

                await asyncio.gather(*(one(index) for index in range(STARTS)))

            submitting = asyncio.create_task(all_of_them())
            await until(lambda: _reached(begun, 30), 60, "a third is submitted")
            await kill(servers, "temporal-1")
            await asyncio.wait_for(submitting, 120)
        print(f"MEASURED the longest of {STARTS} submissions took {max(waited):.1f} s")
        assert len(set(begun)) == len(begun) == STARTS
        client, runs, found = space.site.client, list[str](), list[str]()

        async def looked() -> bool:
            try:
                runs[:] = [one.id async for one in client.list_workflows("ExecutionStatus = 'Running'")]
                found[:] = [(await client.get_workflow_handle(one).describe()).run_id for one in begun]
            except RPCError:
                return False
            return True

        await until(looked, 120, "the other server tells what was started", pause=0.5)
        assert len(set(found)) == STARTS
        assert set(runs) <= set(begun), "nothing else was started"


async def _reached(found: list[str], count: int) -> bool:
    return len(found) >= count


@ROW("L3", level="e2e")
@pytest.mark.real_node
async def test_L3_with_all_servers_and_the_database_killed_what_runs_goes_on_and_what_fell_due_is_done(
    stack: Stack, servers: Stack, tmp_path: Path
):
    async with real_node(stack), opened(stack, servers, tmp_path) as space:
        await space.submit(life("graceful", "15s"))
        await space.submit(appwrapper("real", job(f": {space.site.cluster}; {FOREVER}", 1)))
        await all_run(space, 1, 120)
        pid = processes(space.site.cluster)
        assert len(pid) == 1
        await space.fail_pod("graceful")
        await space.unhealthy(space.handles[0], 30)

        await kill(servers, *SERVERS, "postgresql")
        with pytest.raises(NotReachable):
            async with Holdfast.connect(servers.temporal_address, space.site.cluster, space.site.cluster) as holdfast:
                await holdfast.submit(space.site.read(life("late", "0s"), space.namespace))
        await asyncio.sleep(20)
        assert processes(space.site.cluster) == pid, "what runs does not need Temporal"
        assert {one.attempt for one in space.truth.lives.values() if one.kind == "Pod"} == {1}

        await start(servers, "postgresql", *SERVERS)
        back = time.monotonic()
        await space.reach(space.handles[0], "Running", 2, 120)
        print(f"MEASURED what had fallen due was done {time.monotonic() - back:.1f} s after the servers were back")
        assert processes(space.site.cluster) == pid
        statuses = [await space.site.status(handle) for handle in space.handles]
        assert [(one.phase, one.restarts) for one in statuses] == [("Running", 1), ("Running", 0)]


@ROW("L3", level="e2e")
async def test_L3_restored_from_a_base_backup_and_its_log_what_is_unclear_is_held_and_nothing_alive_is_harmed(
    tmp_path: Path,
):
    own = await asyncio.to_thread(Stack.up, f"ha-{secrets.token_hex(3)}", nodes=2, ha=True)
    try:
        async with open_restored(own, tmp_path) as scene:
            backup = await asyncio.to_thread(own.take_base_backup)
            times: list[datetime] = []

            async def copy() -> None:
                await asyncio.sleep(1)
                times.append(datetime.now(UTC))
                await asyncio.sleep(1)

            async def go_back() -> None:
                scene.worker.kill()
                scene.since = datetime.now(UTC)
                await asyncio.to_thread(own.restore_base_backup, backup, times[0])
                scene.worker = await scene.site.start_worker()

            await older_than_the_cluster(scene, copy, go_back)
    finally:
        await asyncio.to_thread(own.down, purge=True)
