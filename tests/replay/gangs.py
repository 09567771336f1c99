"""What befalls a gang's rendezvous, to be recorded: rounds, a hub that is followed by another, the next attempt."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from temporalio.client import WorkflowHandle

from holdfast.model.gang.wire import MemberState
from tests.workflows.conftest import Run
from tests.workflows.gathered import Gathering

SECOND = timedelta(seconds=1)


async def opened(run: Run, **settings: Any) -> Gathering:
    """A gang whose workload is there no more when it is to be told: that must end nothing."""
    waits = {"last_call": timedelta(seconds=0.5), "heartbeat": SECOND, "keep_alive_attempts": 2}
    gang = Gathering(run.client, "gang", 1, 3, **{**waits, **settings})
    await gang.signal_attempt(gang.begin())
    return await gang.attach()


async def gang_rounds(run: Run) -> WorkflowHandle[Any, Any]:
    """A failure, a loss, a last call that its own timer ends, an eviction, another size, and success."""
    gang = await opened(run)
    await (await gang.join("a", "b", "c")).obey()
    await gang.fails("a")
    await gang.tell(gang.says("a", MemberState.INIT))
    await gang.obey()
    await gang.loses("b")
    await gang.obey()
    await gang.runs(3)
    await gang.attach()
    await gang.join("d")
    await gang.obey()
    await gang.runs(4)
    await gang.resizes(1, 2)
    await gang.ask()
    await gang.obey()
    await gang.runs(5)
    left = [name for name, one in gang.told.items() if one.assignment is not None]
    await gang.succeeds(*left)
    await gang.ends()
    return gang.handle


async def gang_attempts(run: Run) -> WorkflowHandle[Any, Any]:
    """A loss that is the workload's, the end of its attempt, and the next one, which is ended while it runs."""
    gang = await opened(run, max_restarts=0, max_rounds=10)
    await (await gang.join("a", "b", "c")).obey()
    await gang.loses("b")
    await gang.ends()
    await gang.signal_attempt(gang.begin(attempt=2))
    await gang.attach()
    gang.states.clear()
    await (await gang.join("a", "b", "c")).obey()
    await gang.evicts("a")
    await gang.ends()
    return gang.handle


async def gang_continued(run: Run) -> WorkflowHandle[Any, Any]:
    """Rounds enough for a new run, which goes on where the one before it stood."""
    gang = await opened(run, max_restarts=9)
    await (await gang.join("a", "b", "c")).obey()
    for _ in range(4):
        await gang.attach()
        await gang.fails("a")
        await gang.tell(gang.says("a", MemberState.INIT))
        await gang.obey()
    await gang.succeeds("a", "b", "c")
    await gang.ends()
    return gang.handle


GANGS: dict[str, tuple[Callable[[Run], Awaitable[WorkflowHandle[Any, Any]]], int]] = {
    "gang-rounds": (gang_rounds, 0),
    "gang-attempts": (gang_attempts, 0),
    "gang-continued": (gang_continued, 20),
}
