"""What deserves a signal, how soon, and what each workflow has acknowledged; all on virtual time."""

from __future__ import annotations

import itertools
from datetime import timedelta
from typing import Any

import pytest

from holdfast.activities.facts.pods import PREPARATION
from holdfast.model import FailureClass, Interval, Observation
from holdfast.worker.watch.attention import ACKNOWLEDGED_MAXIMUM, RECORD_BYTES
from holdfast.worker.watch.seen import AttemptSeen
from tests.fakes.watched import EPOCH, JOB, World


@pytest.fixture
def world() -> World:
    return World()


def test_a_fresh_attempt_is_no_news(world: World) -> None:
    world.anchor()
    world.attempt(submitted=False)
    world.attempt(submitted=True)
    world.job()
    world.pod("p0", "Pending")
    assert world.pass_time(60) == []


def test_from_start_to_end_three_signals_whatever_the_number_of_pods(world: World) -> None:
    count = 2000
    world.anchor()
    world.attempt(pods=count)
    world.job()
    for index in range(count):
        world.pod(f"p{index}", "Pending")
        if index % 100 == 0:
            world.pass_time(0.01)
    for index in range(count):
        world.pod(f"p{index}")
        if index % 100 == 0:
            world.pass_time(0.01)
    world.pass_time(30)
    for index in range(count):
        world.pod(f"p{index}", "Succeeded")
        if index % 100 == 0:
            world.pass_time(0.01)
    world.job(condition="Complete")
    world.pass_time(30)
    facts = [send.facts for _, send in world.sent]
    assert len(facts) <= 3
    assert facts[0].ready
    assert facts[-1].finished


def test_ready_is_told_within_100_ms(world: World) -> None:
    world.running()
    begun = world.now
    world.pass_time(5)
    assert [round(at - begun, 3) for at, _ in world.sent] == [0.1]
    assert world.sent[0][1].facts.ready


@pytest.mark.parametrize("what", ["failure", "missing", "complete", "anchor"])
def test_what_is_urgent_is_told_within_100_ms(world: World, what: str) -> None:
    world.running()
    world.pass_time(60)
    begun = world.now
    match what:
        case "failure":
            world.pod("p0", "Failed", code=137)
        case "missing":
            world.job(gone=True)
        case "complete":
            world.job(condition="Complete")
        case _:
            world.anchor(deleting=True)
    sends = world.pass_time(5)
    assert len(sends) == 1
    assert world.sent[-1][0] - begun <= 0.1 + 1e-6


def test_the_last_pod_that_ran_on_after_success_is_told_once_it_ends(world: World) -> None:
    world.running()
    world.job(condition="Complete")
    (told,) = world.pass_time(60)[-1:]
    assert told.facts.lingering
    world.pod("p0", "Succeeded")
    assert world.pass_time(60) == [], "how many are left is no news"
    begun = world.now
    world.pod("p1", "Succeeded")
    (freed,) = world.pass_time(60)
    assert not freed.facts.lingering
    assert not freed.observation.occupies
    assert world.sent[-1][0] - begun <= 0.3 + 1e-6


def test_failures_within_the_window_share_one_signal(world: World) -> None:
    world.running(pods=10)
    world.pass_time(60)
    for index in range(10):
        world.pod(f"p{index}", "Failed")
        world.pass_time(0.008)
    sends = world.pass_time(30)
    assert sends[0].observation.failures_total == 10
    assert len(sends) == 1


def test_a_storm_of_failures_keeps_the_gap(world: World) -> None:
    world.running(pods=200)
    world.pass_time(60)
    begun = world.now
    for index in range(200):
        world.pod(f"p{index}", "Failed")
        world.pass_time(0.1)
    world.pass_time(30)
    signals = [at - begun for at, send in world.sent if at > begun]
    assert signals[0] <= 0.1 + 1e-6
    # The first sixteen decide; more of the same are no news.
    assert len(signals) <= 3
    assert all(later - earlier >= 2 - 1e-6 for earlier, later in itertools.pairwise(signals))


def test_flapping_costs_little(world: World) -> None:
    world.running()
    world.pass_time(60)
    before = len(world.sent)
    for _ in range(30):
        world.pod("p0", "Failed")
        world.pass_time(0.5)
        world.pod("p0", gone=True)
        world.pod("p0", "Running")
        world.pass_time(0.5)
    assert len(world.sent) - before <= 30 / 2 + 3


def test_a_pod_replaced_within_a_second_is_no_news(world: World) -> None:
    world.running()
    world.pass_time(60)
    world.pod("p0", gone=True)
    world.pass_time(0.7)
    world.pod("p0b")
    assert world.pass_time(30) == []


def test_a_pod_not_replaced_is_told_after_a_second(world: World) -> None:
    world.running()
    world.pass_time(60)
    begun = world.now
    world.pod("p0", gone=True)
    sends = world.pass_time(30)
    assert [send.facts.ready for send in sends] == [False]
    assert 0.9 <= world.sent[-1][0] - begun <= 1.1


def test_a_replaced_failure_is_told_as_healed(world: World) -> None:
    world.running()
    world.pass_time(60)
    world.pod("p0", "Failed")
    assert [bool(send.facts.failures) for send in world.pass_time(5)] == [True]
    world.pod("p0b")
    assert [bool(send.facts.failures) for send in world.pass_time(5)] == [False]


def test_before_submission_only_the_anchors_deletion_is_told(world: World) -> None:
    world.anchor()
    world.attempt(submitted=False)
    world.pod("p0", "Failed")
    assert world.pass_time(10) == []
    world.anchor(deleting=True)
    sends = world.pass_time(10)
    assert [(send.observation.anchor_deleting, send.observation.components) for send in sends] == [(True, {})]


def test_our_own_deletions_are_never_told(world: World) -> None:
    world.running()
    world.pass_time(60)
    world.attempt(deleting=True)
    world.pod("p0", deleting=True)
    world.pod("p0", gone=True)
    world.pod("p1", "Failed", deleting=True)
    world.job(gone=True)
    assert world.pass_time(10) == []
    world.attempt(gone=True)
    assert world.pass_time(60) == []
    assert world.attention.counts.own_deletion > 0


def test_the_next_attempt_is_told_anew_and_the_old_one_never_again(world: World) -> None:
    world.running()
    world.pass_time(60)
    world.attempt(deleting=True)
    world.pass_time(1)
    world.pod("p0", gone=True)
    world.pod("p1", gone=True)
    world.job(gone=True)
    world.attempt(gone=True)
    world.attempt(number=2)
    # Of the same name, and its stream is late: that is not missing.
    assert world.pass_time(0.9) == []
    world.job(number=2)
    for index in range(2):
        world.pod(f"p{index}", number=2)
    sends = world.pass_time(10)
    assert [(send.observation.attempt, send.facts.ready, send.observation.missing) for send in sends] == [(2, True, ())]


def test_an_anchor_deleted_while_nothing_runs_is_told_once(world: World) -> None:
    world.anchor()
    world.pass_time(10)
    world.anchor(deleting=True)
    sends = world.pass_time(60)
    assert [(send.observation.anchor_deleting, send.observation.attempt) for send in sends] == [(True, 1)]
    world.anchor(deleting=True)
    assert world.pass_time(60) == []


def test_an_anchor_deleted_while_it_runs_is_told_once_through_the_removal(world: World) -> None:
    world.running()
    world.pass_time(60)
    world.anchor(deleting=True)
    assert len(world.pass_time(10)) == 1
    world.attempt(deleting=True)
    world.pass_time(10)
    world.attempt(gone=True)
    assert world.pass_time(60) == []
    assert len(world.sent) == 2


def test_an_anchor_we_released_ourselves_is_not_told(world: World) -> None:
    world.anchor()
    world.anchor(deleting=True, finalizers=())
    assert world.pass_time(10) == []


def test_a_component_whose_stream_is_late_is_asked_for_and_not_missing(world: World) -> None:
    world.anchor()
    world.attempt(pods=0)
    sends = world.pass_time(1.5)
    assert not any(send.observation.missing for send in sends)
    assert [doubt.place for doubt in world.asked] == [(*JOB, "ns", "w-c0")]
    world.cache.confirm_gone("w-a1", (*JOB, "ns", "w-c0"))
    world.touch({world.key()})
    sends = world.pass_time(1)
    assert [send.observation.missing for send in sends] == [("c0",)]
    assert [failure.cls for failure in sends[0].observation.failures] == [FailureClass.MISSING]


def test_a_kind_that_cannot_be_read_is_found_and_never_missing(world: World) -> None:
    world.unseen = frozenset({JOB})
    world.anchor()
    world.attempt(pods=1)
    world.pod("p0")
    sends = world.pass_time(60)
    assert len(sends) == 1
    view = sends[0].observation.components["c0"]
    assert (view.found, view.complete, view.pods.running) == (True, False, 1)
    assert world.asked == []


def test_nothing_is_said_before_all_was_listed(world: World) -> None:
    world.settled = False
    world.running()
    assert world.pass_time(60) == []
    world.settled = True
    world.touch({world.key()})
    assert len(world.pass_time(60)) == 1


def test_a_restart_with_the_heartbeat_signals_nobody() -> None:
    world = World()
    for index in range(300):
        world.running(f"w{index}")
        if index % 3 == 0:
            world.pod("p0", "Failed", workload=f"w{index}")
    world.pass_time(60)
    assert len(world.sent) >= 300
    other = world.restarted()
    assert other.pass_time(60) == []
    other.pod("p1", "Failed", workload="w1")
    assert [send.workload.uid for send in other.pass_time(60)] == ["w1"]


def test_a_restart_without_it_tells_each_workload_once_and_not_faster_than_the_rate() -> None:
    world = World(rate=50)
    for index in range(300):
        world.running(f"w{index}")
    world.pass_time(60)
    other = World(rate=50, now=world.now)
    world.list_into(other.cache)
    other.touch(other.cache.workloads)
    begun = other.now
    assert len(other.pass_time(60)) == 300
    assert other.sent[-1][0] - begun >= (300 - 50) / 50 - 0.1


def test_a_heartbeat_stays_small() -> None:
    world = World()
    for index in range(50):
        world.running(f"w{index}")
    world.pass_time(60)
    assert len(world.attention.digests()) <= 50 * RECORD_BYTES * 2
    assert ACKNOWLEDGED_MAXIMUM * RECORD_BYTES * 4 / 3 < 1 << 20


def test_an_attempt_that_was_gone_and_lives_again_is_news(world: World) -> None:
    """A cluster restored from a snapshot with a raised revision shows nothing else of it."""
    world.running()
    assert len(world.pass_time(60)) == 1
    world.attempt(deleting=True)
    for name in ("p0", "p1"):
        world.pod(name, gone=True)
    world.job(gone=True)
    world.attempt(gone=True)
    assert world.pass_time(60) == []
    world.running()
    (again,) = world.pass_time(60)
    assert again.observation.attempt == 1


def test_an_attempt_that_cannot_be_read_for_a_while_is_not_forgotten() -> None:
    world = World()
    world.running()
    assert len(world.pass_time(60)) == 1
    world.listed = False
    world.attempt(gone=True)
    assert world.pass_time(60) == []
    world.listed = True
    world.running()
    assert world.pass_time(60) == []


def test_a_workload_that_vanishes_while_attempts_cannot_be_read_is_told_once_they_can() -> None:
    world = World()
    world.anchor(deployed=True)
    world.attempt()
    world.job()
    for name in ("p0", "p1"):
        world.pod(name)
    assert len(world.pass_time(60)) == 1
    world.listed = False
    world.attempt(gone=True)
    world.anchor(deployed=True, gone=True)
    assert world.pass_time(60) == []
    world.listed = True
    (told,) = world.pass_time(60)
    assert not told.observation.owner_found


def test_digests_of_what_is_gone_are_let_go(world: World) -> None:
    for number in range(1, 20):
        world.running(number=number)
        world.pass_time(5)
        world.attempt(number=number, deleting=True)
        for index in range(2):
            world.pod(f"p{index}", number=number, gone=True)
        world.job(number=number, gone=True)
        world.attempt(number=number, gone=True)
        world.pass_time(5)
    assert len(world.attention.digests()) <= 3 * RECORD_BYTES * 2


def test_a_signal_that_does_not_arrive_is_tried_again_and_not_acknowledged(world: World) -> None:
    world.refuse = "lost"
    world.running()
    world.pass_time(60)
    tries = len(world.sent)
    assert 4 <= tries <= 12
    assert world.restarted().pass_time(5) != []
    world.refuse = ""
    world.pass_time(60)
    assert len(world.sent) == tries + 1
    assert world.pass_time(60) == []


def test_a_workflow_that_has_ended_is_left_alone(world: World) -> None:
    world.refuse = "closed"
    world.running()
    world.pass_time(10)
    world.pod("p0", "Failed")
    world.pass_time(10)
    world.attention.sight_regained(world.now)
    world.pass_time(10)
    assert len(world.sent) == 1


def test_failures_go_first() -> None:
    world = World(rate=10)
    for index in range(100):
        world.running(f"w{index}")
    world.pass_time(0.35)
    world.pod("p0", "Failed", workload="w99")
    begun = world.now
    world.pass_time(60)
    told = next(at for at, send in world.sent if send.workload.uid == "w99" and send.facts.failures)
    assert told - begun <= 0.3


def test_after_blindness_the_unhealthy_hear_of_it_once(world: World) -> None:
    world.running("sick")
    world.running("well")
    world.pod("p0", "Failed", workload="sick")
    world.pass_time(60)
    world.spans = (Interval(begin=world.time() - timedelta(seconds=40), end=world.time()),)
    world.attention.sight_regained(world.now)
    sends = world.pass_time(60)
    assert [(send.workload.uid, send.observation.blind) for send in sends] == [("sick", world.spans)]
    world.pod("p0b", workload="sick")
    assert [send.observation.blind for send in world.pass_time(60)] == [()]


def test_blindness_that_concerns_others_is_not_told(world: World) -> None:
    world.running()
    world.pod("p0", "Failed")
    world.pass_time(60)
    world.attention.sight_regained(world.now, lambda attempt: JOB not in attempt.kinds)
    assert world.pass_time(60) == []
    world.attention.sight_regained(world.now, lambda attempt: JOB in attempt.kinds)
    assert len(world.pass_time(60)) == 1


def test_blindness_travels_with_the_next_signal(world: World) -> None:
    world.running()
    world.pass_time(60)
    world.spans = (Interval(begin=world.time(), end=world.time() + timedelta(seconds=5)),)
    world.pass_time(10)
    world.pod("p0", "Failed")
    assert [send.observation.blind for send in world.pass_time(10)] == [world.spans]


def test_the_revision_rises_with_a_deletion_too(world: World) -> None:
    world.running()
    first = world.pass_time(10)[-1].observation
    world.pod("p0", gone=True)
    second = world.pass_time(10)[-1].observation
    assert second.revision > first.revision
    assert second.newer_than(first)


def collected(world: World) -> None:
    """With the anchor goes all that it owns."""
    world.anchor(deployed=True, finalizers=(), gone=True)
    world.attempt(gone=True)
    world.job(gone=True)
    for name in ("p0", "p1"):
        world.pod(name, gone=True)


def test_an_anchor_collected_without_its_finalizer_is_told_as_the_owners_loss(world: World) -> None:
    world.running()
    world.anchor(deployed=True)
    world.pass_time(30)
    collected(world)
    told = world.pass_time(600)
    assert [(one.workflow_id, one.observation.attempt, one.observation.owner_found) for one in told] == [
        ("workload/c/ns/w", 1, False)
    ]
    assert told[0].observation.components == {}
    assert told[0].observation.newer_than(world.sent[-2][1].observation)
    # Nothing of it is kept.
    assert world.attention.digests() == ""
    assert world.cache.last_anchor(world.key()) is None


def test_an_anchor_collected_after_its_owner_was_told_lost_is_no_news(world: World) -> None:
    world.running()
    world.anchor(deployed=True)
    world.pass_time(30)
    world.attempt(gone=True)
    assert len(world.pass_time(30)) == 1
    collected(world)
    assert world.pass_time(600) == []
    assert world.attention.digests() == ""


def test_a_collected_anchor_whose_news_does_not_arrive_is_told_again(world: World) -> None:
    world.running()
    world.anchor(deployed=True)
    world.pass_time(30)
    world.refuse = "lost"
    collected(world)
    assert len(world.pass_time(5)) > 1
    world.refuse = "closed"
    world.pass_time(60)
    tries = len(world.sent)
    world.pass_time(600)
    assert len(world.sent) == tries
    assert world.attention.digests() == ""


@pytest.mark.parametrize("why", ["our removal", "unreadable", "closed", "never told"])
def test_a_vanished_anchor_is_no_news_where_nobody_took_it(world: World, why: str) -> None:
    if why == "closed":
        world.refuse = "closed"
    world.running()
    world.anchor(deployed=why != "our removal")
    if why != "never told":
        world.pass_time(30)
    before = len(world.sent)
    if why == "unreadable":
        anchor, attempt = world.cache.anchor(world.key()), world.cache.newest(world.key())
        assert anchor is not None
        assert attempt is not None
        world.touch(world.cache.drop_anchor(anchor, 0) | world.cache.drop_attempt(attempt, 0))
    else:
        collected_by_us = world.cache.anchor(world.key())
        assert collected_by_us is not None
        world.attempt(gone=True)
        world.touch(world.cache.drop_anchor(collected_by_us, int(world.next_version())))
    world.pass_time(600)
    assert len(world.sent) == before
    assert world.cache.last_anchor(world.key()) is None


@pytest.mark.parametrize("pause", [0.0, 0.05, 20.0])
def test_what_is_deleted_after_it_completed_is_complete_and_not_missing(world: World, pause: float) -> None:
    world.running()
    world.pass_time(20)
    for name in ("p0", "p1"):
        world.pod(name, "Succeeded")
    world.job(condition="Complete")
    world.pass_time(pause)
    world.job(condition="Complete", gone=True)
    for name in ("p0", "p1"):
        world.pod(name, gone=True)
    world.pass_time(60)
    told = [send.observation for _, send in world.sent[1:]]
    assert [(one.complete, one.missing, one.failures) for one in told] == [(True, (), ())]
    # It is kept for as long as its attempt is there.
    world.attempt(gone=True)
    assert world.cache._ended == {}


def test_what_is_deleted_after_it_failed_says_why_it_failed(world: World) -> None:
    world.running()
    world.pass_time(20)
    world.job(condition="Failed")
    world.job(condition="Failed", gone=True)
    told = [send.observation for send in world.pass_time(60)]
    assert [[one.cls for one in each.failures] for each in told] == [[FailureClass.APP]]
    # What comes back under its name is looked at anew.
    world.job()
    assert [send.observation.failures for send in world.pass_time(60)] == [()]


@pytest.mark.parametrize("last", ["Succeeded", "Failed"])
def test_the_end_of_all_pods_is_told_where_their_component_cannot_be_read(world: World, last: str) -> None:
    world.unseen = frozenset({JOB})
    world.anchor()
    world.attempt()
    world.pod("p0")
    world.pod("p1")
    world.pass_time(60)
    world.pod("p0", "Succeeded")
    assert world.pass_time(60) == []
    begun = world.now
    world.pod("p1", last)
    told = world.pass_time(60)
    assert [(one.facts.quiet, one.observation.complete) for one in told] == [(True, False)]
    assert world.sent[-1][0] - begun <= 0.3 + 1e-6
    assert world.restarted().pass_time(60) == []
    # Whoever looked and found it going on hears of the next end as well.
    world.pod("p1", gone=True)
    world.pod("p1b")
    world.pass_time(60)
    world.pod("p1b", "Succeeded")
    assert [one.facts.quiet for one in world.pass_time(60)] == [True]


def test_the_end_of_all_pods_is_no_news_where_their_component_can_be_read(world: World) -> None:
    world.running()
    world.pass_time(60)
    for name in ("p0", "p1"):
        world.pod(name, "Succeeded")
    assert world.pass_time(60) == []
    world.job(condition="Complete")
    assert [one.facts.finished for one in world.pass_time(60)] == [True]


def test_a_component_that_can_no_longer_be_read_where_others_can_is_not_missing(world: World) -> None:
    world.running()
    world.pass_time(60)
    place = (*JOB, "ns", "w-c0")
    world.touch(world.cache.drop_object(place, world.cache._objects[place], 0))
    assert world.pass_time(60) == []
    assert {doubt.place for doubt in world.asked} == {place}


def test_what_is_asked_for_by_name_is_bounded(world: World) -> None:
    for index in range(50):
        world.anchor(f"w{index}")
        world.attempt(f"w{index}", pods=0)
    world.attention.look(world.now + 1, world.time())
    later = world.now + 10
    assert world.attention.doubts(later, -3) == []
    first = world.attention.doubts(later, 10)
    rest = world.attention.doubts(later, 1000)
    assert (len(first), len(rest)) == (10, 40)
    assert not set(first) & set(rest)
    # With no slot free, what is in doubt does not keep the loop awake.
    for send in world.attention.take(later, world.time(), 1000):
        world.attention.arrived(send, later)
    world.attention.look(later + 5, world.time())
    assert world.attention.next_due(later + 60, asking=False) is None
    assert world.attention.next_due(later + 60) is not None


def test_a_loss_while_nobody_watched_is_newer_than_what_was_told(world: World) -> None:
    world.running()
    world.pod("p1", "Failed")
    world.pass_time(10)
    world.pod("p1b")
    before = world.pass_time(30)[-1].observation
    # Everything under the attempt goes while no process watches: only older objects are left to be listed.
    world.job(gone=True)
    for name in ("p0", "p1", "p1b"):
        world.pod(name, gone=True)
    other = world.restarted()
    other.pass_time(2)
    other.confirm_asked()
    told = [send.observation for send in other.pass_time(60)]
    assert [one.missing for one in told] == [("c0",)]
    assert told[0].newer_than(before)
    assert told[0].revision > before.revision


def test_an_owner_lost_while_nobody_watched_is_newer_than_what_was_told(world: World) -> None:
    world.running()
    world.anchor(deployed=True)
    world.pod("p0", "Failed")
    before = world.pass_time(30)[-1].observation
    world.attempt(gone=True)
    world.job(gone=True)
    for name in ("p0", "p1"):
        world.pod(name, gone=True)
    told = [send.observation for send in world.restarted().pass_time(60)]
    assert [one.owner_found for one in told] == [False]
    assert told[0].revision > before.revision


def test_a_restart_does_not_take_back_that_a_component_is_missing(world: World) -> None:
    world.running()
    world.pass_time(10)
    world.job(gone=True)
    assert [send.observation.missing for send in world.pass_time(10)] == [("c0",)]
    other = world.restarted()
    assert other.pass_time(2) == []
    other.confirm_asked()
    # Which object it was that went, nobody knows any more: it is told once more, and not taken back.
    assert [send.observation.missing for send in other.pass_time(60)] == [("c0",)]


def test_components_that_complete_one_by_one_are_told_lazily(world: World) -> None:
    world.anchor()
    world.attempt(pods=1, components=20)
    for index in range(20):
        world.job(index=index)
        world.pod(f"p{index}", index=index)
    world.pass_time(60)
    before = len(world.sent)
    for index in range(20):
        world.pod(f"p{index}", "Succeeded", index=index)
        world.job(index=index, condition="Complete")
        world.pass_time(1)
    world.pass_time(30)
    assert len(world.sent) - before <= 4
    assert world.sent[-1][1].facts.finished


def stuck(world: World, name: str, reason: str = "ErrImagePull") -> None:
    container = {"name": "main", "state": {"waiting": {"reason": reason, "message": f"{reason} {world.now}"}}}
    world.pod(name, "Pending", status={"startTime": EPOCH.isoformat(), "containerStatuses": [container]})


@pytest.mark.row("L16", level="pure")
def test_L16_pods_that_cannot_be_started_are_one_piece_of_news(world: World) -> None:
    world.anchor()
    world.attempt(pods=50)
    world.job()
    world.pass_time(1)
    for index in range(50):
        stuck(world, f"p{index}")
        world.pass_time(0.05)
    for _ in range(20):
        for reason in ("ImagePullBackOff", "ErrImagePull"):
            stuck(world, "p7", reason)
            world.pass_time(30)
    first, last = [send for _, send in world.sent]
    assert first.facts.stuck == last.facts.stuck == ("c0/ErrImagePull/None",)
    assert first.observation.stuck
    assert (first.facts.admitted, last.facts.admitted) == (False, True)


@pytest.mark.row("L16", level="pure")
def test_L16_a_pod_whose_node_does_not_prepare_it_is_looked_at_when_its_time_is_over(world: World) -> None:
    """Nothing more is heard of it: its kubelet has nothing new to say."""
    world.anchor()
    world.attempt(pods=1)
    world.job()
    unprepared = {"type": "PodReadyToStartContainers", "status": "False"}
    world.pod("p0", "Pending", status={"startTime": world.stamp(), "conditions": [unprepared]})
    begun = world.now
    world.pass_time(PREPARATION.total_seconds() - 1)
    assert not any(send.facts.stuck for _, send in world.sent)
    world.pass_time(5)
    (at,) = [at for at, send in world.sent if send.facts.stuck]
    assert at - begun == pytest.approx(PREPARATION.total_seconds(), abs=1)


@pytest.mark.row("D34", level="pure")
def test_D34_what_pods_wait_for_is_told_once_however_many_there_are_and_however_often_it_is_said_anew(
    world: World,
) -> None:
    def waits(name: str, nodes: int) -> None:
        message = f"0/{nodes} nodes are available: {nodes} Insufficient cpu."
        said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        status = {"conditions": [{**said, "lastTransitionTime": world.stamp()}]}
        world.pod(name, "Pending", node="", status=status)

    world.anchor()
    world.attempt(pods=500)
    world.job()
    for index in range(500):
        waits(f"p{index}", 8)
    assert [send.observation.waiting for send in world.pass_time(3)] == [], "the scheduler may find one yet"
    first = world.pass_time(60)
    assert [send.observation.waiting[0].count for send in first] == [500]
    for nodes in range(9, 200):
        waits(f"p{nodes}", nodes)
        assert world.pass_time(1) == [], "no pod's message wakes a workflow"


@pytest.mark.row("D34", level="pure")
def test_D34_pods_that_are_found_waiting_a_moment_later_are_counted_too(world: World) -> None:
    world.anchor()
    world.attempt(pods=2)
    world.job()
    for index in range(2):
        said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/8 nodes"}
        status = {"conditions": [{**said, "lastTransitionTime": world.stamp()}]}
        world.pod(f"p{index}", "Pending", node="", status=status)
        world.pass_time(2)
    told = [send.observation.waiting[0].count for send in world.pass_time(60) if send.observation.waiting]
    assert told[-1] == 2
    assert len(told) <= 2
    assert world.pass_time(60) == []


@pytest.mark.row("D34", level="pure")
def test_D34_why_pods_are_not_created_is_told_once_and_forgotten_when_they_are(world: World) -> None:
    world.anchor()
    world.attempt(pods=2)
    world.job()
    world.pod("p0")
    world.pass_time(10)
    (attempt,) = world.attention.unadmitted(world.now)
    for number in range(5):
        refused = {"c0": f'pods "x-{number}" is forbidden: exceeded quota: team'}
        world.touch(world.cache.put_refused(attempt.key, refused), hot=False)
        told = world.pass_time(10)
        assert [send.observation.waiting[0].reason for send in told] == ([] if number else ["FailedCreate"])
    world.pod("p1")
    world.pass_time(60)
    assert not world.attention.unadmitted(world.now)
    world.pod("p1", gone=True)
    assert all(not send.observation.waiting for send in world.pass_time(60)), "what was said before is not said again"


@pytest.mark.row("D2", level="pure")
def test_D2_a_workload_that_cannot_be_observed_looks_for_itself_and_the_others_are_watched(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    observe, broken = world.cache.observe, {"w"}

    def breaks(live: AttemptSeen, *rest: Any) -> Observation:
        if live.workload_uid in broken:
            raise OverflowError
        return observe(live, *rest)

    monkeypatch.setattr(world.cache, "observe", breaks)
    world.running("w")
    world.running("v")
    told = {one.workload.uid: one.observation for one in world.pass_time(60)}
    assert len(world.sent) == 2, "each once"
    assert (told["w"].attempt, told["w"].owner_found) == (1, False)
    assert told["v"].owner_found
    world.pod("p0", "Failed", workload="w")
    assert world.pass_time(60) == [], "it looks already"
    world.anchor("u")
    world.running("u")
    broken.add("u")
    world.anchor("u", deleting=True)
    assert any(one.observation.anchor_deleting for one in world.pass_time(60)), "its deletion is heard all the same"
    broken.clear()
    world.pod("p1", "Failed", workload="w")
    (seen,) = world.pass_time(60)
    assert [one.subject for one in seen.observation.failures] == ["p0", "p1"]
