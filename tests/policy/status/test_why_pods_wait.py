"""`explain` says why pods wait, in the words of whoever holds them up: the scheduler, a kubelet, a quota (row D34)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast.activities.facts.objects import object_facts
from holdfast.activities.facts.pods import pod_facts
from holdfast.activities.facts.snapshot import summarize
from holdfast.model import Observation, PodCounts, StatusRule
from holdfast.policy.status.explain import explain_of
from holdfast.policy.values.events import Observed
from holdfast.worker.watch.facts import Facts, Urgency, facts_of, urgency
from tests.activities.shapes import NOW, OWNER, UID, component, condition, owner, planned, pod
from tests.policy.lives.life import Life

D34 = pytest.mark.row("D34", level="pure")
PREEMPTION = "preemption: 0/8 nodes are available: 8 No preemption victims found for incoming pod."


def unscheduled(name: str, message: str, *requests: dict[str, str], reason: str = "Unschedulable") -> dict[str, Any]:
    """A pod as the API server has it, which the scheduler has not found a node for."""
    raw = pod(name, "Pending", attempt=1, node="", conditions=[condition("PodScheduled", "False", reason, message)])
    raw["spec"] = {
        "containers": [{"name": f"c{at}", "resources": {"requests": one}} for at, one in enumerate(requests)]
    }
    return raw


def waiting_container(name: str, reason: str, message: str) -> dict[str, Any]:
    container = {"name": "main", "state": {"waiting": {"reason": reason, "message": message}}}
    return pod(name, "Pending", attempt=1, containerStatuses=[container], startTime="2026-01-01T11:00:02Z")


def seen_of(*pods: dict[str, Any], **more: Any) -> Observation:
    plan = (planned("main", pods=2, status=StatusRule(complete=("Complete",), failed=("Failed",))),)
    return summarize(
        workload_uid=UID,
        attempt=1,
        owner_uid=OWNER,
        plan=plan,
        anchor=None,
        owner=object_facts(owner()),
        objects={"main": object_facts(component("main-0"))},
        pods=[
            pod_facts(one | {"metadata": one["metadata"] | {"labels": one["metadata"]["labels"] | LABELS}})
            for one in pods
        ],
        at=NOW,
        **more,
    )


LABELS = {"holdfast.dev/component": "main"}


def why(*pods: dict[str, Any], **more: Any) -> str:
    """What an explanation says of a workload whose pods are these."""
    life = Life().settle()
    seen = seen_of(*pods, **more)
    mine = life.look()
    known = mine.components[next(iter(mine.components))]
    views = {next(iter(mine.components)): known.model_copy(update={"pods": PodCounts(expected=2, pending=len(pods))})}
    seen = seen.model_copy(
        update={
            "workload_uid": mine.workload_uid,
            "owner_uid": mine.owner_uid,
            "revision": mine.revision + 1,
            "at": life.now,
            "components": views,
        }
    )
    life.tell(Observed(seen))
    return explain_of(life.spec, life.state, life.now).why


@D34
def test_D34_unschedulable_pods_are_counted_with_what_is_lacking_and_what_each_asks_for() -> None:
    message = f"0/8 nodes are available: 8 Insufficient cpu. {PREEMPTION}"
    said = why(unscheduled("a", message, {"cpu": "5000"}), unscheduled("b", message, {"cpu": "5000"}))
    assert said == "2 pods unschedulable: 0/8 nodes have enough cpu (each asks for 5000)"


@D34
def test_D34_several_reasons_are_told_in_kubernetes_own_words_without_its_preemption() -> None:
    message = (
        "0/8 nodes are available: 1 node(s) had untolerated taint {gpu: yes}, 2 node(s) didn't match Pod's node "
        f"affinity/selector, 5 Insufficient memory. {PREEMPTION}"
    )
    said = why(unscheduled("a", message, {"memory": "1Gi"}, {"memory": "512Mi"}))
    assert said == (
        "1 pod unschedulable: 0/8 nodes are available: 1 node(s) had untolerated taint {gpu: yes}, 2 node(s) didn't "
        "match Pod's node affinity/selector, 5 Insufficient memory (each asks for 1536Mi)"
    )


@D34
@pytest.mark.parametrize(
    "words",
    [
        "pod has unbound immediate PersistentVolumeClaims",
        'persistentvolumeclaim "data" not found',
        "8 node(s) didn't match Pod's node affinity/selector",
        "8 node(s) had volume node affinity conflict",
    ],
)
def test_D34_volumes_and_node_affinity_are_named(words: str) -> None:
    assert words in why(unscheduled("a", f"0/8 nodes are available: {words}. {PREEMPTION}", {"cpu": "1"}))


REQUESTS = (
    ({"containers": [{"cpu": "4"}], "initContainers": [{"cpu": "1", "always": True}]}, "5"),
    ({"containers": [{"cpu": "1"}], "initContainers": [{"cpu": "3"}]}, "3"),
    ({"containers": [{"cpu": "1"}], "initContainers": [{"cpu": "1", "always": True}, {"cpu": "3"}]}, "4"),
    ({"containers": [{"cpu": "1"}], "initContainers": [{"cpu": "3"}, {"cpu": "1", "always": True}]}, "3"),
    ({"containers": [{}], "pod": "5000", "overhead": "1"}, "5001"),
    ({"containers": [{"cpu": "2"}], "pod": "6"}, "6"),
    ({"containers": [{"cpu": "2"}], "overhead": "500m"}, "2500m"),
)


@D34
@pytest.mark.parametrize(("asked", "told"), REQUESTS)
def test_D34_a_pod_asks_for_what_the_scheduler_counts(asked: dict[str, Any], told: str) -> None:
    raw = unscheduled("a", "0/8 nodes are available: 8 Insufficient cpu.")
    for field in ("containers", "initContainers"):
        raw["spec"][field] = [
            {"resources": {"requests": {key: one[key] for key in ("cpu",) if key in one}}}
            | ({"restartPolicy": "Always"} if one.get("always") else {})
            for one in asked.get(field, [])
        ]
    if "pod" in asked:
        raw["spec"]["resources"] = {"requests": {"cpu": asked["pod"]}}
    if "overhead" in asked:
        raw["spec"]["overhead"] = {"cpu": asked["overhead"]}
    assert why(raw) == f"1 pod unschedulable: 0/8 nodes have enough cpu (each asks for {told})"


@D34
def test_D34_gates_are_named() -> None:
    raw = unscheduled("a", "Scheduling is blocked due to non-empty scheduling gates", reason="SchedulingGated")
    raw["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/admission"}]
    assert why(raw) == "1 pod held by scheduling gates: kueue.x-k8s.io/admission"


@D34
@pytest.mark.parametrize("reason", ["ErrImagePull", "ImagePullBackOff"])
def test_D34_images_that_cannot_be_pulled_are_named(reason: str) -> None:
    text = 'Back-off pulling image "registry/none:1"'
    said = why(waiting_container("a", reason, text), waiting_container("b", reason, text))
    assert said.startswith("2 pods cannot pull an image: ")
    assert text in said


@D34
def test_D34_what_only_waits_for_a_moment_is_not_told() -> None:
    raw = unscheduled("a", "0/8 nodes are available: 8 Insufficient cpu.", {"cpu": "1"})
    late = NOW - timedelta(seconds=2)
    raw["status"]["conditions"][0]["lastTransitionTime"] = late.strftime("%Y-%m-%dT%H:%M:%SZ")
    assert not seen_of(raw).waiting


@D34
def test_D34_the_groups_stay_small_however_many_pods_wait() -> None:
    many = [unscheduled(f"p{i}", f"0/{i} nodes are available: {i} {'x' * 900}", {"cpu": "1"}) for i in range(500)]
    few = seen_of(*many[:2])
    assert len(seen_of(*many).model_dump_json()) - len(few.model_dump_json()) < 100
    assert len(few.model_dump_json()) < 3000


@D34
def test_D34_a_workflow_is_woken_by_a_new_group_and_by_no_pod_or_number_more() -> None:
    def facts(*pods: dict[str, Any]) -> Facts:
        return facts_of(seen_of(*pods))

    one = facts(*(unscheduled(each, "0/8 nodes are available: 8 Insufficient cpu.", {"cpu": "1"}) for each in "ab"))
    two = facts(*(unscheduled(each, "0/9 nodes are available: 9 Insufficient cpu.", {"cpu": "1"}) for each in "bc"))
    assert one.digest() == two.digest(), "neither which pods, nor how many, nor how many nodes"
    other = facts(*(unscheduled(each, "0/8 nodes are available: 8 Too many pods.", {"cpu": "1"}) for each in "ab"))
    assert one.digest() != other.digest()
    none = facts(*(pod(each, "Pending", attempt=1, node="") for each in "ab"))
    assert none.admitted
    assert urgency(none, one) is Urgency.SOON
    assert urgency(one, other) is Urgency.LAZY, "at most one signal in 45 s, however often the reasons change"
    assert urgency(one, none) is Urgency.LAZY


@D34
def test_D34_pods_that_a_quota_or_a_webhook_keeps_away_are_counted() -> None:
    words = 'Error creating: pods "main-0-x7" is forbidden: exceeded quota: team, requested: pods=1, used: pods=4'
    said = why(refused={"main": words})
    assert said == f"2 pods not created: {words}"
