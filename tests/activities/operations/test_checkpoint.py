"""Pods asked to save their state by annotation, and their answers, on a real API server (row L32)."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import names
from holdfast.activities.kube import priority
from holdfast.activities.kube.client import Kube
from holdfast.model import Checkpoint, CheckpointProtocol
from holdfast.model.calls.cluster import Checkpointed, CheckpointInput, Removed
from tests.activities.bench import Bench, eventually, job, pod
from tests.activities.line import Line

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]
ROW = pytest.mark.row
SLOW = {"holdfast.dev/kwok-delete-delay": "10s"}
"""Of a pod on a fake node: how long it takes to end."""
REQUEST = names.ANNOTATION_CHECKPOINT_REQUEST


def given(bench: Bench, seconds: float = 20.0, number: int = 1, **changes: Any) -> CheckpointInput:
    running = sum(one.expected_pods for one in bench.components)
    values: dict[str, Any] = {
        "target": bench.target,
        "attempt": bench.attempt,
        "checkpoint": Checkpoint(protocol=CheckpointProtocol.ANNOTATION),
        "components": tuple(one.name for one in bench.components),
        "number": number,
        "reason": "Preempted",
        "running": running,
        "until": datetime.now(UTC) + timedelta(seconds=seconds),
        "report": bench.report(),
    }
    return CheckpointInput(**(values | changes))


async def ask(bench: Bench, **changes: Any) -> Checkpointed:
    return await bench.run(bench.activities.checkpoint, given(bench, **changes))


async def requested(bench: Bench, number: int = 1, count: int | None = None) -> list[dict[str, Any]]:
    """Wait until all pods have been asked, and return them."""
    wanted = sum(one.expected_pods for one in bench.components) if count is None else count

    async def check() -> list[dict[str, Any]]:
        found = [one for one in await bench.pods() if noted(one).get(REQUEST) == str(number)]
        return found if len(found) >= wanted else []

    return await eventually(check)


def noted(pod: dict[str, Any]) -> dict[str, str]:
    return pod["metadata"].get("annotations") or {}


async def answer(
    bench: Bench, pod: dict[str, Any], state: str, uri: str | None = None, message: str = "", number: str | None = ""
) -> None:
    """Answer in a pod's place: the request that it was asked for, another one, or (None) without saying which."""
    told: dict[str, Any] = {
        names.ANNOTATION_CHECKPOINT_STATE: state,
        names.ANNOTATION_CHECKPOINT_URI: uri,
        "holdfast.dev/checkpoint-answers": noted(pod)[REQUEST] if number == "" else number,
    }
    if message:
        told[names.ANNOTATION_CHECKPOINT_MESSAGE] = message
    metadata = pod["metadata"]
    await bench.admin.patch(
        "v1", "Pod", metadata["name"], bench.namespace, uid=metadata["uid"], patch={"metadata": {"annotations": told}}
    )


@ROW("L32", level="e2e")
async def test_L32_each_pod_is_asked_and_all_that_have_saved_in_one_place_are_counted(bench: Bench):
    await bench.launch()
    asking = asyncio.create_task(ask(bench))
    pods = await requested(bench)
    for one in pods:
        assert noted(one)[names.ANNOTATION_CHECKPOINT_REASON] == "Preempted"
        assert noted(one)[names.ANNOTATION_CHECKPOINT_DEADLINE].endswith("Z")
        await answer(bench, one, "Complete", "s3://saved/7")
    told = (await asking).answers
    assert (told.running, told.done, told.silent, told.uri) == (len(pods), len(pods), 0, "s3://saved/7")


@ROW("L32", level="e2e")
async def test_L32_at_its_end_those_that_have_not_answered_are_named(bench: Bench):
    await bench.launch()
    asking = asyncio.create_task(ask(bench, seconds=10.0))
    first, second = await requested(bench)
    await answer(bench, first, "Complete", "s3://saved/7")
    await answer(bench, second, "InProgress", message="1 of 9 shards")
    told = (await asking).answers
    assert (told.done, told.working, told.silent) == (1, 1, 0)
    assert told.left == (f"{second['metadata']['name']} is at it (1 of 9 shards)",)


@ROW("L32", level="e2e")
async def test_L32_one_that_cannot_save_ends_the_waiting(bench: Bench):
    await bench.launch()
    asking = asyncio.create_task(ask(bench))
    first, _ = await requested(bench)
    await answer(bench, first, "Failed", message="disk full")
    told = (await asyncio.wait_for(asking, 60)).answers
    assert (told.failed, told.left[0]) == (1, f"{first['metadata']['name']} cannot save (disk full)")


@ROW("L32", level="e2e")
async def test_L32_one_that_is_lost_ends_the_waiting(bench: Bench):
    bench.components = (pod("first"), pod("second"))
    await bench.launch()
    asking = asyncio.create_task(ask(bench))
    first, _ = await requested(bench)
    await bench.admin.delete("v1", "Pod", first["metadata"]["name"], bench.namespace, uid=first["metadata"]["uid"])
    told = (await asyncio.wait_for(asking, 60)).answers
    assert told.running == 1


async def test_an_answer_to_an_earlier_request_is_taken_away_with_the_next(bench: Bench):
    await bench.launch()
    asking = asyncio.create_task(ask(bench))
    for one in await requested(bench):
        await answer(bench, one, "Complete", "s3://saved/1")
    assert (await asking).answers.done == 2
    again = asyncio.create_task(ask(bench, number=2))
    for one in await requested(bench, 2):
        assert names.ANNOTATION_CHECKPOINT_STATE not in noted(one)
        assert names.ANNOTATION_CHECKPOINT_URI not in noted(one)
        await answer(bench, one, "Complete", "s3://saved/2")
    assert (await again).answers.uri == "s3://saved/2"


@ROW("D45", level="e2e")
async def test_D45_a_late_answer_to_the_request_before_does_not_count_for_this_one(bench: Bench):
    await bench.launch()
    await ask(bench, seconds=1.0)
    again = asyncio.create_task(ask(bench, number=2))
    first, second = await requested(bench, 2)
    await answer(bench, first, "Complete", "s3://saved/1", number=None)
    await answer(bench, second, "Complete", "s3://saved/1", number="1")
    # Both are still waited for. One says now that it is at it, and a worker sees that; the other names the request.
    await answer(bench, first, "InProgress", number=None)
    await marked(bench, first, names.ANNOTATION_CHECKPOINT_BEGUN)
    assert not again.done()
    await answer(bench, first, "Complete", "s3://saved/2", number=None)
    await answer(bench, second, "Complete", "s3://saved/2")
    told = (await again).answers
    assert (told.done, told.uri, told.disagree) == (2, "s3://saved/2", False)


async def marked(bench: Bench, pod: dict[str, Any], annotation: str) -> None:
    async def check() -> bool:
        found = {one["metadata"]["uid"]: noted(one) for one in await bench.pods()}
        return annotation in found[pod["metadata"]["uid"]]

    await eventually(check)


async def test_a_second_try_finds_what_was_asked_and_answered(bench: Bench):
    await bench.launch()
    asking = asyncio.create_task(ask(bench))
    first, second = await requested(bench)
    await answer(bench, first, "Complete", "s3://saved/7")
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    again = asyncio.create_task(ask(bench))
    await answer(bench, second, "Complete", "s3://saved/7")
    assert (await again).answers.done == 2


async def test_only_the_attempts_own_pods_of_the_components_that_save_are_asked(bench: Bench):
    bench.components = (job("driver", 1), job("worker", 1))
    await bench.launch()
    asking = asyncio.create_task(ask(bench, components=("driver",), running=1))
    (one,) = await requested(bench, count=1)
    assert one["metadata"]["labels"][names.LABEL_COMPONENT] == "driver"
    await answer(bench, one, "Complete", "s3://saved/7")
    assert (await asking).answers.done == 1
    other = next(each for each in await bench.pods() if each["metadata"]["labels"][names.LABEL_COMPONENT] == "worker")
    assert REQUEST not in noted(other)


async def test_past_its_end_it_does_not_come_back_before_it_has_seen_the_pods_again(
    admin: Kube, kube: Kube, far_kube: Kube, line: Line, namespace: str
):
    near = await Bench.make(kube, admin, namespace)
    await near.launch()
    far = await Bench.make(far_kube, admin, namespace)
    far.attempt, far.owner_uid, far.components = near.attempt, near.owner_uid, near.components
    asking = asyncio.create_task(ask(far, seconds=8.0))
    pods = await requested(near)
    line.cut()
    await asyncio.sleep(8.5)
    assert not asking.done()
    for one in pods:
        await answer(near, one, "Complete", "s3://saved/7")
    line.mend()
    came = await asyncio.wait_for(asking, 60)
    assert came.answers.done == 2, "they had saved while nobody could see it"
    assert came.blind


async def ended_while_saving(bench: Bench) -> tuple[list[dict[str, Any]], asyncio.Task[Removed]]:
    """Return the pods that were asked to save as their removal began, and that: they are in their termination grace."""
    asking = asyncio.create_task(ask(bench))
    pods = await requested(bench)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    removing = asyncio.create_task(bench.remove(30.0, follows=given(bench), grace=20.0))

    async def going() -> bool:
        return all("deletionTimestamp" in one["metadata"] for one in await bench.pods())

    await eventually(going)
    return pods, removing


@ROW("L19", level="e2e")
async def test_L19_what_pods_save_in_their_termination_grace_is_told_by_their_removal(bench: Bench):
    await saved_in_its_grace(bench)


@ROW("L19", level="e2e")
async def test_L19_it_is_told_also_while_other_removals_have_yet_to_ask_for_their_deletions(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(priority, "GIVEN_WAY", 60)
    with bench.activities.precedence.deletions.one():
        await saved_in_its_grace(bench)


async def saved_in_its_grace(bench: Bench) -> None:
    bench.components = (pod("first", annotations=SLOW), pod("second", annotations=SLOW))
    await bench.launch()
    (first, second), removing = await ended_while_saving(bench)
    await answer(bench, first, "Complete", "s3://saved/7")
    await answer(bench, second, "Complete", "s3://saved/7")
    removed = await removing
    assert removed.gone
    assert removed.answers is not None
    assert (removed.answers.done, removed.answers.running, removed.answers.uri) == (2, 2, "s3://saved/7")

    # Its worker dies now, and the next one finds none of the pods: what was seen is in the heartbeats.
    again = bench.removal(30.0, follows=given(bench), grace=20.0)
    after = await bench.run(bench.activities.remove, again, earlier=bench.heartbeats[-1:], tries=2)
    assert after.answers is not None
    assert (after.answers.done, after.answers.running, after.answers.uri) == (2, 2, "s3://saved/7")
    unheard = await bench.run(bench.activities.remove, again, tries=2)
    assert unheard.answers is not None
    assert (unheard.answers.done, unheard.answers.running) == (0, 0)


@ROW("L20", level="e2e")
async def test_L20_one_that_ends_before_it_has_saved_has_not(bench: Bench):
    bench.components = (pod("first", annotations=SLOW), pod("second"))
    await bench.launch()
    (first, _), removing = await ended_while_saving(bench)
    await answer(bench, first, "Complete", "s3://saved/7")
    removed = await removing
    assert removed.gone
    assert removed.answers is not None
    assert (removed.answers.done, removed.answers.running) == (1, 2)
