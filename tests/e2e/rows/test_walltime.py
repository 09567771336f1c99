"""The walltime on real servers: fake nodes for what is decided, a real kubelet for signals and the backstop (L18)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from holdfast import formats
from holdfast.client import Run
from holdfast.client.connection import Place
from holdfast.errors import HoldfastError
from holdfast.local import Stack
from holdfast.model import OperationKind
from tests.e2e.crash.scene import OwnTemporal
from tests.e2e.ground.held import open_real
from tests.e2e.ground.site import Site, open_site, until
from tests.e2e.ground.space import Space
from tests.e2e.lives.lattice import NAME, allocation, loses_its_node
from tests.e2e.nodes.test_real_node import FOREVER, containers

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]
L18 = pytest.mark.row("L18", level="e2e")
REAL = pytest.mark.real_node


@L18
async def test_L18_its_walltime_ends_it_and_stands_above_requeues(space: Space):
    handle = await space.submit(allocation("service", walltime="15s"))
    status = await space.reach(handle, "Running", 1)
    assert status.walltime_until is not None
    (pod,) = await space.pods(NAME)
    backstop = 15 + 15 * 60 + 30
    assert pod["spec"]["activeDeadlineSeconds"] == backstop
    status = await space.ended(handle)
    assert (status.phase, status.reason, status.requeues) == ("Failed", "WalltimeExceeded", 0)
    assert status.failure is not None
    assert (status.failure.cls, status.failure.message) == ("Deadline", "its walltime of 15s is over")
    removals = await space.acts(handle, OperationKind.REMOVE)
    assert status.walltime_until is None
    assert removals[0].scheduled >= status.failure.time
    assert await space.site.gone(space.namespace)


@L18
async def test_L18_it_is_extended_while_it_runs_as_far_as_was_submitted(space: Space):
    document = allocation("batch", walltime="20s", walltimeExtendableTo="1h")
    handle = await space.submit(document)
    before = await space.reach(handle, "Running", 1)
    place = Place(space.site.temporal_address, space.site.cluster)
    run = Run(space.site.client, place, handle.id, before.uid)
    after = await run.extend("30m", "more data came")
    assert before.walltime_until is not None
    assert after.walltime_until is not None
    assert (after.walltime_until - before.walltime_until).total_seconds() == 30 * 60
    with pytest.raises(HoldfastError, match=r"the walltime would be 1h30m20s, and lifecycle.extendableTo allows 1h"):
        await run.extend("1h")

    first = before.walltime_until

    async def past() -> bool:
        return datetime.now(first.tzinfo) > first

    await until(past, 30, "the first walltime is over")
    assert (await space.site.status(handle)).phase == "Running"
    await loses_its_node(space)
    await space.reach(handle, "Running", 2)
    await space.complete(NAME)
    assert (await space.ended(handle)).phase == "Succeeded"


def spec(script: str, **fields: Any) -> dict[str, Any]:
    """Return a pod of the real node that says nothing of its own grace."""
    made = containers(script, **fields)
    made.pop("terminationGracePeriodSeconds")
    return made


@pytest_asyncio.fixture(loop_scope="session")
async def real(shared_site: Site) -> AsyncIterator[Space]:
    """A namespace of pods that the kubelet can run."""
    async with open_real(shared_site) as space:
        yield space


def _lived_on(space: Space, pod: dict[str, Any]) -> tuple[float, int]:
    """Return for how many seconds a container lived on after its deletion was asked for, and its exit code."""
    (life,) = [one for one in space.truth.of(1, "Pod") if one.object["metadata"]["uid"] == pod["metadata"]["uid"]]
    end = life.object["status"]["containerStatuses"][0]["state"]["terminated"]
    deleted = min(
        one.time
        for one in space.truth.requests()
        if (one.verb, one.resource, one.name) == ("delete", "pods", pod["metadata"]["name"])
    )
    return (datetime.fromisoformat(end["finishedAt"]) - deleted).total_seconds(), int(end["exitCode"])


@L18
@REAL
@pytest.mark.timeout(180)
async def test_L18_a_process_that_traps_TERM_is_killed_after_30_s_and_a_polite_one_ends_earlier(real: Space):
    stubborn, polite = spec(f"trap '' TERM; {FOREVER}"), spec(f"trap 'sleep 2; exit 7' TERM; {FOREVER}")
    handle = await real.submit(allocation("batch", stubborn, polite, walltime="15s"))
    await real.reach(handle, "Running", 1)
    pods = {one["spec"]["containers"][0]["command"][2][:7]: one for one in await real.pods()}
    assert {one["spec"]["terminationGracePeriodSeconds"] for one in pods.values()} == {30}
    status = await real.ended(handle)
    assert (status.phase, status.reason) == ("Failed", "WalltimeExceeded")
    await real.truth.settle()
    killed, code = _lived_on(real, pods["trap ''"])
    assert code == 137
    assert 28 <= killed <= 60, f"killed {killed:.1f} s after its deletion"
    ended, code = _lived_on(real, pods["trap 's"])
    assert code == 7, "it ended by itself, as it wanted to"
    assert ended < 15
    assert not await real.acts(handle, OperationKind.FORCE_REMOVE)


@L18
@REAL
@pytest.mark.timeout(600)
async def test_L18_with_temporal_stopped_the_node_ends_it_by_itself(stack: Stack, tmp_path: Path):
    temporal = OwnTemporal(stack, tmp_path)
    await temporal.start()
    try:
        async with open_site(stack, tmp_path, temporal_address=temporal.address, prefix="w") as site:
            await site.start_worker()
            async with open_real(site) as space:
                document = allocation("batch", spec(FOREVER), walltime="30s", warmupGracePeriod="60s")
                (workload,) = formats.read(document, cluster=site.cluster, namespace=space.namespace)
                deletion = workload.policy.deletion.model_copy(update={"termination_grace": timedelta(seconds=2)})
                policy = workload.policy.model_copy(update={"deletion": deletion})
                handle = await space.submit(workload.model_copy(update={"policy": policy}))
                await space.reach(handle, "Running", 1)
                temporal.kill()

                async def ended() -> bool:
                    return [one["status"].get("reason") for one in await space.pods()] == ["DeadlineExceeded"]

                await until(ended, 240, "the kubelet has ended it")
                (pod,) = await space.pods()
                assert pod["spec"]["activeDeadlineSeconds"] == 30 + 60 + 2
                assert "deletionTimestamp" not in pod["metadata"], "nobody else has"
                await temporal.start()
                status = await space.ended(handle)
                assert (status.phase, status.reason) == ("Failed", "WalltimeExceeded")
    finally:
        temporal.kill()
