"""Kueue decides who runs: AppWrappers that Holdfast runs, admitted, preempted and deactivated by the published Kueue.

`make test-peers` runs this: Kueue is built from its Go module, about 4 minutes once.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.cluster.front_door import stranded
from holdfast.formats.condition import life_in
from holdfast.local import Stack
from tests.e2e.door.front_door import KIND, applied, appwrapper, conditions, in_phase, job, read, runs, said, shows
from tests.e2e.ground.site import open_site, until
from tests.e2e.ground.space import Space, open_space
from tests.e2e.peers.kueue import (
    API_VERSION,
    LABEL_PRIORITY,
    LABEL_QUEUE,
    QUEUE,
    Kueue,
    is_reserved,
    open_kueue,
    sampled,
)

pytestmark = [pytest.mark.e2e, pytest.mark.kueue, pytest.mark.timeout(300)]
BRIEF = {"failureGracePeriodDuration": "0s", "retryLimit": "10"}


@pytest.fixture
async def admitted(stack: Stack, tmp_path: Path) -> AsyncIterator[tuple[Space, Kueue]]:
    async with opened(stack, tmp_path) as found:
        yield found


@contextlib.asynccontextmanager
async def opened(stack: Stack, tmp_path: Path, **settings: Any) -> AsyncIterator[tuple[Space, Kueue]]:
    """A namespace whose AppWrappers Kueue admits, two CPUs at a time."""
    async with open_site(stack, tmp_path, prefix="q") as site:
        await site.start_worker()
        async with (
            open_space(site, KIND) as space,
            open_kueue(stack, tmp_path, space.namespace, **settings) as kueue,
        ):
            preemption = {"withinClusterQueue": "LowerPriority"}
            await kueue.quota("2", preemption=preemption)
            async with sampled(space, kueue, "AppWrapper", "workload.codeflare.dev/appwrapper"):
                yield space, kueue


def asks(space: Space, name: str, cpu: str = "2", priority: str = "", **annotations: str) -> dict[str, Any]:
    """Return an AppWrapper that asks Kueue for CPU: a Job with one pod, which names no node."""
    component = job(f"{name}-work")
    pod = component["template"]["spec"]["template"]["spec"]
    pod.pop("nodeSelector")
    pod["containers"][0]["resources"] = {"requests": {"cpu": cpu}}
    made = appwrapper(space, component, name=name, **annotations)
    made["metadata"]["labels"] = {LABEL_QUEUE: QUEUE} | ({LABEL_PRIORITY: priority} if priority else {})
    return made


@pytest.mark.row("F6", level="e2e")
@pytest.mark.row("F8", level="e2e")
async def test_F8_kueue_admits_one_after_the_other_and_leaves_what_is_under_them_alone(admitted: tuple[Space, Kueue]):
    space, kueue = admitted
    first, second = (asks(space, name) for name in ("first", "second"))
    await applied(space, first)
    found = await runs(space, "first")
    info = found["spec"]["components"][0]["podSetInfos"][0]
    assert info["nodeSelector"] == {"holdfast.dev/node": "fake"}, "as its flavor has it"
    await applied(space, second)
    found = await shows(space, in_phase("Suspended"), "it waits for quota", name="second")
    assert found["spec"]["suspend"] is True, "Kueue's webhook suspends it from the first"
    await asyncio.sleep(2)
    workloads = await kueue.workloads()
    assert set(workloads) == {"AppWrapper first", "AppWrapper second"}, "no Job of theirs is queued a second time"
    assert (is_reserved(workloads["AppWrapper first"]), is_reserved(workloads["AppWrapper second"])) == (True, False)
    work = await space.site.kube.get("batch/v1", "Job", "first-work", space.namespace)
    assert not work["spec"].get("suspend")
    await space.complete("first")
    await shows(space, in_phase("Succeeded"), "the first has succeeded", name="first")
    await runs(space, "second")
    finished = (await kueue.workloads())["AppWrapper first"]
    assert any(one["type"] == "Finished" and one["status"] == "True" for one in finished["status"]["conditions"])


@pytest.mark.row("F8", level="e2e")
async def test_F8_a_more_important_one_preempts_and_the_other_comes_back(admitted: tuple[Space, Kueue]):
    space, kueue = admitted
    urgent = await kueue.priority("urgent", 1000)
    await applied(space, asks(space, "patient"))
    await runs(space, "patient")
    await applied(space, asks(space, "urgent", priority=urgent))
    found = await shows(space, in_phase("Suspended"), "it is preempted", name="patient")
    assert conditions(found)["QuotaReserved"] == "False"
    assert "spec.suspend of its AppWrapper is true" in said(found)
    await runs(space, "urgent")
    assert not await space.pods("patient")
    await space.complete("urgent")
    found = await runs(space, "patient")
    assert found["status"]["resettingCount"] == 0, "a preemption is no failure"


@pytest.mark.row("F8", level="e2e")
async def test_F8_one_that_is_deactivated_is_suspended_and_one_that_has_failed_gives_its_quota_back(
    admitted: tuple[Space, Kueue],
):
    space, kueue = admitted
    await applied(space, asks(space, "first"))
    await runs(space, "first")
    workload = (await kueue.workloads())["AppWrapper first"]
    await space.patch(API_VERSION, "Workload", workload["metadata"]["name"], {"spec": {"active": False}})
    await shows(space, in_phase("Suspended"), "it is deactivated", name="first")
    await applied(space, asks(space, "failing", retryLimit="0"))
    await runs(space, "failing")
    await space.fail_pod("failing")
    await shows(space, in_phase("Failed"), "it has failed", 120, name="failing")
    await applied(space, asks(space, "next"))
    await runs(space, "next")

    async def is_finished() -> bool:
        found = (await kueue.workloads())["AppWrapper failing"]
        return any(one["type"] == "Finished" and one["status"] == "True" for one in found["status"]["conditions"])

    await until(is_finished, 30, "Kueue knows that it has ended")
    assert await read(space, "first") is not None


def waits(recovery: str) -> dict[str, Any]:
    """Return Kueue's settings of how long it waits for ready pods; what it has evicted is admitted again at once."""
    return {"timeout": "5m", "recoveryTimeout": recovery, "requeuingStrategy": {"backoffBaseSeconds": 1}}


def evictions(workload: dict[str, Any]) -> Counter[str]:
    """Return how often a Workload was evicted, by why."""
    stats = workload.get("status", {}).get("schedulingStats", {}).get("evictions", ())
    return Counter({one.get("underlyingCause") or one["reason"]: one["count"] for one in stats})


def attempt_of(found: dict[str, Any] | None) -> int:
    life = life_in(found["status"]) if found else None
    return life.attempt if life else 0


def has_attempt(number: int) -> Callable[[dict[str, Any]], bool]:
    """Whether the pods of an attempt, or a later one, are ready."""
    return lambda found: attempt_of(found) >= number and conditions(found).get("PodsReady") == "True"


async def fails(space: Space, name: str) -> bool:
    """Have a pod fail, if one runs: it may be evicted at that moment."""
    try:
        await space.fail_pod(name)
    except IndexError:
        return False
    return True


@pytest.mark.row("F9", level="e2e")
async def test_F9_a_reset_within_kueues_recovery_timeout_keeps_its_admission(stack: Stack, tmp_path: Path):
    async with opened(stack, tmp_path, waitForPodsReady=waits("60s")) as (space, kueue):
        await applied(space, asks(space, "train", **BRIEF, retryPausePeriodDuration="2s"))
        await runs(space, "train")
        for attempt in (2, 3):
            await space.fail_pod("train")
            await shows(space, has_attempt(attempt), "it runs again", name="train")
        found = (await kueue.workloads())["AppWrapper train"]
        assert is_reserved(found)
        assert not evictions(found)


@pytest.mark.row("F9", level="e2e")
async def test_F9_resets_about_as_long_as_kueues_recovery_timeout_strand_no_quota(stack: Stack, tmp_path: Path):
    """The race of kubernetes-sigs/kueue#14811: pods that are ready again while Kueue evicts for them."""
    pauses = {f"w{tenths}": f"{tenths / 10}s" for tenths in range(1, 29, 4)}
    async with opened(stack, tmp_path, waitForPodsReady=waits("3s")) as (space, kueue):
        for name, pause in pauses.items():
            await applied(space, asks(space, name, "250m", **BRIEF, retryPausePeriodDuration=pause))
        for rounds in (1, 2, 3):
            await asyncio.gather(*(runs(space, name) for name in pauses))
            before = {name: attempt_of(await read(space, name)) for name in pauses}
            for name in pauses:
                await until(partial(fails, space, name), 30, f"a pod of {name} fails")
            for name in pauses:
                later = has_attempt(before[name] + 1)
                await shows(space, later, f"{name} runs again, round {rounds}", 90, name=name)
        await asyncio.sleep(4)  # Longer than Kueue waits: what it evicts at the last moment comes back too.

        async def all_are_back() -> bool:
            workloads = (await kueue.workloads()).values()
            found = await space.site.objects(*KIND, space.namespace)
            assert not stranded(workloads, found, datetime.now(UTC))
            return all(map(is_reserved, workloads)) and all(conditions(one).get("PodsReady") == "True" for one in found)

        await until(all_are_back, 90, "all run, and hold their quota")
        workloads = await kueue.workloads()
        evicted = Counter(why for one in workloads.values() for why in evictions(one).elements())
        print(f"MEASURED {3 * len(pauses)} resets about the recovery timeout, evictions {dict(evicted)}")
        assert evicted["WaitForRecovery"], "some of them are evicted"
