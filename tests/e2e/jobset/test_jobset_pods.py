"""What a restart costs in history does not depend on how many pods there are (row J18): 4 pods and 80."""

from __future__ import annotations

import asyncio

import pytest

from tests.e2e.ground.space import Space
from tests.e2e.jobset.jobset_life import end_pods, reach
from tests.e2e.jobset.test_jobset_restarts import once
from tests.e2e.peers.jobsets import jobset

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]
BUDGET = 60 + 56
"""Events of a life with one restart (docs/decisions/0007-history-is-a-budget.md)."""


async def cost(space: Space, name: str, pods: int) -> int:
    """Return the history events of a JobSet that half of its pods restart once, and that then succeeds."""
    document = jobset(name, once("workers", pods, replicas=2), failurePolicy={"maxRestarts": 1})
    handle = await space.submit(document)
    await reach(space, handle, "Running", 1)
    await end_pods(space, 1, *((f"{name}-workers-{job}", index) for job in range(2) for index in range(pods // 2)))
    await reach(space, handle, "Running", 2)
    await space.complete(name)
    status = await reach(space, handle, "Succeeded", 2)
    assert (status.phase, status.restarts) == ("Succeeded", 1)
    return (await handle.describe()).history_length


@pytest.mark.row("J18", level="e2e")
@pytest.mark.row("D30", level="e2e")
async def test_J18_the_history_of_a_restart_does_not_grow_with_the_pods(space: Space):
    few, many = await asyncio.gather(cost(space, "few", 2), cost(space, "many", 40))
    assert max(few, many) <= BUDGET
    # On a busy machine 80 pods start over a longer time than 4, which is told now and then.
    assert many - few < (80 - 4) / 2, f"{few} events with 4 pods, {many} with 80"
