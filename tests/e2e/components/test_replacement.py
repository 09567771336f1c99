"""Pods of a living attempt made again alone: deleted, failed, completed; how often; what is left be (S7, S9, S10)."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from holdfast import names
from holdfast.model import Status
from tests.e2e.ground.site import until
from tests.e2e.ground.space import FOREIGN_FINALIZER, Handle, Space
from tests.e2e.lives.streams import (
    NAME,
    cancelled,
    config_map,
    creations,
    everything,
    let_pods,
    pe,
    pes,
    says,
    streams,
    told,
    uids,
)

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300), pytest.mark.asyncio(loop_scope="session")]
ROW = pytest.mark.row


async def again(space: Space, handle: Handle, name: str, old: str) -> Status:
    """Wait until a pod of this name is there that is not the old one, and all run."""

    async def made() -> bool:
        return (await uids(space)).get(name, old) != old

    await until(made, 90, f"{name} of {handle.id} is made again")

    async def runs() -> bool:
        status = await space.site.status(handle)
        return (status.phase, status.reason) == ("Running", "SufficientPodsReady")

    await until(runs, 60, "all run again")
    return await space.site.status(handle)


async def launches(space: Space) -> dict[str, str]:
    return {pod["metadata"]["name"]: pod["metadata"]["labels"][names.LABEL_LAUNCH] for pod in await space.pods()}


# --- deleted


@ROW("S7", level="e2e")
@ROW("S9", level="e2e")
async def test_S7_a_deleted_pod_is_made_again_alone_each_time(space: Space):
    handle = await space.submit(streams(config_map(), *pes(3)))
    await space.reach(handle, "Running")
    before = await everything(space)
    first = await uids(space)
    await space.delete("v1", "Pod", "pe-1")
    await again(space, handle, "pe-1", first["pe-1"])
    assert await launches(space) == {"pe-0": "0", "pe-1": "1", "pe-2": "0"}

    await asyncio.sleep(3)  # The watch has told that it is back; what becomes of it before that is another test's.
    second = await uids(space)
    await space.delete("v1", "Pod", "pe-1")
    status = await again(space, handle, "pe-1", second["pe-1"])
    assert await launches(space) == {"pe-0": "0", "pe-1": "2", "pe-2": "0"}
    assert (status.attempt, status.executions, status.restarts) == (1, 1, 0)
    assert [(one.name, one.used, one.limit) for one in status.budgets] == [("launch", 2, None)]
    after = await everything(space)
    untouched = {("Pod", "pe-0"), ("Pod", "pe-2"), ("ConfigMap", "adl")}
    assert {key: after[key] for key in untouched} == {key: before[key] for key in untouched}
    made = [name for _, resource, name in creations(space) if resource == "pods"]
    assert sorted(made) == ["pe-0", "pe-1", "pe-1", "pe-1", "pe-2"], "each once, and pe-1 once for each deletion"
    assert [message for _, message in await told(space, "Replacing")] == ["Pod pe-1 was deleted"] * 2
    assert (await cancelled(handle)).phase == "Cancelled"


@ROW("S7", level="e2e")
async def test_S7_a_pod_that_is_deleted_the_moment_it_is_back_is_made_again(space: Space):
    handle = await space.submit(streams(config_map(), *pes(2)))
    await space.reach(handle, "Running")
    for _ in range(5):
        before = await uids(space)
        await space.delete("v1", "Pod", "pe-1")
        await again(space, handle, "pe-1", before["pe-1"])
    assert await launches(space) == {"pe-0": "0", "pe-1": "5"}
    await cancelled(handle)


@ROW("S7", level="e2e")
async def test_S7_several_pods_deleted_at_once_are_all_made_again(space: Space):
    handle = await space.submit(streams(config_map(), *pes(3)))
    await space.reach(handle, "Running")
    before = await uids(space)
    await asyncio.gather(*(space.delete("v1", "Pod", name) for name in ("pe-0", "pe-2")))
    await again(space, handle, "pe-0", before["pe-0"])
    await again(space, handle, "pe-2", before["pe-2"])
    assert await launches(space) == {"pe-0": "1", "pe-1": "0", "pe-2": "1"}
    assert (await uids(space))["pe-1"] == before["pe-1"]


@ROW("S7", level="e2e")
async def test_S7_nothing_is_made_again_while_the_workload_is_being_removed(space: Space):
    handle = await space.submit(streams(config_map(), *pes(3)))
    await space.reach(handle, "Running")
    await space.finalize("v1", "Pod", "pe-2", FOREIGN_FINALIZER)
    asked = datetime.now(UTC)
    await handle.signal(names.SIGNAL_CANCEL, "no longer wanted")
    await space.reach(handle, "Terminating")
    await until(lambda: _only(space, "pe-2"), 60, "the others are gone")
    await asyncio.sleep(5)
    await space.finalize("v1", "Pod", "pe-2")
    assert (await space.ended(handle)).phase == "Cancelled"
    assert not creations(space, asked)


async def _only(space: Space, name: str) -> bool:
    return list(await uids(space)) == [name]


@ROW("S7", level="e2e")
async def test_S7_nothing_of_an_attempt_is_made_again_while_it_is_being_reset(space: Space):
    """With the attempt's owner all of it goes: no pod of it is taken for one that was deleted alone."""
    handle = await space.submit(streams(config_map(), *pes(3)))
    await space.reach(handle, "Running")
    await space.finalize("v1", "Pod", "pe-2", FOREIGN_FINALIZER)
    asked = datetime.now(UTC)
    await space.delete(names.API_VERSION, names.ATTEMPT_KIND, names.attempt_name(NAME, 1), propagation="Foreground")
    await space.reach(handle, "Resetting")
    await until(lambda: _only(space, "pe-2"), 60, "the others are gone")
    await asyncio.sleep(5)
    freed = datetime.now(UTC)
    await space.finalize("v1", "Pod", "pe-2")
    await space.reach(handle, "Running", 2)
    assert not [one for one in creations(space, asked) if one[0] <= freed]
    await space.truth.settle()
    space.truth.assert_one_attempt_at_a_time(NAME)
    assert set((await launches(space)).values()) == {"0"}
    assert (await cancelled(handle)).restarts == 1


@ROW("D17", level="e2e")
async def test_D17_a_pod_that_waits_for_quota_keeps_no_other_from_being_made_again(space: Space):
    large = pe(0)
    large["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1m"}}
    handle = await space.submit(streams(config_map(), large, pe(1)))
    await space.reach(handle, "Running")
    first = await uids(space)
    await let_pods(space, 0, "NotBestEffort")
    await space.delete("v1", "Pod", "pe-0")
    await says(handle, "pe-0", "exceeded quota")
    for launch in (1, 2):
        before = await uids(space)
        await space.delete("v1", "Pod", "pe-1")

        async def back(old: str = before["pe-1"]) -> bool:
            return (await uids(space)).get("pe-1", old) != old

        await until(back, 60, f"pe-1 is made again, launch {launch}, while pe-0 waits")
        assert await launches(space) == {"pe-1": str(launch)}
    await says(handle, "pe-0", "exceeded quota")
    await space.delete("v1", "ResourceQuota", "pods")
    status = await again(space, handle, "pe-0", first["pe-0"])
    assert await launches(space) == {"pe-0": "1", "pe-1": "2"}
    assert (status.attempt, status.restarts) == (1, 0)
    await cancelled(handle)


@ROW("S7", level="e2e")
async def test_S7_a_foreign_pod_of_the_same_name_is_left_alone_and_named(alone: Space):
    handle = await alone.submit(streams(config_map(), *pes(2)))
    await alone.reach(handle, "Running")
    ours = await uids(alone)
    alone.site.workers[-1].kill()
    await alone.delete("v1", "Pod", "pe-1")
    await until(lambda: _only(alone, "pe-0"), 30, "it is gone")
    document = pe(1)
    document["spec"] |= {"schedulerName": "nobody"}
    foreign = (await alone.make(document))["metadata"]
    await alone.site.start_worker()
    status = await alone.ended(handle)
    assert (status.phase, status.reason) == ("Failed", "CreateFailed")
    assert status.failure is not None
    assert f"Pod {alone.namespace}/pe-1 is there already and is not ours" in status.failure.message
    left = {pod["metadata"]["name"]: pod["metadata"] for pod in await alone.pods()}
    assert {name: (one["uid"], one["resourceVersion"]) for name, one in left.items()} == {
        "pe-1": (foreign["uid"], foreign["resourceVersion"])
    }
    assert foreign["uid"] not in ours.values()


@ROW("S7", level="e2e")
async def test_S7_a_worker_that_dies_while_it_makes_a_pod_again_interrupts_no_submission(alone: Space):
    """What was submitted stays submitted: the next worker goes on with the same launch of the same pod."""
    handle = await alone.submit(streams(config_map(), *pes(3)))
    await alone.reach(handle, "Running")
    before = await uids(alone)
    await let_pods(alone, 2)
    await alone.delete("v1", "Pod", "pe-1")
    await says(handle, "creating Pod pe-1", "exceeded quota")
    alone.site.workers[-1].kill()
    await alone.site.start_worker()
    await let_pods(alone, 3)
    status = await again(alone, handle, "pe-1", before["pe-1"])
    assert (status.attempt, status.executions, status.restarts) == (1, 1, 0)
    assert await launches(alone) == {"pe-0": "0", "pe-1": "1", "pe-2": "0"}
    assert {**(await uids(alone)), "pe-1": before["pe-1"]} == before, "the others are left alone"
    assert [(one.name, one.used) for one in status.budgets] == [("launch", 1)]


# --- failed, completed


@ROW("S9", level="e2e")
async def test_S9_a_failed_pod_is_made_again_and_completed_ones_end_the_workload(space: Space):
    handle = await space.submit(streams(config_map(), *pes(2)))
    await space.reach(handle, "Running")
    before = await uids(space)
    await space.site.annotate("Pod", "pe-0", space.namespace, kwok_fail="0s")
    status = await again(space, handle, "pe-0", before["pe-0"])
    assert status.attempt == 1
    assert await launches(space) == {"pe-0": "1", "pe-1": "0"}

    await space.site.annotate("Pod", "pe-1", space.namespace, kwok_complete="0s")
    await until(lambda: _has_phase(space, "pe-1", "Succeeded"), 30, "one of them has completed")
    await asyncio.sleep(5)
    assert (await uids(space))["pe-1"] == before["pe-1"], "what has completed is not made again"
    assert (await space.site.status(handle)).phase == "Running"
    await space.site.annotate("Pod", "pe-0", space.namespace, kwok_complete="0s")
    status = await space.reach(handle, "Succeeded")
    assert (status.executions, status.restarts) == (1, 0)
    made = [name for _, resource, name in creations(space) if resource == "pods"]
    assert sorted(made) == ["pe-0", "pe-0", "pe-1"]


async def _has_phase(space: Space, name: str, phase: str) -> bool:
    pod = await space.site.kube.get("v1", "Pod", name, space.namespace)
    return pod["status"].get("phase") == phase


@ROW("S9", level="e2e")
async def test_S9_a_pod_that_fails_again_waits_and_explain_says_how_long(space: Space):
    handle = await space.submit(streams(config_map(), *pes(2)))
    await space.reach(handle, "Running")
    first = await uids(space)
    await space.site.annotate("Pod", "pe-0", space.namespace, kwok_fail="0s")
    await again(space, handle, "pe-0", first["pe-0"])
    before = await uids(space)
    since = datetime.now(UTC)
    await space.site.annotate("Pod", "pe-0", space.namespace, kwok_fail="0s")

    async def waits() -> bool:
        explanation = await space.explain(handle)
        return [one.what for one in explanation.next] == ["back-off before 1-pod-pe-0 is made again"]

    await until(waits, 30, "it says that it waits")
    at = (await space.explain(handle)).next[0].at
    status = await space.site.status(handle)
    assert status.next is not None
    assert status.next.at == at
    await again(space, handle, "pe-0", before["pe-0"])
    made = max(time for time, _, name in creations(space, since) if name == "pe-0")
    assert made >= at, "not before its time"
    assert (await uids(space))["pe-1"] == before["pe-1"]


# --- how often


@ROW("S10", level="e2e")
async def test_S10_a_pods_own_launch_limit_fails_the_workload_and_others_do_not_count(space: Space):
    handle = await space.submit(streams(config_map(), *pes(3), launchLimit="1"))
    await space.reach(handle, "Running")
    for name in ("pe-0", "pe-1", "pe-2"):
        before = await uids(space)
        await space.delete("v1", "Pod", name)
        status = await again(space, handle, name, before[name])
        assert [(one.name, one.used, one.limit) for one in status.budgets] == [("launch", 1, 1)]
    assert set((await launches(space)).values()) == {"1"}
    await space.delete("v1", "Pod", "pe-1")
    status = await space.ended(handle)
    assert (status.phase, status.reason, status.attempt) == ("Failed", "LaunchLimitExceeded", 1)
    assert "pe-1" in status.message
    made = [name for _, resource, name in creations(space) if resource == "pods"]
    assert sorted(made) == sorted(["pe-0", "pe-1", "pe-2"] * 2)
    assert await told(space, "LaunchLimitExceeded")
