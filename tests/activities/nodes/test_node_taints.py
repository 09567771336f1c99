"""What the provisioner says on nodes' objects, and what it leaves alone (row L15)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast import names
from holdfast.activities.facts import node_taints
from holdfast.activities.facts.node_annotations import patch_of
from holdfast.activities.facts.nodes import Marks, on_marked
from holdfast.activities.facts.pods import pod_facts
from holdfast.activities.nodes.provisioner import _living
from holdfast.model import NodeWish, NodeWord
from holdfast.policy.failures.avoided_nodes import down_in
from tests.activities.shapes import ATTEMPT, NOW, pod

ROW = pytest.mark.row
OTHERS = {"key": "example.com/theirs", "value": "x", "effect": "NoSchedule"}
OUT = {"key": names.TAINT_OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute"}
QUARANTINE = {"key": names.quarantine_taint("us"), "value": "wipe", "effect": "NoSchedule"}
AT = datetime(2026, 1, 1, tzinfo=UTC)


def node(*taints: dict[str, Any], **annotations: str) -> dict[str, Any]:
    return {"metadata": {"name": "n", "annotations": annotations}, "spec": {"taints": list(taints)}}


def after(raw: dict[str, Any], patch: dict[str, Any] | None) -> dict[str, Any]:
    """Return a node after a merge patch."""
    assert patch is not None
    annotations = {**raw["metadata"]["annotations"], **patch.get("metadata", {}).get("annotations", {})}
    annotations = {key: value for key, value in annotations.items() if value is not None}
    taints = patch["spec"]["taints"] or [] if "spec" in patch else raw["spec"]["taints"]
    return {"metadata": {**raw["metadata"], "annotations": annotations}, "spec": {"taints": taints}}


@ROW("L15", level="pure")
def test_L15_a_quarantine_is_put_on_and_taken_off_and_others_taints_stay():
    raw = node(OTHERS)
    quarantined = after(raw, node_taints.quarantine(raw, "us"))
    assert quarantined["spec"]["taints"] == [OTHERS, QUARANTINE]
    assert node_taints.quarantine(quarantined, "us") is None
    assert node_taints.let_go(quarantined, "them") is None
    assert after(quarantined, node_taints.let_go(quarantined, "us")) == raw
    assert node_taints.let_go(raw, "us") is None


@ROW("L15", level="pure")
def test_L15_who_is_held_may_be_asked_to_be_wiped_and_who_is_to_be_wiped_is_not_held_instead():
    raw = node(OTHERS)
    held = after(raw, node_taints.quarantine(raw, "us", node_taints.HELD))
    assert held["spec"]["taints"] == [OTHERS, {**QUARANTINE, "value": "held"}]
    assert node_taints.quarantine(held, "us", node_taints.HELD) is None
    wiped = after(held, node_taints.quarantine(held, "us"))
    assert wiped["spec"]["taints"] == [OTHERS, QUARANTINE]
    assert node_taints.quarantine(wiped, "us", node_taints.HELD) is None
    assert after(held, node_taints.let_go(held, "us")) == raw


@ROW("L15", level="pure")
def test_L15_the_out_of_service_taint_is_taken_off_only_where_we_have_put_it():
    raw = node(OTHERS)
    fenced = after(raw, node_taints.fence(raw, "us", AT, "off"))
    assert fenced["spec"]["taints"] == [OTHERS, OUT]
    assert node_taints.is_fenced(fenced, "us")
    assert not node_taints.is_fenced(fenced, "them")
    assert node_taints.fence(fenced, "us", AT, "off") is None
    assert after(fenced, node_taints.unfence(fenced, "us", None)) == raw
    theirs = node(OUT)
    both = after(theirs, node_taints.fence(theirs, "us", AT, "off"))
    assert both["spec"]["taints"] == [OUT]
    assert after(both, node_taints.unfence(both, "us", None)) == theirs
    assert node_taints.unfence(raw, "us", None) is None
    lost = {**fenced, "spec": {"taints": [OTHERS]}}
    assert after(lost, node_taints.fence(lost, "us", AT, "off"))["spec"]["taints"] == [OTHERS, OUT], "it is put again"
    later = after(fenced, node_taints.fence(fenced, "us", AT, "off again", "r9"))
    assert later["spec"]["taints"] == [OTHERS, OUT]
    assert node_taints.fence(later, "us", AT, "off again", "r9") is None
    assert after(later, node_taints.unfence(later, "us", None)) == raw, "the taint is ours as before"


@ROW("L15", level="pure")
def test_L15_a_node_that_is_heard_again_is_freed_in_one_change():
    raw = node(OTHERS)
    fenced = after(raw, node_taints.fence(raw, "us", AT, "off"))
    wish = NodeWish(name="n", uid="u", word=NodeWord.LOST, why="powered off", since=AT)
    lost = after(fenced, patch_of(fenced, wish, "us"))
    back = wish.model_copy(update={"word": NodeWord.RETURNING})
    returning = after(lost, node_taints.unfence(lost, "us", patch_of(lost, back, "us")))
    assert {one["key"] for one in returning["spec"]["taints"]} == {OTHERS["key"], names.node_taint("us")}
    assert not node_taints.is_fenced(returning, "us")


@ROW("L15", level="pure")
def test_L15_the_proof_and_the_word_that_waits_for_it_are_said_in_one_change():
    """Kubernetes takes the pods away by the taint: from then on nobody could tell why they are not there."""
    raw = node(OTHERS)
    fencing = NodeWish(name="n", uid="u", word=NodeWord.FENCING, why="to be off", since=AT, heard=AT)
    fenced = after(raw, patch_of(raw, fencing, "us"))
    off = after(fenced, node_taints.fence(fenced, "us", AT, "powered off", "r1"))
    mark = Marks(installation="us").of(off)
    assert mark is not None
    assert (mark.reason, mark.off) == ("NodeStillDown", True)
    why = "its lease was last renewed at 00:00:00 UTC; powered off"
    assert mark.message == why
    lost = fencing.model_copy(update={"word": NodeWord.LOST, "why": why})
    assert patch_of(off, lost, "us") is None, "just what the monitor says next"
    for word in (NodeWord.RETURNING, NodeWord.DOWN, NodeWord.NONE):
        there = after(raw, patch_of(raw, fencing.model_copy(update={"word": word}), "us") or {})
        change = node_taints.fence(there, "us", AT, "powered off", "r1")
        assert change is not None
        assert names.node_annotation("us") not in change["metadata"]["annotations"], word


@ROW("L15", level="pure")
def test_L15_our_own_taint_is_no_broken_hardware_and_what_was_there_does_not_run_on():
    raw = node()
    fenced = after(raw, node_taints.fence(raw, "us", AT, "off"))
    ours, theirs = Marks(installation="us"), Marks(installation="them")
    assert ours.of(fenced) is None, "its monitor tells when it is time to"
    assert ours.faults.of(fenced) is None
    assert theirs.of(fenced) is not None
    fencing = NodeWish(name="n", uid="u", word=NodeWord.FENCING, why="to be off", since=AT)
    assert ours.of(after(fenced, patch_of(fenced, fencing, "us"))) is None, "nobody hears of it yet"
    wish = fencing.model_copy(update={"word": NodeWord.LOST})
    for there, off in ((fenced, True), (raw, False)):
        mark = ours.of(after(there, patch_of(there, wish, "us")))
        assert mark is not None
        assert (mark.reason, mark.off) == ("NodeStillDown", off)
        running = pod_facts(pod("worker", node="n"))
        (failure,) = on_marked([running], {"n": mark}, ATTEMPT, NOW)
        assert failure.off is off
        assert ('"off"' in failure.model_dump_json()) is off


@pytest.mark.parametrize(
    ("raw", "counts"),
    [
        ({"metadata": {"namespace": "t", "name": "a"}, "status": {"phase": "Running"}}, True),
        ({"metadata": {"namespace": "t", "name": "a"}, "status": {"phase": "Succeeded"}}, False),
        ({"metadata": {"namespace": "t", "name": "a", "ownerReferences": [{"kind": "DaemonSet"}]}}, False),
        ({"metadata": {"namespace": "t", "name": "a", "annotations": {"kubernetes.io/config.mirror": "x"}}}, False),
        ({"metadata": {"namespace": "t", "name": "a", "ownerReferences": [{"kind": "Job"}]}}, True),
    ],
)
def test_L15_whose_end_would_be_that_of_living_work(raw: dict[str, Any], counts: bool):
    assert _living(raw) == ("t/a" if counts else None)


def test_nothing_is_down_that_nobody_looked_at():
    assert down_in(None) == ()
