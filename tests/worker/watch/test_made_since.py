"""What is made or resumed under an attempt that runs is told to run, also where that took no time to speak of.

Whoever made it has looked once, a moment after: what it saw then stands until something is told.
"""

from __future__ import annotations

import pytest

from holdfast.worker.watch.facts import Facts
from tests.fakes.watched import World

MOMENTS = [0.05, 0.3, 0.9, 1.5]
"""Shorter and longer than what a loss of readiness takes to be told."""


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.row("J13", level="pure")
@pytest.mark.parametrize("moment", MOMENTS)
def test_J13_a_component_that_comes_later_and_runs_at_once_is_told(world: World, moment: float) -> None:
    world.anchor()
    world.attempt(pods=1, components=2, begins_with=1)
    world.job()
    world.pod("p0")
    assert [send.facts.ready for send in world.pass_time(60)] == [True]
    world.job(index=1)
    world.pass_time(moment)
    world.pod("p1", index=1)
    told = world.pass_time(60)
    assert told[-1].facts.ready
    assert told[-1].observation.pods.running == 2
    assert len(told) == 1
    assert world.pass_time(600) == []


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_component_that_is_made_again_and_runs_at_once_is_told(world: World, moment: float) -> None:
    world.running(pods=1)
    world.pass_time(60)
    world.pod("p0", gone=True)
    world.job(gone=True)
    world.job(uid="again", launch=1)
    world.pass_time(moment)
    world.pod("p1")
    told = world.pass_time(60)
    assert told[-1].facts.ready
    assert told[-1].observation.components["c0"].uid == "again"
    assert world.pass_time(600) == []


@pytest.mark.row("J14", level="pure")
@pytest.mark.parametrize("moment", MOMENTS)
def test_J14_what_is_suspended_and_resumed_at_once_is_told_to_run_again(world: World, moment: float) -> None:
    world.running(pods=1)
    world.pass_time(60)
    world.attempt(pods=1, turn=1)
    assert world.pass_time(60) == [], "that it is to be suspended is no news to who suspends it"
    world.pod("p0", gone=True)
    world.attempt(pods=1, turn=2)
    world.pass_time(moment)
    world.pod("p1")
    told = world.pass_time(60)
    assert told[-1].facts.ready
    assert told[-1].observation.pods.running == 1
    assert world.pass_time(600) == []


def test_it_is_told_once_whoever_watches(world: World) -> None:
    world.anchor()
    world.attempt(pods=1, components=2, begins_with=1, turn=2)
    world.job()
    world.job(index=1, launch=3)
    world.pod("p0")
    world.pod("p1", index=1)
    assert len(world.pass_time(60)) == 1
    assert world.restarted().pass_time(600) == []


def test_what_was_acknowledged_before_this_was_news_stays_so() -> None:
    assert Facts(resumed=0, made=()).digest() == Facts().digest()
    assert Facts(up=("a ready",)).digest().hex() == "139f747dffaa"
    assert Facts(awake=True).digest() != Facts(resumed=2).digest() != Facts(made=("a/uid",)).digest()
