"""The submission profile on a real cluster: a submission is whole or made anew (Streams, S1, S3 to S5, S11, S12)."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest

from holdfast import names
from tests.e2e.ground.site import until
from tests.e2e.ground.space import FOREIGN_FINALIZER, Handle, Space
from tests.e2e.lives.streams import (
    NAME,
    cancelled,
    conditions,
    config_map,
    creations,
    everything,
    half_made,
    let_config_maps,
    let_pods,
    pes,
    says,
    shows,
    streams,
    submission_of,
    told,
    uids,
)

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300), pytest.mark.asyncio(loop_scope="session")]
ROW = pytest.mark.row


async def crash(space: Space) -> None:
    """Kill the worker with -9, and start another."""
    space.site.workers[-1].kill()
    await space.site.start_worker()


# --- S1, S4, S12: interrupted


@ROW("S1", level="e2e")
@pytest.mark.parametrize("made", [0, 1, 4])
async def test_S1_a_submission_whose_worker_dies_is_finished_by_the_next(alone: Space, made: int):
    handle = await half_made(alone, 5, made)
    await crash(alone)
    await let_pods(alone, 10)
    status = await alone.reach(handle, "Running")
    assert conditions(status)["Submitted"]
    assert sorted(await uids(alone)) == [f"pe-{index}" for index in range(5)]
    await alone.site.kube.get("v1", "ConfigMap", "adl", alone.namespace)


@ROW("S1", level="e2e")
async def test_S1_a_worker_that_dies_before_anything_is_made_has_interrupted_nothing(alone: Space):
    await let_config_maps(alone, False)
    handle = await alone.submit(streams(config_map(), *pes(2)))
    await says(handle, "may not create configmaps")
    await crash(alone)
    await let_config_maps(alone, True)
    status = await alone.reach(handle, "Running")
    assert (status.attempt, status.executions) == (1, 1)
    assert sorted(await uids(alone)) == ["pe-0", "pe-1"]


@ROW("S4", level="e2e")
async def test_S4_an_interrupted_submission_is_replaced_whole_as_often_as_it_takes(alone: Space):
    handle = await half_made(alone, 5, 3)
    old = set((await uids(alone)).values())

    await crash(alone)
    assert (await alone.reach(handle, "Resuming", 2)).restarts == 0
    await until(lambda: _made(alone, old, 3), 60, "attempt 2 is half-made too")
    second = set((await uids(alone)).values())
    assert not old & second

    await crash(alone)
    await let_pods(alone, 10)
    status = await alone.reach(handle, "Running", 3)
    assert (status.attempt, status.executions, status.restarts) == (3, 3, 0)
    assert [(one.name, one.used, one.limit) for one in status.budgets] == [("launch", 0, None)]
    pods = await alone.pods()
    new = {pod["metadata"]["uid"] for pod in pods}
    assert len(new) == 5
    assert not new & (old | second)
    assert {pod["metadata"]["labels"][names.LABEL_LAUNCH] for pod in pods} == {"0"}
    assert {pod["metadata"]["labels"][names.LABEL_ATTEMPT] for pod in pods} == {"3"}
    await alone.truth.settle()
    alone.truth.assert_one_attempt_at_a_time(NAME)
    alone.truth.assert_told_truly(NAME)
    assert (await cancelled(handle)).phase == "Cancelled"


@ROW("S12", level="e2e")
async def test_S12_each_submission_is_told_by_an_id_of_its_own(alone: Space):
    handle = await half_made(alone, 3, 1)
    first = await submission_of(alone, 1)
    await crash(alone)
    await let_pods(alone, 10)
    await alone.reach(handle, "Running", 2)
    second = await submission_of(alone, 2)
    assert first != second
    events = await told(alone, "SubmissionFailed", "SubmissionSucceeded")
    assert [reason for reason, _ in events] == ["SubmissionFailed", "SubmissionSucceeded"]
    assert f"submission {first}" in events[0][1]
    assert f"submission {second}" in events[1][1]
    assert (await cancelled(handle)).phase == "Cancelled"


async def _made(space: Space, before: set[str], count: int) -> bool:
    """Whether so many pods have been made beside those that were there before."""
    return len(set((await uids(space)).values()) - before) == count


# --- S3: whole


@ROW("S3", level="e2e")
async def test_S3_the_next_worker_changes_nothing_of_a_submitted_workload(alone: Space):
    handle = await alone.submit(streams(config_map(), *pes(3)))
    await alone.reach(handle, "Running")
    await shows(alone, "Running")
    before = await everything(alone)
    assert {("Pod", "pe-2"), ("ConfigMap", "adl"), (names.ATTEMPT_KIND, "pe-0-a1")} <= before.keys()
    await crash(alone)
    # A second workload that comes to run shows that the next worker's eyes and hands are there.
    other = await alone.submit(streams(*({**one, "metadata": {"name": "other"}} for one in pes(1, reads="")[:1])))
    await alone.reach(other, "Running")
    assert (await alone.site.status(handle)).phase == "Running"
    after = await everything(alone)
    assert {key: after.get(key) for key in before} == before


# --- S5, S11: between the two attempts


async def _held_between(space: Space) -> tuple[Handle, set[str]]:
    """Return a workload whose interrupted attempt is being removed, and cannot be: one of its pods is held."""
    handle = await half_made(space, 5, 3)
    old = set((await uids(space)).values())
    space.site.workers[-1].kill()
    await space.finalize("v1", "Pod", "pe-1", FOREIGN_FINALIZER)
    await let_pods(space, 10)
    await space.site.start_worker()

    async def removing() -> bool:
        found = await space.site.kube.get("v1", "Pod", "pe-1", space.namespace)
        return "deletionTimestamp" in found["metadata"] and list(await uids(space)) == ["pe-1"]

    await until(removing, 60, "the interrupted attempt is being removed")
    return handle, old


@ROW("S5", level="e2e")
async def test_S5_nothing_is_made_before_the_last_of_the_interrupted_attempt_is_gone(alone: Space):
    handle, old = await _held_between(alone)
    begun = datetime.now(UTC)
    await says(handle, "pe-1", FOREIGN_FINALIZER)
    await asyncio.sleep(20)
    assert (await alone.site.status(handle)).phase == "Resetting"
    freed = datetime.now(UTC)
    await alone.finalize("v1", "Pod", "pe-1")
    status = await alone.reach(handle, "Running", 2)
    assert status.restarts == 0
    assert not old & set((await uids(alone)).values())
    await alone.truth.settle()
    alone.truth.assert_one_attempt_at_a_time(NAME)
    within = [one for one in creations(alone, begun) if one[0] <= freed]
    assert not within, "nothing is made while one pod of the attempt before is there"
    deletions = [one for one in alone.truth.requests() if (one.verb, one.resource) == ("delete", names.ATTEMPT_PLURAL)]
    assert [(one.name, one.body["propagationPolicy"]) for one in deletions] == [("pe-0-a1", "Foreground")]
    for life in [*alone.truth.of(1), *alone.truth.of(2)]:
        references = life.object["metadata"]["ownerReferences"]
        assert [one["blockOwnerDeletion"] for one in references] == [True], f"{life.kind} {life.name}"
    _assert_in_order(alone)
    assert (await cancelled(handle)).phase == "Cancelled"


def _assert_in_order(space: Space) -> None:
    """By the audit log: an attempt's owner and pods are made after the deletion of the one before was asked for."""
    marks = [
        (one.verb, one.resource, one.name)
        for one in space.truth.requests()
        if one.resource == names.ATTEMPT_PLURAL and one.verb in {"create", "delete"}
    ]
    for (_, _, name), (verb, _, following) in pairwise(marks):
        assert (verb == "delete") is (name == following), marks


@ROW("S11", level="e2e")
async def test_S11_what_is_cancelled_between_two_attempts_is_not_made_again(alone: Space):
    handle, _ = await _held_between(alone)
    asked = datetime.now(UTC)
    await handle.signal(names.SIGNAL_CANCEL, "no longer wanted")
    await alone.reach(handle, "Terminating")
    await alone.finalize("v1", "Pod", "pe-1")
    status = await alone.ended(handle)
    assert (status.phase, status.executions) == ("Cancelled", 1)
    await _assert_nothing_more(alone, asked)


@ROW("S11", level="e2e")
async def test_S11_what_is_cancelled_during_its_submission_is_not_submitted(space: Space):
    handle = await half_made(space, 4, 2)
    asked = datetime.now(UTC)
    await handle.signal(names.SIGNAL_CANCEL, "no longer wanted")
    status = await space.ended(handle)
    assert (status.phase, status.executions) == ("Cancelled", 1)
    await _assert_nothing_more(space, asked)
    assert not await told(space, "SubmissionSucceeded")


async def _assert_nothing_more(space: Space, since: datetime) -> None:
    await space.truth.settle()
    assert not creations(space, since)
    left: list[Any] = [(life.kind, life.name) for life in space.truth.lives.values() if life.attempt and not life.died]
    assert not left
