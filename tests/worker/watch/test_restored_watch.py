"""What a watch makes of a cluster that was put back to an earlier version: nothing that it told counts any more."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from holdfast.worker.watch.watch import Memory
from tests.fakes.watched import World


@pytest.fixture
def world() -> World:
    return World()


def test_what_was_told_is_news_again_once_it_is_forgotten(world: World) -> None:
    world.running()
    told = world.pass_time(30)
    assert told
    assert world.pass_time(30) == []
    world.attention.forget(world.now)
    again = world.pass_time(30)
    assert [send.facts for send in again] == [told[-1].facts]
    assert world.pass_time(30) == []


def test_what_another_process_had_told_is_forgotten_too(world: World) -> None:
    world.running()
    world.pass_time(30)
    assert world.restarted().pass_time(30) == [], "what was told is remembered"
    next_ = world.restarted()
    next_.attention.forget(next_.now)
    assert len(next_.pass_time(30)) == 1


def test_the_version_that_was_seen_outlives_the_process() -> None:
    memory = Memory(digests="", at=datetime.now(UTC), version=4711)
    assert Memory.read([memory.wire()]).version == 4711


def test_a_heartbeat_of_an_older_release_has_no_version() -> None:
    wire = Memory(digests="abcd", at=datetime.now(UTC)).wire()
    del wire["version"]
    read = Memory.read([wire])
    assert (read.digests, read.version) == ("abcd", 0)


@pytest.mark.parametrize("looked", [True, False])
def test_what_temporal_contradicts_is_told_again_and_nothing_else_is(world: World, *, looked: bool) -> None:
    for name in ("v", "w"):
        world.running(name)
    world.pass_time(30)
    next_ = world.restarted()
    if looked:
        assert next_.pass_time(30) == []
    next_.attention.retell(next_.key("w"), next_.now)
    assert [send.workload for send in next_.pass_time(30)] == [next_.key("w")]
    assert next_.pass_time(30) == []
