"""A member of a running elastic gang is killed: until the others run in a new round, and until all do.

Real containers on the real kubelet of this machine: each member is Holdfast's agent with a worker under it, which only
traps its signals. The agent of one is killed with -9, as a machine that dies would; its pod's replacement joins.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable

from bench.ground import Ground
from holdfast import names
from tests.e2e.entities.elastic import DIES, Elastic, Process, open_gangs
from tests.e2e.ground.held import open_real
from tests.e2e.ground.space import Space

NAME = "rounds"
SIZES = (4, 16, 64)
PATIENCE = 600.0
POLL = 0.05
LAST_CALL = "1s"


async def measure(ground: Ground, sizes: tuple[int, ...] = SIZES) -> None:
    """Have gangs of these sizes meet, lose a member, and meet again."""
    async with open_gangs(ground.stack, ground.directory, None, None, **ground.options.worker) as site:
        for index, size in enumerate((2, *sizes) if ground.options.warm else sizes):
            for repeat in range(ground.options.repeats):
                async with open_real(site) as space:
                    values = await _once(space, size)
                if index or not ground.options.warm:  # The first is lived that all is loaded, and not counted.
                    ground.record("Holdfast", values, size={"members": size}, repeat=repeat)


async def _once(space: Space, size: int) -> dict[str, float]:
    begun = time.monotonic()
    gang = await Elastic.submit(space, max(1, size - 1), size, lastCall=LAST_CALL, joinTimeout="10m", heartbeat="5s")
    before = await _met(gang, lambda found: len(found) == size)
    started = time.monotonic() - begun
    await asyncio.sleep(2)
    old, lost = {one.pid for one in before}, before[-1].member
    killed_at = (await gang.agents())[lost]
    killed = time.monotonic()
    os.kill(killed_at, DIES)
    await _met(gang, lambda found: len(found) >= size - 1 and old.isdisjoint(one.pid for one in found))
    again = time.monotonic() - killed
    await _met(gang, lambda found: len(found) == size and lost not in {one.member for one in found})
    whole = time.monotonic() - killed
    told = await gang.rendezvous()
    place = names.rendezvous_id(*names.parse_workflow_id(gang.handle.id))
    described = await space.site.client.get_workflow_handle(place).describe()
    status = await gang.status()
    return {
        "start_s": started,
        "again_s": again,
        "whole_s": whole,
        "rounds": told.round,
        "charged": float(sum(told.charged.values()) + status.restarts),
        "events": described.history_length,
    }


async def _met(gang: Elastic, enough: Callable[[list[Process]], bool]) -> list[Process]:
    """Wait until workers run with contiguous ranks in one world of their number, as many as are enough."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        found = await gang.workers()
        whole = [one.rank for one in found] == list(range(len(found))) and {one.world for one in found} == {len(found)}
        if whole and enough(found):
            return found
        await asyncio.sleep(POLL)
    raise TimeoutError(f"no such round within {PATIENCE:g} s; the last seen: {await gang.rendezvous()}")
