"""What is read of a pod: its state, whose doing a failure was, its exit code, its time."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.activities.facts.pods import PodState, pod_facts
from holdfast.model import FailureClass
from tests.activities.shapes import condition, failed, pod, terminated, time

STATES: list[tuple[dict[str, Any], PodState]] = [
    (pod(phase="Pending"), PodState.PENDING),
    (pod(phase=""), PodState.PENDING),
    (pod(phase="Running"), PodState.RUNNING),
    (pod(phase="Unknown"), PodState.RUNNING),
    (pod(phase="Succeeded"), PodState.SUCCEEDED),
    (pod(phase="Failed"), PodState.FAILED),
    (pod(phase="Running", deleting=True), PodState.TERMINATING),
    (pod(phase="Failed", deleting=True), PodState.TERMINATING),
    (pod(phase="Succeeded", deleting=True), PodState.TERMINATING),
]


@pytest.mark.parametrize(("raw", "state"), STATES)
def test_state(raw: dict[str, Any], state: PodState):
    assert pod_facts(raw).state is state


DISRUPTION = "DisruptionTarget"
CLASSES: list[tuple[str, dict[str, Any], FailureClass, str, int | None]] = [
    ("exit code", {"containerStatuses": [terminated(3)]}, FailureClass.APP, "Error", 3),
    ("out of memory", {"containerStatuses": [terminated(137, reason="OOMKilled")]}, FailureClass.APP, "OOMKilled", 137),
    ("nothing said", {}, FailureClass.APP, "Error", None),
    ("own limit", {"reason": "Evicted", "message": "Pod ephemeral local storage usage exceeds the total limit"},
     FailureClass.APP, "Evicted", None),
    ("full node", {"reason": "Evicted", "message": "The node was low on resource: memory."},
     FailureClass.NODE_LOST, "Evicted", None),
    ("node shut down", {"reason": "Terminated", "message": "imminent node shutdown"},
     FailureClass.NODE_LOST, "Terminated", None),
    ("node shut down, older", {"reason": "NodeShutdown"}, FailureClass.NODE_LOST, "NodeShutdown", None),
    ("node lost", {"reason": "NodeLost"}, FailureClass.NODE_LOST, "NodeLost", None),
    ("taint", {"conditions": [condition(DISRUPTION, reason="DeletionByTaintManager")],
               "containerStatuses": [terminated(143)]}, FailureClass.NODE_LOST, "DeletionByTaintManager", None),
    ("node object gone", {"conditions": [condition(DISRUPTION, reason="DeletionByPodGC")]},
     FailureClass.NODE_LOST, "DeletionByPodGC", None),
    ("preempted", {"conditions": [condition(DISRUPTION, reason="PreemptionByScheduler")]},
     FailureClass.NODE_LOST, "PreemptionByScheduler", None),
    ("evicted by request", {"conditions": [condition(DISRUPTION, reason="EvictionByEvictionAPI")]},
     FailureClass.NODE_LOST, "EvictionByEvictionAPI", None),
    ("critical pod", {"reason": "Preempting", "conditions": [condition(DISRUPTION, reason="TerminationByKubelet")]},
     FailureClass.NODE_LOST, "Preempting", None),
    ("disruption that did not hold", {"conditions": [condition(DISRUPTION, "False", "DeletionByTaintManager")],
                                      "containerStatuses": [terminated(4)]}, FailureClass.APP, "Error", 4),
    ("not admitted", {"reason": "OutOfcpu"}, FailureClass.LAUNCH, "OutOfcpu", None),
    ("wrong node", {"reason": "NodeAffinity"}, FailureClass.LAUNCH, "NodeAffinity", None),
    ("device plugin", {"reason": "UnexpectedAdmissionError"}, FailureClass.LAUNCH, "UnexpectedAdmissionError", None),
    ("too long", {"reason": "DeadlineExceeded", "containerStatuses": [terminated(137)]},
     FailureClass.DEADLINE, "DeadlineExceeded", 137),
]  # fmt: skip


@pytest.mark.parametrize(
    ("status", "cls", "reason", "exit_code"), [case[1:] for case in CLASSES], ids=[case[0] for case in CLASSES]
)
def test_class(status: dict[str, Any], cls: FailureClass, reason: str, exit_code: int | None):
    facts = pod_facts(pod(phase="Failed", **status))
    assert (facts.failure_class, facts.reason, facts.exit_code) == (cls, reason, exit_code)


@pytest.mark.row("L22", level="pure")
@pytest.mark.parametrize("phase", ["Running", "Failed"])
def test_L22_a_pod_that_kubernetes_takes_from_its_node_is_lost_from_its_deletion_on(phase: str):
    """An eviction and a preemption delete it: it is terminating until it is gone, and never Failed."""
    taken = condition(DISRUPTION, reason="EvictionByEvictionAPI", second=4)
    facts = pod_facts(pod(phase=phase, deleting=True, conditions=[taken], containerStatuses=[terminated(143)]))
    assert (facts.state, facts.failure_class) == (PodState.TERMINATING, FailureClass.NODE_LOST)
    assert (facts.reason, facts.exit_code, facts.failure_time) == ("EvictionByEvictionAPI", None, time(4))


@pytest.mark.parametrize("conditions", [[], [condition(DISRUPTION, "False", "EvictionByEvictionAPI")]])
def test_a_pod_that_somebody_deletes_tells_no_failure(conditions: list[dict[str, Any]]):
    facts = pod_facts(pod(phase="Running", deleting=True, conditions=conditions))
    assert (facts.state, facts.reason, facts.failure_time) == (PodState.TERMINATING, "", None)


def test_exit_code_is_the_first_that_is_not_zero_of_the_containers():
    raw = pod(phase="Failed", containerStatuses=[terminated(0), terminated(2), terminated(3)],
              initContainerStatuses=[terminated(9)])  # fmt: skip
    assert pod_facts(raw).exit_code == 2


def test_exit_code_of_an_init_container_where_no_container_has_one():
    raw = pod(phase="Failed", containerStatuses=[{"name": "main", "state": {"waiting": {}}}],
              initContainerStatuses=[terminated(0), terminated(9)])  # fmt: skip
    assert pod_facts(raw).exit_code == 9


def test_time_is_the_containers_end_then_the_disruption_then_readiness_then_none():
    ready = condition("Ready", "False", second=3)
    disruption = condition(DISRUPTION, reason="DeletionByPodGC", second=4)
    assert pod_facts(
        pod(phase="Failed", conditions=[ready, disruption], containerStatuses=[terminated(1, 9)])
    ).failure_time == time(9)
    assert pod_facts(pod(phase="Failed", conditions=[ready, disruption])).failure_time == time(4)
    assert pod_facts(pod(phase="Failed", conditions=[ready])).failure_time == time(3)
    assert pod_facts(pod(phase="Failed")).failure_time is None


def test_message_is_one_short_line():
    raw = pod(phase="Failed", containerStatuses=[terminated(1, message="two\n  lines " + "x" * 500)])
    message = pod_facts(raw).message
    assert message.startswith("two lines xxx")
    assert len(message) == 200


def test_a_pod_that_did_not_fail_tells_no_failure():
    facts = pod_facts(pod(phase="Running", containerStatuses=[terminated(1)]))
    assert (facts.reason, facts.exit_code, facts.failure_time) == ("", None, None)


def test_identity():
    facts = pod_facts(failed("worker-3", of="work", attempt=7, version=99))
    assert (facts.name, facts.uid, facts.namespace, facts.component) == ("worker-3", "worker-3-uid", "ns", "work")
    assert (facts.attempt, facts.node, facts.revision) == (7, "node-7", 99)


@pytest.mark.parametrize(
    "raw",
    [
        {"metadata": {}},
        {"metadata": {"name": "p", "labels": None, "resourceVersion": "opaque"}, "status": None, "spec": None},
        {"metadata": {"labels": {"holdfast.dev/attempt": "x"}}, "status": {"phase": "Failed", "conditions": "none"}},
        {
            "metadata": {},
            "status": {"phase": "Failed", "containerStatuses": [None, 3, {"state": {"terminated": None}}]},
        },
    ],
)
def test_a_strange_pod_is_read_as_far_as_it_goes(raw: dict[str, Any]):
    facts = pod_facts(raw)
    assert (facts.attempt, facts.revision) == (0, 0)
