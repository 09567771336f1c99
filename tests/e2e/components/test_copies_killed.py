"""A worker killed in the middle of creating copies: another makes the rest, and none is made twice."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast.local import Stack
from tests.e2e.components.test_copies import assert_named, document, jobs, uids
from tests.e2e.ground.site import open_site, until
from tests.e2e.ground.space import open_space

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


async def test_a_worker_killed_in_the_middle_of_creating_20_leaves_exactly_20(stack: Stack, tmp_path: Path):
    async with open_site(stack, tmp_path, prefix="k") as site:
        # Two Jobs are made by then, one of which may be the driver, and at most 16 more are under way: 18 at most.
        dying = await site.start_worker(HOLDFAST_FAILPOINT="http.create.jobs.after:2")
        async with open_space(site) as space:
            handle = await space.submit(document(20))
            await until(lambda: asyncio.sleep(0, dying.process.poll() is not None), 60, "the worker has died")
            assert dying.process.returncode == 137
            half = await uids(space)
            assert 0 < len(half) < 20
            await site.start_worker()
            await space.reach(handle, "Running", 1)
            whole = await uids(space)
            assert_named(await jobs(space), 20, 0)
            assert half.items() <= whole.items(), "what had been made is kept"
            await space.truth.settle()
            # By what was there: a request whose client died meanwhile may be in the log without a success.
            made = sorted(life.name for life in space.truth.of(1, "Job"))
            assert made == sorted({*whole, "driver"}), "none is made twice"
            status = await site.status(handle)
            assert (status.attempt, status.restarts, status.pods.running) == (1, 0, 21)
