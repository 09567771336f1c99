"""Pods that their kubelets cannot start: by what it is told, from when on, and in one word however often (row L16)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast.activities.facts.pods import NOT_PREPARED, PREPARATION, pod_facts
from holdfast.activities.facts.unprepared import ASKED_MAXIMUM, with_event_reasons
from holdfast.activities.kube.client import Forbidden
from holdfast.model import FailureClass, Scope
from tests.activities.facts.test_snapshot import look
from tests.activities.shapes import ATTEMPT, NOW, condition, pod, stamp, terminated, time

ROW = pytest.mark.row
STARTED: dict[str, Any] = {"startTime": stamp(3)}
UNPREPARED: dict[str, Any] = {**STARTED, "conditions": [condition("PodReadyToStartContainers", "False")]}


def waits(reason: str, message: str = "", name: str = "main") -> dict[str, Any]:
    return {"name": name, "state": {"waiting": {"reason": reason, "message": message}}}


def pending(name: str = "p", **status: Any) -> dict[str, Any]:
    return pod(name, "Pending", **{**STARTED, **status})


@ROW("L16", level="pure")
@pytest.mark.parametrize(
    ("reason", "word"),
    [
        ("ErrImagePull", "ErrImagePull"),
        ("ImagePullBackOff", "ErrImagePull"),
        ("ErrImageNeverPull", "ErrImagePull"),
        ("InvalidImageName", "ErrImagePull"),
        ("CreateContainerConfigError", "CreateContainerConfigError"),
        ("CreateContainerError", "CreateContainerError"),
        ("RunContainerError", "CreateContainerError"),
    ],
)
@pytest.mark.parametrize("field", ["containerStatuses", "initContainerStatuses"])
def test_L16_a_container_that_cannot_be_begun(reason: str, word: str, field: str):
    status: dict[str, Any] = {field: [waits(reason, "no such\nthing")]}
    seen = look(pending("p", **status))
    (one,) = seen.stuck
    assert (one.cls, one.scope, one.reason, one.stuck) == (FailureClass.LAUNCH, Scope.MEMBER, word, True)
    assert (one.subject, one.node, one.time) == ("p", "node-7", time(3))
    assert one.message == "container main: no such thing"
    assert seen.failures == (), "it may come right yet"


@ROW("L16", level="pure")
def test_L16_to_and_fro_between_pull_and_back_off_is_the_same_failure():
    first, then = (
        look(pending(containerStatuses=[waits(reason)])).stuck[0].model_copy(update={"message": ""})
        for reason in ("ErrImagePull", "ImagePullBackOff")
    )
    assert first == then


@ROW("L16", level="pure")
@pytest.mark.parametrize(
    "state",
    [
        {"state": terminated(3)["state"]},
        {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": terminated(3)["state"]},
        {"state": {"running": {}}, "lastState": terminated(3)["state"]},
    ],
)
def test_L16_an_init_container_that_is_begun_again_is_stuck_until_it_succeeds(state: dict[str, Any]):
    main = waits("PodInitializing")
    (one,) = look(pending(initContainerStatuses=[{"name": "fetch", **state}], containerStatuses=[main])).stuck
    assert (one.cls, one.exit_code, one.stuck) == (FailureClass.LAUNCH, 3, True)
    assert one.sentence() == "p exited 3 on node-7: init container fetch"
    done = {"name": "fetch", "state": terminated(0)["state"], "lastState": terminated(3)["state"]}
    assert look(pending(initContainerStatuses=[done], containerStatuses=[main])).stuck == ()


@ROW("L16", level="pure")
@pytest.mark.parametrize(
    "raw",
    [
        pending(),
        pending(containerStatuses=[waits("ContainerCreating")]),
        pending(containerStatuses=[waits("PodInitializing")]),
        pod("p", "Pending", node="", containerStatuses=[waits("ErrImagePull")]),
        pod("p", "Running", containerStatuses=[waits("ImagePullBackOff"), {"name": "other", "state": {"running": {}}}]),
        pod("p", "Pending", deleting=True, containerStatuses=[waits("ErrImagePull")]),
    ],
    ids=["new", "creating", "initializing", "no-node", "runs", "going"],
)
def test_L16_one_that_is_on_its_way_or_has_run_is_not_stuck(raw: dict[str, Any]):
    assert look(raw).stuck == ()


@ROW("L16", level="pure")
def test_L16_a_node_that_prepares_no_volume_has_two_minutes():
    raw = pending(**UNPREPARED, containerStatuses=[waits("ContainerCreating")])
    late = time(3) + PREPARATION
    assert look(raw, at=late - timedelta(seconds=1)).stuck == ()
    (one,) = look(raw, at=late).stuck
    assert (one.reason, one.node, one.time) == (NOT_PREPARED, "node-7", time(3))
    ready = pending(conditions=[condition("PodReadyToStartContainers")], containerStatuses=[waits("ContainerCreating")])
    assert look(ready).stuck == (), "a large image is being pulled"


@ROW("L16", level="pure")
def test_L16_an_init_container_of_a_failed_pod_is_a_failed_launch():
    main = waits("PodInitializing")
    raw = pod("p", "Failed", initContainerStatuses=[terminated(9)], containerStatuses=[main])
    facts = pod_facts(raw)
    assert (facts.failure_class, facts.exit_code, facts.message) == (FailureClass.LAUNCH, 9, "init container main")
    assert look(raw).stuck == ()


@ROW("L16", level="pure")
@pytest.mark.parametrize("reason", ["StartError", "ContainerCannotRun"])
def test_L16_a_container_that_could_not_be_begun_has_not_run(reason: str):
    facts = pod_facts(pod("p", "Failed", containerStatuses=[terminated(128, reason=reason)]))
    assert (facts.failure_class, facts.exit_code) == (FailureClass.LAUNCH, 128)


@ROW("L17", level="pure")
def test_L17_a_sidecar_that_failed_beside_what_ran_is_the_applications():
    raw = pod("p", "Failed", initContainerStatuses=[terminated(9)], containerStatuses=[terminated(0)])
    assert pod_facts(raw).failure_class is FailureClass.APP


def test_sixteen_stuck_pods_travel_at_most():
    seen = look(*(pending(f"p{index:02d}", containerStatuses=[waits("ErrImagePull")]) for index in range(40)))
    assert [one.subject for one in seen.stuck] == [f"p{index:02d}" for index in range(16)]


class Events:
    """An API server that knows Events alone."""

    def __init__(self, *items: dict[str, Any], forbidden: bool = False) -> None:
        self.items, self.forbidden, self.asked = items, forbidden, list[str]()

    async def list(self, api_version: str, kind: str, namespace: str, *, fields: str) -> dict[str, Any]:
        assert (api_version, kind, namespace) == ("v1", "Event", "ns")
        self.asked.append(fields)
        if self.forbidden:
            raise Forbidden(403, "Forbidden", "no")
        return {"items": list(self.items)}


def event(reason: str, message: str, second: int) -> dict[str, Any]:
    return {"reason": reason, "message": message, "lastTimestamp": stamp(second)}


@ROW("L16", level="pure")
async def test_L16_the_kubelets_last_word_says_why_a_pod_is_not_prepared():
    kube: Any = Events(
        event("FailedMount", 'secret "a" not found', 5),
        event("FailedMount", 'secret "b"\nnot found', 9),
        event("BackOff", "something else", 30),
    )
    (one,) = await with_event_reasons(kube, [pod_facts(pending(**UNPREPARED))], ATTEMPT, NOW)
    assert (one.reason, one.message) == ("FailedMount", 'secret "b" not found')
    assert kube.asked == ["involvedObject.uid=p-uid,type=Warning"]


async def test_what_cannot_be_asked_is_left_as_it_is_and_few_are_asked():
    pods = [pod_facts(pending(f"p{index}", **UNPREPARED)) for index in range(9)]
    forbidden: Any = Events(forbidden=True)
    assert await with_event_reasons(forbidden, pods, ATTEMPT, NOW) == pods
    silent: Any = Events()
    assert await with_event_reasons(silent, pods, ATTEMPT, NOW) == pods
    assert len(silent.asked) == ASKED_MAXIMUM
    assert await with_event_reasons(silent, pods, ATTEMPT, time(4)) == pods
    assert await with_event_reasons(silent, pods, ATTEMPT + 1, NOW) == pods
    assert len(silent.asked) == ASKED_MAXIMUM, "neither too early nor for another attempt"
