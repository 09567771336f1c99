"""Copies of a component in the watch: each is followed, one that is not seen is asked for, digests stay small."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from holdfast import names
from holdfast.activities.facts.objects import object_facts
from holdfast.worker.watch.attention import RECORD_BYTES
from holdfast.worker.watch.facts import DIGEST_BYTES, Facts
from holdfast.worker.watch.seen import attempt_seen
from tests.fakes.watched import EPOCH, JOB, World

COPIES = 20


@pytest.fixture
def world() -> World:
    return World()


def attempt(world: World, copies: int = COPIES) -> None:
    plan = {
        "name": "workers",
        "apiVersion": "batch/v1",
        "kind": "Job",
        "objectName": "w",
        "expectedPods": copies,
        "status": {"complete": ["Complete"], "failed": ["Failed"]},
        "copies": copies,
    }
    raw: dict[str, Any] = {
        "metadata": {
            "uid": "w-a1",
            "name": "w-a1",
            "namespace": "ns",
            "resourceVersion": world.next_version(),
            "creationTimestamp": EPOCH.isoformat(),
        },
        "spec": {"workloadUid": "w", "workflowId": "workload/c/ns/w", "attempt": 1, "plan": [plan]},
        "status": {"submitted": True},
    }
    seen = attempt_seen("c")(raw)
    assert seen is not None
    world.touch(world.cache.put_attempt(seen))


def copy(world: World, index: int, condition: str = "", *, gone: bool = False, ready: int | None = None) -> None:
    conditions = [{"type": condition, "status": "True", "reason": "Because"}] if condition else []
    raw = {
        "metadata": {
            "uid": f"job-{index}",
            "name": f"w-{index}",
            "namespace": "ns",
            "resourceVersion": world.next_version(),
            "ownerReferences": [{"uid": "w-a1"}],
            "creationTimestamp": EPOCH.isoformat(),
        },
        "status": {"conditions": conditions},
    }
    if ready is not None:
        raw |= {"spec": {"parallelism": 1, "completions": 1}, "status": {"active": 1, "ready": ready}}
    place, facts = (*JOB, "ns", f"w-{index}"), object_facts(raw)
    change = world.cache.drop_object(place, facts, world.version) if gone else world.cache.put_object(place, facts)
    world.touch(change)


def running(world: World, copies: int = COPIES) -> None:
    world.anchor()
    attempt(world, copies)
    for index in range(copies):
        copy(world, index)
        world.pod(f"p{index}", labels={names.LABEL_COMPONENT: "workers", names.LABEL_COPY: str(index)})
    world.pass_time(60)


def test_all_of_them_are_told_in_one_signal(world: World) -> None:
    running(world)
    assert [send.facts.ready for _, send in world.sent] == [True]
    view = world.sent[0][1].observation.components["workers"]
    assert view.copies is not None
    assert (view.copies.expected, view.copies.ready, view.found) == (COPIES, COPIES, True)


@pytest.mark.row("J17", level="pure")
def test_J17_that_all_are_ready_by_their_own_word_is_news_once(world: World) -> None:
    """A Job says that its pods are ready a moment after they run."""
    world.anchor()
    attempt(world)
    for index in range(COPIES):
        copy(world, index, ready=0)
        world.pod(f"p{index}", labels={names.LABEL_COMPONENT: "workers", names.LABEL_COPY: str(index)})
    world.pass_time(5)
    told = len(world.sent)
    assert [one.observation.components["workers"].started for _, one in world.sent] == [False] * told
    for index in range(COPIES):
        copy(world, index, ready=1)
        world.pass_time(2)
    assert len(world.sent) == told + 1
    assert world.sent[-1][1].observation.components["workers"].started


@pytest.mark.row("F16", level="pure")
def test_F16_that_all_are_active_is_news_a_moment_later_and_readiness_carries_it(world: World) -> None:
    world.anchor()
    attempt(world)
    for index in range(COPIES):
        copy(world, index)
    world.pass_time(60)
    told = len(world.sent)
    for index in range(COPIES):
        copy(world, index, ready=0)
    world.pass_time(4)
    assert len(world.sent) == told
    world.pass_time(2)
    assert len(world.sent) == told + 1
    counts = world.sent[-1][1].observation.components["workers"].copies
    assert counts is not None
    assert (counts.active, counts.ready) == (COPIES, 0)
    for index in range(COPIES):
        copy(world, index, ready=1)
    world.pass_time(60)
    assert len(world.sent) == told + 2


def test_one_that_goes_is_missing_by_its_name(world: World) -> None:
    running(world)
    copy(world, 7, gone=True)
    world.pass_time(1)
    seen = world.sent[-1][1].observation
    assert seen.missing == ("workers",)
    assert [one.subject for one in seen.failures] == ["w-7"]


def test_another_that_goes_is_news(world: World) -> None:
    running(world)
    copy(world, 7, gone=True)
    world.pass_time(5)
    told = len(world.sent)
    copy(world, 8, gone=True)
    world.pass_time(5)
    assert len(world.sent) == told + 1
    assert [one.subject for one in world.sent[-1][1].observation.failures] == ["w-7", "w-8"]


def test_another_that_fails_is_news_though_its_failure_does_not_travel(world: World) -> None:
    running(world, 40)
    for index in range(30):
        copy(world, index, "Failed")
    world.pass_time(5)
    told = len(world.sent)
    copy(world, 39, "Failed")
    world.pass_time(5)
    assert len(world.sent) == told + 1
    assert world.sent[-1][1].observation.failures_total == 31


def test_one_that_was_deleted_after_its_end_is_not_missing(world: World) -> None:
    running(world)
    copy(world, 7, "Complete")
    copy(world, 7, "Complete", gone=True)
    world.pass_time(5)
    assert not any(send.observation.missing for _, send in world.sent)


def test_one_that_is_not_seen_is_asked_for_by_name(world: World) -> None:
    world.anchor()
    attempt(world)
    for index in range(COPIES):
        if index not in {3, 5}:
            copy(world, index)
    world.pass_time(0.5)
    assert not any(send.observation.missing for _, send in world.sent), "its stream may be late"
    world.pass_time(2)
    assert {doubt.place[3] for doubt in world.asked} == {"w-3", "w-5"}
    world.cache.confirm_gone("w-a1", (*JOB, "ns", "w-5"))
    world.touch({world.key()})
    world.pass_time(1)
    assert [one.subject for one in world.sent[-1][1].observation.failures] == ["w-5"]


def test_what_a_heartbeat_remembers_does_not_grow_with_them(world: World) -> None:
    running(world, 200)
    assert len(world.attention.digests()) <= 2 * (RECORD_BYTES + DIGEST_BYTES)


@pytest.mark.row("J17", level="pure")
@pytest.mark.parametrize(("copies", "most"), [(3, 2), (COPIES, 8), (200, 8)])
def test_J17_how_many_have_succeeded_is_told_while_others_run_however_many_there_are(copies: int, most: int) -> None:
    world = World()
    running(world, copies)
    told = len(world.sent)
    for index in range(copies - 1):
        copy(world, index, "Complete")
        world.pass_time(60)
    sent = [send.observation.components["workers"].copies for _, send in world.sent[told:]]
    counts = [one.succeeded for one in sent if one is not None]
    assert len(counts) == most
    assert counts[0] == 1
    assert max(later - sooner for sooner, later in itertools.pairwise([0, *counts])) <= -(-copies // 8)


def test_those_that_succeed_soon_after_each_other_are_one_signal(world: World) -> None:
    running(world)
    told = len(world.sent)
    for index in range(COPIES - 1):
        copy(world, index, "Complete")
        world.pass_time(1)
    world.pass_time(60)
    assert len(world.sent) == told + 1
    assert world.sent[-1][1].facts.done == 8


def test_what_was_acknowledged_before_counts_were_news_stays_so() -> None:
    assert Facts(up=("a ready",)).digest().hex() == "139f747dffaa"
    assert Facts(admitted=True).digest().hex() == "8cd522e0b7e6"
