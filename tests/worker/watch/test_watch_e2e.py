"""The watch on a real cluster: how soon it tells, how little, and what it does when it cannot see."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio.client import WorkflowHandle

from holdfast import names
from holdfast.worker.watch.watch import WatchActivities
from tests.activities.bench import eventually
from tests.quotas import limited
from tests.worker.ground import Ground, Recorder

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


def ready(observation: Any) -> bool:
    return observation.pods.expected > 0 and observation.pods.ready >= observation.pods.expected


async def until(what: Any, seconds: float = 20) -> None:
    end = asyncio.get_running_loop().time() + seconds
    while not what():
        assert asyncio.get_running_loop().time() < end, "it did not happen"
        await asyncio.sleep(0.02)


async def quiet(ground: Ground, handle: WorkflowHandle[Any, Any], seconds: float) -> int:
    """Return how many more signals come in so many seconds."""
    before = await ground.signals(handle)
    await asyncio.sleep(seconds)
    return await ground.signals(handle) - before


async def _quiet(ground: Ground, handle: WorkflowHandle[Any, Any]) -> bool:
    return len(await ground.pods("short")) == 2 and await quiet(ground, handle, 6) == 0


async def _remembered(watch: WorkflowHandle[Any, Any], since: datetime) -> bool:
    """Whether a heartbeat has come since: what was told until then is in it."""
    pending = (await watch.describe()).raw_description.pending_activities
    return bool(pending) and all(one.last_heartbeat_time.ToDatetime(UTC) > since for one in pending)


async def allow_pods(ground: Ground, count: int) -> None:
    """Have the API server refuse more pods than this in the namespace."""
    await limited(ground.kube, ground.namespace, {"pods": str(count)}, name="pods")


async def test_a_failed_pod_is_told_at_once(ground: Ground) -> None:
    async with ground.watched():
        handle = await ground.workload("one")
        await ground.wait_told(handle, ready)
        failed_at = await ground.fail_one("one")
        await ground.wait_told(handle, lambda seen: seen.failures)
        told = await handle.query(Recorder.told)
        at, seen = next((at, seen) for at, seen in told if seen.failures)
        print(f"MEASURED told {(at - failed_at).total_seconds():.2f} s after it failed")
        assert at - failed_at < timedelta(seconds=20), "it did not wait for the time at which others are told"
        assert (seen.failures[0].exit_code, seen.failures[0].component) == (137, "job")
        assert seen.owner_uid == ground.uids["one/1"]


async def test_two_hundred_pods_cost_a_few_signals(ground: Ground) -> None:
    async with ground.watched():
        handle = await ground.workload("many", pods=200)
        await ground.wait_told(handle, ready, 60)
        for pod in (await ground.pods("many"))[:50]:
            await ground.fail(pod)
        await ground.wait_told(handle, lambda seen: seen.failures_total >= 16, 30)
        await asyncio.sleep(5)
        told = await ground.told(handle)
        assert len(told) <= 12, [(seen.pods, seen.failures_total) for seen in told]
        history = await handle.fetch_history()
        assert len(history.events) <= 60


async def test_our_own_deletion_is_not_told(ground: Ground) -> None:
    async with ground.watched():
        handle = await ground.workload("own")
        await ground.wait_told(handle, ready)
        before = await ground.signals(handle)
        await ground.kube.delete(
            names.API_VERSION,
            names.ATTEMPT_KIND,
            names.attempt_name("own", 1),
            ground.namespace,
            uid=ground.uids["own/1"],
            propagation="Foreground",
        )
        for _ in range(500):
            if not await ground.pods("own"):
                break
            await asyncio.sleep(0.02)
        await asyncio.sleep(2)
        assert await ground.signals(handle) == before


async def test_a_deleted_anchor_and_a_deleted_component_are_told(ground: Ground) -> None:
    async with ground.watched():
        handle = await ground.workload("gone")
        await ground.wait_told(handle, ready)
        job = await ground.kube.get("batch/v1", "Job", "gone-job", ground.namespace)
        await ground.kube.delete("batch/v1", "Job", "gone-job", ground.namespace, uid=job["metadata"]["uid"])
        await ground.wait_told(handle, lambda seen: seen.missing == ("job",))
        await ground.kube.delete(
            names.API_VERSION, names.ANCHOR_KIND, "gone", ground.namespace, uid=ground.uids["gone"]
        )
        await ground.wait_told(handle, lambda seen: seen.anchor_deleting)


async def test_a_restart_with_the_heartbeat_signals_nobody(ground: Ground) -> None:
    watch = ground.client.get_workflow_handle(names.watch_workflow_id(ground.cluster))
    async with ground.watched():
        handles = [await ground.workload(f"w{index}") for index in range(5)]
        for handle in handles:
            await ground.wait_told(handle, ready)
        await allow_pods(ground, 9)  # Its Job cannot replace what fails.
        await ground.fail_one("w0")
        await ground.wait_told(handles[0], lambda seen: seen.failures)
        await asyncio.sleep(3)
        since = datetime.now(UTC)
        await eventually(lambda: _remembered(watch, since), 60)
    before = [await ground.signals(handle) for handle in handles]
    length = (await watch.describe()).raw_description.workflow_execution_info.history_length
    async with ground.watched():
        await asyncio.sleep(4)
        assert [await ground.signals(handle) for handle in handles[1:]] == before[1:]
        # The failed one's Job may have said by now that its pod has failed.
        assert await ground.signals(handles[0]) - before[0] <= 1
        description = (await watch.describe()).raw_description
        assert description.workflow_execution_info.history_length == length
        assert description.pending_activities[0].attempt >= 2
        await ground.fail_one("w1")
        await ground.wait_told(handles[1], lambda seen: seen.failures)


async def test_an_api_server_away_is_blindness_and_nothing_is_missing(ground: Ground) -> None:
    async with ground.watched() as watch:
        sick, well = await ground.workload("sick"), await ground.workload("well")
        for handle in (sick, well):
            await ground.wait_told(handle, ready)
        before = await ground.signals(well)
        await ground.proxy.cut()
        await until(lambda: _blind(watch))
        await ground.fail_one("sick")
        await asyncio.sleep(5)
        assert [await ground.signals(well), (await ground.told(sick))[-1].failures] == [before, ()]
        await ground.proxy.restore()
        seen = await ground.wait_told(sick, lambda seen: seen.failures)
        assert any(span.end - span.begin >= timedelta(seconds=4) for span in seen.blind)
        await asyncio.sleep(3)
        assert not any(one.missing for one in [*await ground.told(sick), *await ground.told(well)])
        assert await ground.signals(well) == before


async def test_after_blindness_the_unhealthy_hear_of_it(ground: Ground) -> None:
    async with ground.watched() as watch:
        handle = await ground.record("short")
        await ground.anchor("short")
        await ground.attempt("short", 1, [ground.plan("short", pods=3)])
        await allow_pods(ground, 2)
        await ground.job("short", pods=3)
        await ground.submitted("short")
        await eventually(lambda: _quiet(ground, handle), 60)
        await ground.proxy.cut()
        await until(lambda: _blind(watch))
        await asyncio.sleep(3)
        await ground.proxy.restore()
        seen = await ground.wait_told(handle, lambda seen: seen.blind)
        assert seen.pods.running == 2
        # Pods and Jobs are seen again by streams of their own: if at different times, it is told of each.
        assert await quiet(ground, handle, 6) <= 1
        assert await quiet(ground, handle, 3) == 0


async def test_a_connection_that_died_without_a_word_is_noticed_within_ten_seconds(ground: Ground) -> None:
    async with ground.watched() as watch:
        handle = await ground.workload("mute")
        await ground.wait_told(handle, ready)
        begun = asyncio.get_running_loop().time()
        ground.proxy.freeze()
        await until(lambda: _blind(watch), 10)
        assert asyncio.get_running_loop().time() - begun <= 10
        await ground.fail_one("mute")
        await ground.proxy.cut()
        await ground.proxy.restore()
        seen = await ground.wait_told(handle, lambda seen: seen.failures)
        assert seen.blind


async def test_a_kind_the_worker_may_not_read_counts_as_found(ground: Ground) -> None:
    async with ground.watched() as watch:
        handle = await ground.record("conf")
        await ground.anchor("conf")
        config = {
            "name": "conf",
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "objectName": "never-made",
            "expectedPods": 0,
        }
        await ground.attempt("conf", 1, [ground.plan("conf"), config])
        await ground.job("conf")
        await ground.submitted("conf")
        seen = await ground.wait_told(handle, ready)
        assert seen.missing == ()
        feeds = next(iter(watch.running.values()))
        assert feeds.unseen() == {("v1", "ConfigMap")}


def _blind(watch: WatchActivities) -> bool:
    return any(feeds.blind for feeds in watch.running.values())
