"""What the watch tells of nodes that are marked as bad (row A17); all on virtual time."""

from __future__ import annotations

import pytest

from holdfast.activities.facts.nodes import Marks
from holdfast.model import FailureClass
from holdfast.worker.watch.seen import node_seen
from tests.fakes.watched import World

ROW = pytest.mark.row


def ready() -> World:
    world = World()
    world.node()
    world.running()
    world.pass_time(5)
    assert len(world.sent) == 1
    return world


@ROW("A17", level="pure")
def test_A17_a_mark_is_told_at_once_and_one_taken_back_soon() -> None:
    world = ready()
    begun = world.now
    world.node(label="EVICT")
    world.pass_time(5)
    at, send = world.sent[-1]
    assert at - begun < 0.2
    (one,) = send.observation.failures
    assert (one.cls, one.node, one.reason) == (FailureClass.HARDWARE, "node-1", "NodeMarkedForEviction")
    world.node(label="PASS")
    world.pass_time(5)
    assert len(world.sent) == 3
    assert world.sent[-1][1].observation.failures == ()
    assert world.sent[-1][1].observation.newer_than(send.observation)


@ROW("A17", level="pure")
def test_A17_heartbeats_of_nodes_and_marks_on_other_nodes_are_no_news() -> None:
    world = ready()
    for _ in range(50):
        world.node()
        world.node("node-2", "EVICT")
        world.pass_time(1)
    assert len(world.sent) == 1


def test_a_mark_stays_the_same_news_however_often_it_is_seen() -> None:
    world = ready()
    for _ in range(20):
        world.node(label="EVICT")
        world.pod("p0")
        world.pass_time(10)
    assert len(world.sent) == 2


def test_a_node_that_is_gone_or_cannot_be_read_any_more_bears_no_mark() -> None:
    world = ready()
    world.node(label="EVICT")
    world.pass_time(5)
    world.node(gone=True)
    world.pass_time(5)
    assert world.sent[-1][1].observation.failures == ()


@ROW("A17", level="pure")
def test_A17_a_marked_node_stays_marked_when_a_list_tells_next_that_its_predecessor_is_gone() -> None:
    world = ready()
    world.node(label="EVICT", uid="uid-2")
    world.node(label="EVICT", uid="uid-1", gone=True)
    world.pass_time(5)
    assert [one.node for one in world.sent[-1][1].observation.failures] == ["node-1"]


def test_a_pod_that_comes_to_a_marked_node_is_told() -> None:
    world = World()
    world.node(label="EVICT")
    world.running()
    world.pass_time(5)
    assert [one.node for one in world.sent[-1][1].observation.failures] == ["node-1"]


def test_of_a_good_node_next_to_nothing_is_kept() -> None:
    decode = node_seen(Marks())
    raw = {"metadata": {"name": "n", "resourceVersion": "7"}, "status": {"images": [{"names": ["x" * 200]}] * 50}}
    seen = decode(raw)
    assert (seen.name, seen.mark, seen.revision) == ("n", None, 7)
    assert seen == decode({"metadata": {"name": "n", "resourceVersion": "8"}}), "a heartbeat is no change"
