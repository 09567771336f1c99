"""By what a bad node is told, and whom it befalls (row A17)."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.activities.facts.nodes import CONDITIONS, Marks, NodeMark, on_marked
from holdfast.activities.facts.pods import pod_facts
from holdfast.model import FailureClass, Observation, StatusRule
from tests.activities.facts.test_snapshot import look
from tests.activities.shapes import ATTEMPT, NOW, component, condition, failed, planned, pod, stamp, time

ROW = pytest.mark.row
BAD = NodeMark("NodeMarkedForEviction", "label example.com/health=EVICT")


def node(*conditions: dict[str, Any], labels: dict[str, str] | None = None, taints: Any = None) -> dict[str, Any]:
    return {
        "metadata": {"name": "n", "labels": labels or {}},
        "spec": {"taints": taints},
        "status": {"conditions": list(conditions)},
    }


def state(kind: str, status: str = "True", **more: str) -> dict[str, Any]:
    return {"type": kind, "status": status, "lastTransitionTime": stamp(5), **more}


@ROW("A17", level="pure")
@ROW("L8", level="pure")
@pytest.mark.parametrize(
    ("bad", "reason", "message"),
    [
        (
            node(labels={"autopilot.ibm.com/gpuhealth": "EVICT"}),
            "NodeMarkedForEviction",
            "label autopilot.ibm.com/gpuhealth=EVICT",
        ),
        (
            node(taints=[{"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}]),
            "NodeTainted",
            "taint node.kubernetes.io/out-of-service=nodeshutdown",
        ),
        (
            node(state("CperHardwareErrorFatal", reason="CperFatal", message="memory\nbus")),
            "CperHardwareErrorFatal",
            "condition CperHardwareErrorFatal=True, CperFatal: memory bus",
        ),
        (
            node(state("AcceleratedHardwareReady", "False", reason="NvidiaXID79Error")),
            "AcceleratedHardwareReady",
            "condition AcceleratedHardwareReady=False, NvidiaXID79Error",
        ),
        (
            node(state("HardwareFailure", reason="Disk", message="sda")),
            "HardwareFailure",
            "condition HardwareFailure=True, Disk: sda",
        ),
    ],
)
def test_A17_a_mark_is_told_in_its_own_words(bad: dict[str, Any], reason: str, message: str):
    mark = Marks().of(bad)
    assert mark is not None
    assert (mark.reason, mark.message) == (reason, message)


@ROW("A17", level="pure")
@pytest.mark.parametrize(
    "good",
    [
        node(),
        {},
        node(labels={"autopilot.ibm.com/gpuhealth": "PASS"}),
        node(taints=[{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]),
        node(state("Ready", "Unknown"), state("KernelDeadlock"), state("MemoryPressure")),
        node(*(state(kind.partition("=")[0], "Unknown") for kind in CONDITIONS)),
        node(state("CperHardwareErrorFatal", "False"), state("AcceleratedHardwareReady", "True")),
        {"metadata": {"labels": "odd"}, "spec": {"taints": "odd"}, "status": {"conditions": [1, None]}},
    ],
)
def test_A17_other_troubles_of_a_node_are_no_mark(good: dict[str, Any]):
    assert Marks().of(good) is None


def test_marks_are_the_operators():
    marks = Marks(labels=("bad",), taints=("repair=now",), conditions=("Fan=Broken",))
    assert marks.of(node(labels={"bad": "whatever"})) is not None
    assert marks.of(node(taints=[{"key": "repair", "value": "later"}])) is None
    assert marks.of(node(taints=[{"key": "repair", "value": "now"}])) is not None
    assert marks.of(node(state("Fan", "Broken"))) is not None
    assert marks.of(node(labels={"autopilot.ibm.com/gpuhealth": "EVICT"})) is None
    assert Marks((), (), ()).of(node(state("CperHardwareErrorFatal"))) is None


def on(name: str, node: str, phase: str = "Running", **more: Any) -> dict[str, Any]:
    return pod(name, phase, node=node, **more)


def seen(*pods: dict[str, Any], **more: Any) -> Observation:
    return look(*pods, plan=(planned(pods=len(pods)),), marks={"bad": BAD}, **more)


@ROW("A17", level="pure")
@pytest.mark.parametrize("phase", ["Pending", "Running"])
def test_A17_a_pod_on_a_marked_node_is_a_hardware_failure_of_a_member(phase: str):
    (one,) = seen(on("b", "bad", phase), on("a", "bad", phase), on("c", "good", phase)).failures
    assert (one.cls, one.scope, one.node, one.subject) == (FailureClass.HARDWARE, "Member", "bad", "a")
    assert (one.reason, one.message, one.component) == (BAD.reason, BAD.message, "work")
    assert one.exit_code is None


@ROW("A17", level="pure")
def test_A17_however_many_pods_a_node_has_it_is_one_failure():
    many = [on(f"p{number:03d}", "bad") for number in range(200)]
    assert seen(*many).failures_total == 1


@ROW("A17", level="pure")
def test_A17_what_has_ended_or_goes_anyway_is_not_concerned():
    assert seen(on("a", "bad", "Succeeded"), on("b", "bad", deleting=True), on("c", "", "Pending")).failures == ()


@ROW("A17", level="pure")
def test_A17_a_pod_that_failed_there_is_the_nodes_fault_too_and_that_decides():
    first, second = seen(failed("a", node="bad")).failures
    assert (first.cls, second.cls) == (FailureClass.HARDWARE, FailureClass.APP)
    assert first.time <= second.time


@ROW("A17", level="pure")
def test_A17_a_complete_component_has_nothing_to_lose():
    plan = (planned(pods=2, status=StatusRule(complete=("Complete",))),)
    done = {"work": component(conditions=[condition("Complete")])}
    assert look(on("a", "bad"), plan=plan, marks={"bad": BAD}, objects=done).failures == ()
    assert look(on("a", "bad"), plan=plan, marks={"bad": BAD}).failures_total == 1


def test_two_looks_tell_the_same_time():
    """Else each would be news to the watch."""
    pods = [pod_facts(on("a", "bad"))]
    later = NOW.replace(year=NOW.year + 1)
    assert on_marked(pods, {"bad": BAD}, ATTEMPT, NOW) == on_marked(pods, {"bad": BAD}, ATTEMPT, later)
    timed = NodeMark("CperHardwareErrorFatal", "", time(5))
    (one,) = on_marked(pods, {"bad": timed}, ATTEMPT, later)
    assert one.time == timed.since
