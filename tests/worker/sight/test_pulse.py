"""When the pulse asks the API server, on virtual time."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast.activities.kube.blindness import Answers, Sight
from holdfast.activities.kube.client import Forbidden, Kube, Unreachable
from holdfast.worker.watch import pulse

START = datetime(2026, 11, 30, tzinfo=UTC)


class World:
    """A clock, and an API server that notes when it is asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = START
        self.asked = list[float]()
        self.error: Exception | None = None
        self.sight = Sight(clock=lambda: self.now)
        self.answers = Answers()
        self.turn: Callable[[], None] = lambda: None
        clock = SimpleNamespace(now=lambda _: self.now)
        monkeypatch.setattr(pulse, "datetime", clock)
        waits = SimpleNamespace(sleep=self.sleep, Event=asyncio.Event, timeout=asyncio.timeout)
        monkeypatch.setattr(pulse, "asyncio", waits)
        self.pulse = pulse.Pulse(cast("Kube", self))

    async def get(self, *_: Any) -> None:
        self.asked.append((self.now - START).total_seconds())
        if isinstance(self.error, Unreachable):
            self.sight.lost(self.now)
        else:
            self.sight.regained(self.now)
        if self.error is not None:
            raise self.error

    async def sleep(self, seconds: float) -> None:
        end = self.now + timedelta(seconds=seconds)
        while self.now < end:
            self.now = min(end, self.now + timedelta(seconds=0.25))
            self.turn()

    async def live(self, seconds: float) -> list[float]:
        """Let this many seconds go by, and return when it was asked meanwhile."""
        before, over = len(self.asked), self.now + timedelta(seconds=seconds)
        step = self.turn

        def turn() -> None:
            step()
            if self.now >= over:
                raise asyncio.CancelledError

        self.turn = turn
        with contextlib.suppress(asyncio.CancelledError):
            await self.pulse.run()
        self.turn = step
        return self.asked[before:]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


async def test_where_nobody_asks_it_asks_every_two_seconds(world: World) -> None:
    asked = await world.live(60)
    assert asked[0] == 0
    assert all(2.0 <= later - earlier <= 2.2 for earlier, later in itertools.pairwise(asked))


async def test_what_others_were_answered_counts(world: World) -> None:
    world.turn = lambda: world.answers.note(world.now)
    assert await world.live(60) == [0], "its first answer must be its own"
    assert world.pulse.felt is not None
    assert world.now - world.pulse.felt <= timedelta(seconds=2.5)
    world.turn = lambda: None
    asked = await world.live(10)
    assert len(asked) >= 4
    assert asked[0] - 60 <= 2.5, "from then on it asks itself"


async def test_one_that_is_not_answered_must_be_answered_itself(world: World) -> None:
    await world.live(3)
    world.turn = lambda: world.answers.note(world.now)
    world.error = Unreachable(0, "Unreachable", "no answer")
    world.sight.lost(world.now)
    asked = await world.live(10)
    assert len(asked) >= 10
    assert not world.pulse.alive
    world.error = None
    assert len(await world.live(10)) == 1
    assert world.pulse.alive


async def test_after_an_answer_to_others_two_seconds_go_by_as_after_its_own(world: World) -> None:
    world.turn = lambda: world.answers.note(world.now) if world.now == START + timedelta(seconds=1) else None
    asked = await world.live(4.5)
    assert asked[0] == 0
    assert 3.0 <= asked[1] <= 3.2


async def test_a_refusal_is_an_answer_to_itself_alone(world: World) -> None:
    world.error = Forbidden(403, "Forbidden", "no")
    assert len(await world.live(10)) >= 4
    assert world.pulse.alive
    assert world.answers.at is None


async def test_a_clock_that_is_set_back_stops_nothing(world: World) -> None:
    await world.live(5)
    world.now -= timedelta(hours=1)
    assert len(await world.live(10)) >= 4


async def test_each_read_without_an_answer_is_told_to_streams_that_are_open(world: World) -> None:
    told = list[datetime]()
    with world.pulse.doubted(told.append):
        await world.live(4)
        assert told == []
        felt = world.pulse.felt
        world.error = Unreachable(0, "Unreachable", "no answer")
        asked = await world.live(10)
        assert told == [felt] * len(asked)
    await world.live(5)
    assert len(told) == len(asked), "the stream is closed"
