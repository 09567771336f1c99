"""Preparations and creations that the workflow breaks off: what they hand over, who goes on from there (S4, S10)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

import pytest
from temporalio.activity import ActivityCancellationDetails

from holdfast.model.calls.cluster import Created
from tests.activities.bench import Bench, config, eventually, job
from tests.activities.operations.test_submission import let_jobs, said, submitted

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(60)]
ROW = pytest.mark.row
T = TypeVar("T")


async def broken_off(
    bench: Bench, task: asyncio.Task[T], *words: str, cause: ActivityCancellationDetails | None = None
) -> T:
    """Break an activity off once it has borne a refusal for a second; return what it comes back with."""

    async def borne() -> bool:
        return await said(bench, *words) and bench.heartbeats[-1]["borne"] >= 1

    await eventually(borne)
    assert bench.environment is not None
    bench.environment.cancel(cause or ActivityCancellationDetails(cancel_requested=True))
    return await task


def begun(work: Awaitable[T]) -> asyncio.Task[T]:
    return asyncio.ensure_future(work)  # type: ignore[return-value]


async def creating(bench: Bench) -> None:
    """Have a ConfigMap, and a Job that may not be created."""
    bench.components = (config(), job())
    await bench.prepare()
    await let_jobs(bench, False)


async def test_S10_a_preparation_that_is_broken_off_says_what_it_has_borne(bench: Bench):
    await let_jobs(bench, False)
    task = begun(bench.prepare(waits=True, hands_over=True))
    prepared = await broken_off(bench, task, "may not create jobs")
    assert prepared.broken_off
    assert prepared.borne >= 1
    assert (await bench.anchor(), await bench.owner()) == (None, None)
    await let_jobs(bench, True)
    again = await bench.prepare(waits=True, hands_over=True)
    assert (again.broken_off, again.owner_uid != "") == (False, True)


async def test_S10_a_preparation_says_at_its_good_end_what_it_has_borne(bench: Bench):
    await let_jobs(bench, False)
    task = begun(bench.prepare(waits=True))
    await eventually(lambda: said(bench, "may not create jobs"))
    await let_jobs(bench, True)
    assert (await task).borne > 0


async def test_an_earlier_release_is_told_of_the_cancellation_as_ever(bench: Bench):
    await let_jobs(bench, False)
    with pytest.raises(asyncio.CancelledError):
        await broken_off(bench, begun(bench.prepare(waits=True)), "may not create jobs")
    await let_jobs(bench, True)
    await creating(bench)
    with pytest.raises(asyncio.CancelledError):
        await broken_off(bench, begun(bench.create(waits=True, patience=None)), "creating Job")


async def test_S4_a_worker_that_goes_hands_nothing_over(bench: Bench):
    await creating(bench)
    task = begun(bench.create(waits=True, patience=None, hands_over=True, replaces_interrupted=True))
    gone = ActivityCancellationDetails(worker_shutdown=True)
    with pytest.raises(asyncio.CancelledError):
        await broken_off(bench, task, "creating Job", cause=gone)


async def test_S4_a_creation_that_is_broken_off_is_gone_on_with_and_no_interruption(bench: Bench):
    await creating(bench)
    given = {"waits": True, "patience": None, "hands_over": True, "replaces_interrupted": True}
    first: Created = await broken_off(bench, begun(bench.create(**given)), "waiting for 1 of 1 Job", "creating Job")
    assert (first.broken_off, first.failure, first.interrupted) == (True, None, "")
    assert first.borne >= 1
    assert [one.kind for one in first.objects] == ["ConfigMap"]
    assert not await submitted(bench)

    blind = await bench.create(**given)
    assert "half-made" in blind.interrupted, "what nobody handed over is an interruption"

    await let_jobs(bench, True)
    second = await bench.create(**given, made=first.objects)
    assert (second.failure, second.interrupted, second.broken_off) == (None, "", False)
    assert second.objects[0] == first.objects[0], "it is kept as it is"
    assert await submitted(bench)
