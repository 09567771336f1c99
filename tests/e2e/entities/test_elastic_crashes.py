"""The worker dies at every point of a gang's rounds: nobody is charged for it, nobody runs twice, nothing is lost.

`make test-crash` (TEST_CRASH=every) lives the rounds once for every point they pass; otherwise only a sample is.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast import names
from holdfast.local import Stack
from holdfast.worker.failpoints import Passing
from tests.e2e.crash import failpoints
from tests.e2e.crash.asking import Asking
from tests.e2e.crash.failpoints import SLICES
from tests.e2e.entities.elastic import DIES, FAILS, FINISHES, Elastic, door
from tests.e2e.ground.held import open_real
from tests.e2e.ground.site import Site, open_site
from tests.e2e.ground.space import Space
from tests.e2e.witness import invariants

pytestmark = [pytest.mark.e2e, pytest.mark.real_node, pytest.mark.asyncio(loop_scope="session")]

EVERY = os.environ.get("TEST_CRASH") == "every"
SAMPLE = (
    "activity.begin_gang.before:1",
    "activity.begin_gang.after:1",
    "update.attach.after:1",
    "update.announce.before:2",
    "update.announce.after:3",
    "update.announce.before:5",
)
"""Before and after a gang is known, as a hub takes it over, as rounds form, and as one is told that a member failed."""


async def rounds(space: Space) -> None:
    """Two meet; one fails and is charged for it; one is killed with its agent, and replaced; both succeed."""
    gang = await Elastic.submit(space, 2, 2)
    first, second = await gang.meets(2)
    await space.reach(gang.handle, "Running", 1)
    await gang.signal(first, FAILS)

    async def restarted() -> bool:
        return any(one.member == first.member and one.restarts == 1 for one in await gang.workers())

    await gang.waits(restarted, 120, "the one that failed runs for the second time")
    await gang.meets(2)
    os.kill((await gang.agents())[second.member], DIES)
    last = await gang.meets(2, 180, without=second.member)
    told = await gang.rendezvous()
    assert dict(told.charged) == {first.member: 1}, "only for its own failure"
    for one in last:
        await gang.signal(one, FINISHES)
    status = await gang.reaches("Succeeded", 180)
    assert (status.attempt, status.restarts, {one.used for one in status.budgets}) == (1, 0, {0})
    await space.truth.settle()
    space.truth.assert_one_attempt_at_a_time("train")
    pods = {life.object["metadata"]["name"] for life in space.truth.of(1, "Pod")}
    assert len(pods) == 3, f"two, and the replacement of one: {pods}"
    described = await space.site.client.get_workflow_handle(
        names.rendezvous_id(*names.parse_workflow_id(gang.handle.id))
    ).describe()
    assert described.history_length < 400


async def live(site: Site, crashes: failpoints.Crashes, trace: Path | None = None) -> int:
    """Live these rounds with a worker that dies there, and return how often it did."""
    asking = Asking(site.client, ())
    async with asking.over():
        mortal = failpoints.Mortal(site, crashes, trace, await door(site), asking)

        async def life() -> None:
            async with open_real(site) as space:
                await rounds(space)
                await asking.answered()
                await invariants.check_replays(site.client)

        await mortal.during(life())
    return len(mortal.crashes)


if EVERY:

    @pytest.mark.timeout(3600)
    @pytest.mark.parametrize("index", range(SLICES))
    async def test_rounds_survive_a_worker_that_dies_anywhere(stack: Stack, tmp_path: Path, shared: Path, index: int):
        async def once(trace: Path) -> int:
            async with open_site(stack, tmp_path, prefix="g") as site:
                return await live(site, (), trace)

        points = await failpoints.points_in(shared, failpoints.ROUNDS, once)
        outcomes: list[failpoints.Outcome] = []
        for number, point in list(enumerate(points))[index::SLICES]:
            (tmp_path / str(number)).mkdir()
            async with open_site(stack, tmp_path / str(number), prefix="g") as site:
                outcomes.append(await failpoints.outcome_of(failpoints.ROUNDS, (point,), live(site, (point,))))
            print(outcomes[-1])
            failpoints.record(outcomes, f"{failpoints.ROUNDS}-{index}")
        broken = [f"{one.crashes}: {one.problem}" for one in outcomes if one.problem]
        assert not broken, "\n\n".join(broken)
        assert sum(one.reached for one in outcomes) > len(outcomes) / 2

else:

    @pytest.mark.timeout(600)
    @pytest.mark.parametrize("point", [pytest.param(SAMPLE[0], marks=pytest.mark.sample), *SAMPLE[1:]])
    async def test_a_round_survives_a_worker_that_dies_in_it(stack: Stack, tmp_path: Path, point: str):
        async with open_site(stack, tmp_path, prefix="g") as site:
            assert await live(site, (Passing.parse(point),)) == 1, f"{point} was not passed"
