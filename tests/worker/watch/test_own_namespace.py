"""Objects count only in their workload's own namespace, a deletion only once a live look has found it. Pure (X8)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import AsyncMock, MagicMock, Mock

import pytest
from temporalio.common import SearchAttributeKey

from holdfast import names
from holdfast.activities.facts.workload_key import own_name
from holdfast.worker.watch import missing
from holdfast.worker.watch.seen import anchor_seen, attempt_seen
from tests.fakes.watched import EPOCH, OWN, World

ROW = pytest.mark.row
HOSTILE = "hostile"


@pytest.fixture
def world() -> World:
    return World()


def settled(world: World, pods: int = 2) -> None:
    world.running(pods=pods)
    world.anchor(deployed=True)
    world.pass_time(60)


@ROW("X8", level="pure")
@pytest.mark.parametrize("first", [True, False])
def test_X8_running_pods_elsewhere_hide_no_failed_one(world: World, first: bool) -> None:
    def copied() -> None:
        with world.elsewhere(HOSTILE):
            for index in range(2):
                world.pod(f"p{index}")

    if first:
        copied()
    settled(world)
    if not first:
        copied()
        assert world.pass_time(60) == []
    world.pod("p0", "Failed", code=137)
    (told,) = world.pass_time(60)
    assert [one.subject for one in told.observation.failures] == ["p0"]
    assert (told.observation.pods.running, told.observation.pods.failed) == (1, 1)


@ROW("X8", level="pure")
@pytest.mark.parametrize("phase", ["Running", "Failed", "Pending"])
def test_X8_pods_elsewhere_are_no_news(world: World, phase: str) -> None:
    settled(world)
    with world.elsewhere(HOSTILE):
        for index in range(5):
            world.pod(f"p{index}", phase)
        assert world.pass_time(60) == []
        assert world.cache.pods_of(world.key()) == 5
        for index in range(5):
            world.pod(f"p{index}", phase, gone=True)
        assert world.pass_time(60) == []
    assert world.cache.pods_of(world.key()) == 2


@ROW("X8", level="pure")
@pytest.mark.parametrize("how", ["deleted", "gone"])
def test_X8_an_anchor_elsewhere_that_is_deleted_cancels_nothing(world: World, how: str) -> None:
    settled(world)
    with world.elsewhere(HOSTILE):
        world.anchor(deployed=True)
        world.anchor(deleting=True)
        if how == "gone":
            world.anchor(deleting=True, gone=True)
    assert world.pass_time(60) == []
    assert world.deletions == []
    own = world.cache.anchor(world.key())
    assert own is not None
    assert (own.facts.uid, own.facts.deleting) == ("anchor-w", False)


@ROW("X8", level="pure")
def test_X8_a_custom_resource_elsewhere_asks_for_nothing(world: World) -> None:
    world.resource()
    world.pass_time(60)
    with world.elsewhere(HOSTILE):
        world.resource(generation=7, suspend=True)
        world.resource(generation=8, deletionTimestamp=EPOCH.isoformat())
    assert world.pass_time(60) == []
    assert world.deletions == []


@ROW("X8", level="pure")
@pytest.mark.parametrize("change", ["newer", "deleting", "gone"])
def test_X8_an_attempt_elsewhere_is_none_of_the_workloads(world: World, change: str) -> None:
    settled(world)
    with world.elsewhere(HOSTILE):
        world.attempt(number=2 if change == "newer" else 1, deleting=change == "deleting", gone=change == "gone")
        world.job()
        world.job(condition="Failed")
    assert world.pass_time(60) == []
    assert world.asked == []
    newest = world.cache.newest(world.key())
    assert newest is not None
    assert newest.facts.uid == "w-a1"
    assert world.cache.workloads == {world.key()}


@ROW("X8", level="pure")
def test_X8_an_attempt_elsewhere_does_not_hide_that_the_own_one_is_gone(world: World) -> None:
    settled(world)
    with world.elsewhere(HOSTILE):
        world.attempt()
    world.attempt(gone=True)
    (told,) = world.pass_time(60)
    assert not told.observation.owner_found


@ROW("X8", level="pure")
@pytest.mark.parametrize(
    ("namespace", "name", "cluster", "ours"),
    [
        ("ns", "w", "c", True),
        ("hostile", "w", "c", False),
        ("ns", "copy", "c", False),
        ("ns", "w", "restored-from-c", False),
    ],
)
def test_X8_an_anchor_counts_only_in_its_own_place(namespace: str, name: str, cluster: str, ours: bool) -> None:
    metadata = {"name": name, "namespace": namespace, "uid": "u", "finalizers": [names.FINALIZER]}
    raw: dict[str, Any] = {"metadata": metadata, "spec": {"workloadUid": "w", "workflowId": "workload/c/ns/w"}}
    assert (anchor_seen(cluster)(raw) is not None) == ours
    if name == "w":
        spec = {**raw["spec"], "attempt": 1, "plan": []}
        assert (attempt_seen(cluster)({"metadata": metadata, "spec": spec}) is not None) == ours


@ROW("X8", level="pure")
@pytest.mark.parametrize("workflow_id", ["", "workload/c/ns", "queue/c/ns/w", "workload/c/ns/w/x", "workload/c//w"])
def test_X8_what_is_no_workloads_id_names_no_workload(workflow_id: str) -> None:
    assert own_name(workflow_id, "c", "ns") == ""


@ROW("X8", level="pure")
@pytest.mark.parametrize("own", [True, False])
async def test_X8_an_attempt_elsewhere_does_not_hide_that_a_running_workload_is_absent(
    world: World, own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(missing, "PATIENCE", 0)
    with world.elsewhere(OWN if own else HOSTILE):
        raw = {"uid": "u", "name": "w-a1", "namespace": world.namespace}
        spec = {"workloadUid": "w", "workflowId": f"workload/c/{world.namespace}/w", "attempt": 1, "plan": []}
        seen = attempt_seen("c")({"metadata": raw, "spec": spec})
    assert seen is not None
    world.cache.put_attempt(seen)
    client = Mock()
    client.get_workflow_handle.return_value.signal = AsyncMock()
    client.list_workflows.return_value = MagicMock()
    client.list_workflows.return_value.__aiter__.return_value = [
        Mock(
            id="workload/c/ns/w",
            run_id="r",
            memo=AsyncMock(return_value={names.MEMO_UID: "w"}),
            typed_search_attributes={SearchAttributeKey.for_int(names.SA_ATTEMPT): 1},
        )
    ]
    retell = Mock()
    told = await missing.Missing(client, "c", (0, names.SHARDS - 1), world.cache, retell).tell(lambda: 1)
    assert told == (0 if own else 1)
    retell.assert_not_called()


# A deletion seen by the watch is confirmed.


@ROW("X8", level="pure")
def test_X8_a_deletion_is_told_once_a_live_look_has_found_it_and_what_fails_meanwhile_at_once(world: World) -> None:
    world.confirms = False
    settled(world)
    world.anchor(deleting=True, deployed=True)
    assert world.pass_time(60) == []
    assert {(one.uid, one.place[2:]) for one in world.deletions} == {("anchor-w", ("ns", "w"))}
    assert len(world.deletions) > 1, "it is asked again"
    world.pod("p0", "Failed")
    (failed,) = world.pass_time(3)
    assert (failed.observation.anchor_deleting, failed.observation.failures_total) == (False, 1)
    world.confirms = True
    (told,) = world.pass_time(60)
    assert told.observation.anchor_deleting
    assert world.pass_time(600) == []


@ROW("X8", level="pure")
@pytest.mark.parametrize("gone", [False, True])
def test_X8_an_attempt_that_goes_with_its_anchor_is_not_told_as_lost_before_the_look(world: World, gone: bool) -> None:
    world.confirms = False
    settled(world)
    world.anchor(deleting=True, deployed=True)
    world.attempt(deleting=True, gone=gone)
    assert world.pass_time(60) == []
    world.confirms = True
    (told,) = world.pass_time(60)
    assert told.observation.anchor_deleting


@ROW("X8", level="pure")
def test_X8_a_deletion_that_is_refuted_is_never_told_and_asked_for_no_more(world: World) -> None:
    world.confirms = False
    settled(world)
    world.anchor(deleting=True, deployed=True)
    world.pass_time(20)
    world.anchor(deployed=True)
    asked = len(world.deletions)
    world.confirms = True
    assert world.pass_time(600) == []
    assert len(world.deletions) == asked


@ROW("X8", level="pure")
@pytest.mark.parametrize("found", ["nothing", "another", "not deleted"])
def test_X8_a_live_look_that_finds_no_deleted_anchor_confirms_nothing(world: World, found: str) -> None:
    world.confirms = False
    settled(world)
    world.anchor(deleting=True, deployed=True)
    world.pass_time(1)
    doubt, seen = world.deletions[0], world.cache.unconfirmed(world.key())
    assert seen is not None
    there = {
        "nothing": None,
        "another": replace(seen.facts, uid="a later anchor's"),
        "not deleted": replace(seen.facts, deleting=False),
    }
    assert world.attention.answered(doubt, there[found]) == set()
    assert world.cache.unconfirmed(world.key()) is seen


@ROW("X8", level="pure")
def test_X8_a_custom_resources_deletion_is_no_request_before_it_is_found(world: World) -> None:
    world.confirms = False
    world.running(pods=2)
    world.resource()
    world.pass_time(60)
    world.resource(generation=2, deletionTimestamp=EPOCH.isoformat())
    assert world.pass_time(60) == [], "nothing but the deletion has changed"
    world.confirms = True
    (told,) = world.pass_time(60)
    assert told.observation.anchor_deleting
    assert told.observation.asked is not None
    assert (told.observation.asked.deleting, told.observation.asked.generation) == (True, 2)


@ROW("X8", level="pure")
def test_X8_a_request_that_came_with_a_deletion_in_doubt_is_told_at_once(world: World) -> None:
    world.confirms = False
    world.running(pods=2)
    world.resource()
    world.pass_time(60)
    world.resource(suspend=True, generation=3, deletionTimestamp=EPOCH.isoformat())
    (told,) = world.pass_time(60)
    asked = told.observation.asked
    assert asked is not None
    assert (asked.suspend, asked.deleting, asked.generation) == (True, False, 2)
    world.confirms = True
    (told_now,) = world.pass_time(60)
    assert told_now.observation.asked is not None
    assert (told_now.observation.asked.deleting, told_now.observation.asked.generation) == (True, 3)


@ROW("X8", level="pure")
def test_X8_what_was_confirmed_is_forgotten_with_the_anchor(world: World) -> None:
    settled(world)
    world.anchor(deleting=True, deployed=True)
    world.pass_time(60)
    (doubt,) = world.deletions
    found = world.cache._anchors[world.key()].facts
    world.anchor(deleting=True, gone=True)
    assert world.cache._confirmed == set()
    world.attention.answered(doubt, found)
    assert world.cache._confirmed == set(), "an answer may come late"
