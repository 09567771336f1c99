"""An applied AppWrapper restarts in place with real containers, and goes on from its last save (row J25)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from holdfast import names
from holdfast.policy.attempt.checkpoint import CheckpointAsk
from tests.e2e.door.front_door import KIND, applied, appwrapper, shows
from tests.e2e.figures.in_place import PODS, Processes, in_place, places, token, with_agent
from tests.e2e.ground.held import open_real
from tests.e2e.ground.site import Site, until
from tests.e2e.ground.space import Space
from tests.e2e.lives.saving import save

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.real_node,
    pytest.mark.timeout(600),
    pytest.mark.asyncio(loop_scope="session"),
]
SAVE = 7


@pytest_asyncio.fixture(loop_scope="session")
async def door(shared_site: Site) -> AsyncIterator[Space]:
    """A namespace for AppWrappers whose pods run on the real node, with the agent."""
    async with open_real(shared_site, KIND) as space:
        await with_agent(space)
        yield space


def wrapped(space: Space, number: int) -> dict[str, Any]:
    """Return an AppWrapper of one Job whose programs show their attempt, and then the save that they go on from."""
    job = in_place("work", number)["spec"]["replicatedJobs"][0]["template"]["spec"]
    job["template"]["spec"]["restartPolicy"] = "Never"
    (program,) = job["template"]["spec"]["containers"]
    attempt, resume = f"$(cat ${names.ENV_IN_PLACE_ATTEMPT_FILE})", f"$(cat ${names.ENV_RESUME_FROM_FILE})"
    program["command"] = ["sh", "-c", f"exec sleep {number}{attempt}{resume}"]
    component = {"template": {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "work"}, "spec": job}}
    document = appwrapper(space, component, failureGracePeriodDuration="0s")
    document["metadata"]["annotations"] |= {
        f"{names.GROUP}/restartMode": "InPlace",
        f"{names.GROUP}/checkpoint": "annotation",
    }
    return document


@pytest.mark.row("J25", level="e2e")
async def test_J25_an_appwrapper_restarts_in_place_from_its_last_save(door: Space):
    number = token()
    handle = await applied(door, wrapped(door, number))
    programs = Processes(number)
    await programs.run(0)
    await door.reach(handle, "Running", 1)
    before = await places(door)
    assert len(before) == PODS
    await handle.execute_update(names.UPDATE_CHECKPOINT, CheckpointAsk(note="nightly"))
    await save(door, str(SAVE), pods=PODS)

    async def is_saved() -> bool:
        return (await door.site.status(handle)).saved is not None

    await until(is_saved, 60, "the save is complete")
    async with programs.watched():
        await asyncio.to_thread(programs.kill)
        await programs.run(int(f"1{SAVE}"))
    assert programs.mixed == []
    status = await door.reach(handle, "Running", 1)
    assert (status.restarts, status.resumed_from) == (1, str(SAVE))
    assert await places(door) == before, "uid, node and address stay"
    await shows(door, lambda one: one["status"]["resettingCount"] == 1, "its own status counts the restart")
