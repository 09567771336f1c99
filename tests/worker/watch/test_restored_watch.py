"""What a watch makes of a cluster that was put back to an earlier version: nothing that it told counts any more."""

from __future__ import annotations

from datetime import UTC, datetime
from unittest.mock import AsyncMock, MagicMock, Mock

import pytest
from temporalio.common import SearchAttributeKey

from holdfast import names
from holdfast.activities.facts.workload_key import WorkloadKey
from holdfast.worker.watch import missing
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


@pytest.mark.parametrize(("attempt", "again"), [(1, False), (2, True)])
async def test_an_attempt_of_before_is_told_although_it_is_as_it_was_when_it_was_last_told(
    world: World, attempt: int, again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(missing, "PATIENCE", 0)
    world.running()
    client = Mock()
    client.list_workflows.return_value = MagicMock()
    client.list_workflows.return_value.__aiter__.return_value = [
        Mock(
            id="workload/c/ns/w",
            run_id="r",
            memo=AsyncMock(return_value={names.MEMO_UID: "w"}),
            typed_search_attributes={
                SearchAttributeKey.for_int(names.SA_ATTEMPT): attempt,
                SearchAttributeKey.for_keyword(names.SA_PHASE): "Running",
            },
        )
    ]
    retell = Mock()
    told = await missing.Missing(client, "c", (0, names.SHARDS - 1), world.cache, retell).tell(lambda: 1)
    assert told == 0
    assert [one.args for one in retell.call_args_list] == ([(WorkloadKey("ns", "w"),)] if again else [])
