"""What comes while no worker lives is decided by the time of the task that takes it in, even if a query came first."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import subprocess
import sys
from datetime import UTC, datetime

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowHandle, WorkflowQueryFailedError
from temporalio.service import RPCError

from holdfast.local import Stack
from tests.e2e.ground.site import asked, until
from tests.workflows.clocked import Clocked

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(300), pytest.mark.asyncio]


async def test_a_query_before_the_task_decides_nothing(stack: Stack) -> None:
    client = await Client.connect(stack.temporal_address)
    queue = f"clocked-{secrets.token_hex(3)}"

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-m", "tests.workflows.clocked", stack.temporal_address, queue])

    worker = start()
    handle = await client.start_workflow(Clocked.run, id=queue, task_queue=queue)
    try:
        await handle.signal(Clocked.poke, "while it lives")
        await until(lambda: _took(handle, 1), 60, "the first signal is taken in")
        worker.kill()
        worker.wait()
        # It waits for a worker, which is then shown the signal too; the task for that is the dead one's at first.
        query = asyncio.create_task(handle.query(Clocked.taken))
        await asyncio.sleep(1)
        await handle.signal(Clocked.poke, "while none lives")
        worker = start()
        with contextlib.suppress(WorkflowQueryFailedError, RPCError):
            await query
        await until(lambda: _took(handle, 2), 60, "the second signal is taken in")
        times = [datetime.fromisoformat(each) for each in await asked(lambda: handle.query(Clocked.taken))]
        assert times[1] >= await _came(handle, 2), "decided by a time at which it had not come"
    finally:
        await handle.terminate("the test is over")
        worker.kill()
        worker.wait()


async def _took(handle: WorkflowHandle[Clocked, None], count: int) -> bool:
    return len(await asked(lambda: handle.query(Clocked.taken))) == count


async def _came(handle: WorkflowHandle[Clocked, None], number: int) -> datetime:
    """Return when a signal came, by the history."""
    events = (await handle.fetch_history()).events
    signals = [each for each in events if each.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED]
    return signals[number - 1].event_time.ToDatetime(UTC)
