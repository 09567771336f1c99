"""Reads a pod: its state and, if it failed, the class of the failure. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, auto
from sys import intern
from typing import Any, Final

from holdfast import names
from holdfast.activities.facts.barrier import barrier_facts, waits_alone
from holdfast.activities.facts.objects import copy_of
from holdfast.activities.facts.scheduling import unscheduled
from holdfast.activities.kube.owners import Ref, controller_of
from holdfast.activities.kube.raw import mapping, mappings, one_line, time_of, version_of
from holdfast.model import DEADLINE_EXCEEDED, FailureClass, Reason

MESSAGE_MAXIMUM = 200

# Reasons in a pod's status or DisruptionTarget condition: its node is gone or going away.
_NODE_LOST = frozenset(
    {"NodeLost", "NodeShutdown", "Shutdown", "Terminated", "DeletionByPodGC", "DeletionByTaintManager"}
)
# Reasons there: it had to make room.
_DISPLACED = frozenset({"Preempting", "Preempted", "PreemptionByScheduler", "EvictionByEvictionAPI"})
# Reasons in its status: its kubelet did not admit it, so the application has not run.
_NOT_ADMITTED = frozenset({"UnexpectedAdmissionError", "NodeAffinity", "NodePorts", "AdmissionFailed", "Topology"})

# Reasons of a container: it could not be started, so the application has not run either.
_NOT_BEGUN = frozenset({"StartError", "ContainerCannotRun"})
# Reasons why a waiting container cannot be started, each with the one word for its cause: the kubelet alternates
# between some of them, and each change would be news.
_STUCK: Final[Mapping[str, str]] = {
    **dict.fromkeys(("ErrImagePull", "ImagePullBackOff", "RegistryUnavailable", "ImageInspectError"), "ErrImagePull"),
    **dict.fromkeys(("ErrImageNeverPull", "InvalidImageName", "SignatureValidationFailed"), "ErrImagePull"),
    "CreateContainerConfigError": "CreateContainerConfigError",
    **dict.fromkeys(("CreateContainerError", "RunContainerError", "PreCreateHookError"), "CreateContainerError"),
}
NOT_PREPARED: Final = "PodNotPrepared"
"""The reason of a pod whose node has not set up its volumes or network: none of its containers can start yet."""
PREPARATION: Final = timedelta(minutes=2)
"""How long a node may take for that: volumes take minutes to attach, and the kubelet itself waits as long."""


class PodState(Enum):
    """What a pod counts as. A pod that is being deleted counts only as terminating."""

    PENDING = auto()
    RUNNING = auto()
    SUCCEEDED = auto()
    FAILED = auto()
    TERMINATING = auto()


@dataclass(frozen=True, slots=True)
class PodFacts:
    """All that is needed of a pod: small enough to keep hundreds of thousands of them.

    The fields from `failure_class` to `waits_from` are set only for a pod that failed, that cannot start yet, or that
    was evicted, preempted or lost with its node and is being deleted.
    """

    uid: str
    name: str
    namespace: str
    workload_uid: str
    attempt: int
    component: str
    node: str
    state: PodState
    created: datetime | None
    revision: int
    failure_class: FailureClass = FailureClass.UNKNOWN
    reason: str = ""
    exit_code: int | None = None
    exit_codes: tuple[int, ...] = ()
    """The distinct exit codes of its failed containers, if there are several."""
    message: str = ""
    failure_time: datetime | None = None
    stuck_from: datetime | None = None
    """From when on a pod that its kubelet cannot start counts as stuck."""
    waits_from: datetime | None = None
    """From when on the wait of a pod without a node is worth reporting, once the scheduler has said why."""
    controller: Ref | None = None
    """Its controller, by its owner references."""
    restarted: bool = False
    """Whether it waits at its barrier, and was not asked to (row J24): its agent restarted it, or it is new."""
    ends_by: datetime | None = None
    """Until when it may take to end, if it is being deleted."""
    copy: int | None = None
    """The index of its component's copy that created it; None if the component has no copies."""


def pod_facts(raw: Mapping[str, Any]) -> PodFacts:
    """Return the facts of a pod from its JSON."""
    metadata: Mapping[str, Any] = raw["metadata"]
    labels = mapping(metadata.get("labels"))
    status = mapping(raw.get("status"))
    attempt = str(labels.get(names.LABEL_ATTEMPT, ""))
    state = _state(metadata, status)
    facts: dict[str, Any] = {
        "uid": metadata.get("uid", ""),
        "name": metadata.get("name", ""),
        # Values that a workload's pods share are kept once.
        "namespace": intern(str(metadata.get("namespace", ""))),
        "workload_uid": intern(str(labels.get(names.LABEL_WORKLOAD_UID, ""))),
        "attempt": int(attempt) if attempt.isdecimal() else 0,
        "component": intern(str(labels.get(names.LABEL_COMPONENT, ""))),
        "node": intern(str(mapping(raw.get("spec")).get("nodeName") or "")),
        "state": state,
        "created": time_of(metadata.get("creationTimestamp")),
        "revision": version_of(metadata),
        "controller": controller_of(raw),
        "ends_by": time_of(metadata.get("deletionTimestamp")),
        "copy": copy_of(raw),
    }
    at_barrier = barrier_facts(raw) if state in {PodState.PENDING, PodState.RUNNING} else None
    waits = waits_alone(at_barrier)
    if state is PodState.FAILED:
        facts |= _failure(raw, status)
    elif state is PodState.TERMINATING:
        facts |= _displaced(status)
    elif at_barrier is not None and waits:
        facts |= _restarted(raw, status, waits, at_barrier.since)
    elif state is PodState.PENDING and facts["node"]:
        facts |= _stuck(status, facts["created"])
    elif state is PodState.PENDING:
        facts |= unscheduled(raw)
    return PodFacts(**facts)


def _state(metadata: Mapping[str, Any], status: Mapping[str, Any]) -> PodState:
    if "deletionTimestamp" in metadata:
        return PodState.TERMINATING
    match status.get("phase"):
        case "Succeeded":
            return PodState.SUCCEEDED
        case "Failed":
            return PodState.FAILED
        case "Running" | "Unknown":  # Unknown is not failure: it was running when last heard of.
            return PodState.RUNNING
        case _:
            return PodState.PENDING


def _failure(raw: Mapping[str, Any], status: Mapping[str, Any]) -> dict[str, Any]:
    reason = str(status.get("reason") or "")
    message = str(status.get("message") or "")
    disruption = _condition(status, "DisruptionTarget")
    ended = list(_failed_containers(status, _sidecars(raw)))
    init, name, container = ended[0] if ended else (False, "", mapping(None))
    cls = _class(reason, message, str(disruption.get("reason") or ""))
    # An exit code that a signal from outside caused says nothing about the process.
    exited = cls in {FailureClass.APP, FailureClass.DEADLINE}
    codes = tuple(dict.fromkeys(int(one["exitCode"]) for _, _, one in ended)) if exited else ()
    if cls is FailureClass.APP:
        reason = str(container.get("reason") or reason or "Error")
        message = str(container.get("message") or message)
        if init:
            message = f"init container {name}: {message}" if message else f"init container {name}"
        if (init and not _has_begun(status)) or reason in _NOT_BEGUN:
            cls = FailureClass.LAUNCH
    else:
        reason = reason or str(disruption.get("reason") or "")
        message = message or str(disruption.get("message") or "")
    return {
        "failure_class": cls,
        "reason": intern(reason),
        "exit_code": codes[0] if codes else None,
        "exit_codes": codes if len(codes) > 1 else (),
        "message": intern(one_line(message, MESSAGE_MAXIMUM)),
        "failure_time": time_of(container.get("finishedAt"))
        or time_of(disruption.get("lastTransitionTime"))
        or time_of(_condition(status, "Ready", "False").get("lastTransitionTime")),
    }


def _displaced(status: Mapping[str, Any]) -> dict[str, Any]:
    """Return the failure of a pod that Kubernetes takes from its node; empty if a person or its controller ends it."""
    disruption = _condition(status, "DisruptionTarget")
    reason = str(disruption.get("reason") or "")
    if reason not in _NODE_LOST | _DISPLACED:
        return {}
    return {
        "failure_class": FailureClass.NODE_LOST,
        "reason": intern(reason),
        "message": intern(one_line(str(disruption.get("message") or ""), MESSAGE_MAXIMUM)),
        "failure_time": time_of(disruption.get("lastTransitionTime")),
    }


def _class(reason: str, message: str, disruption: str) -> FailureClass:
    if reason == DEADLINE_EXCEEDED:
        return FailureClass.DEADLINE
    if reason == "Evicted" and "exceed" in message.lower():
        return FailureClass.APP  # It used more than its own limit, and not merely more than others on a full node.
    if reason in _NODE_LOST | _DISPLACED | {"Evicted"} or disruption in _NODE_LOST | _DISPLACED:
        return FailureClass.NODE_LOST
    if disruption == "TerminationByKubelet":
        return FailureClass.NODE_LOST
    if reason in _NOT_ADMITTED or reason.startswith(("OutOf", "Topology")):
        return FailureClass.LAUNCH
    return FailureClass.APP


def _sidecars(raw: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of the sidecars, init containers that run beside the others until the kubelet ends the pod."""
    containers = mappings(mapping(raw.get("spec")).get("initContainers"))
    return frozenset(str(one.get("name")) for one in containers if one.get("restartPolicy") == "Always")


def _failed_containers(
    status: Mapping[str, Any], sidecars: Container[str]
) -> Iterator[tuple[bool, str, Mapping[str, Any]]]:
    """Yield the terminations with a non-zero exit code, of the containers first, then of the init containers.

    Each comes with whether it is an init container's, and with the container's name. Kubernetes does not judge a pod by
    the sidecars among its init containers, so rules do not either.
    """
    for field in ("containerStatuses", "initContainerStatuses"):
        for container in mappings(status.get(field)):
            terminated = mapping(mapping(container.get("state")).get("terminated"))
            if terminated.get("exitCode") and not (field.startswith("init") and str(container.get("name")) in sidecars):
                yield field == "initContainerStatuses", str(container.get("name", "")), terminated


def _has_begun(status: Mapping[str, Any]) -> bool:
    """Whether any container of a pod has started: its init containers have done their work then."""
    return any("waiting" not in mapping(one.get("state")) for one in mappings(status.get("containerStatuses")))


def _stuck(status: Mapping[str, Any], created: datetime | None) -> dict[str, Any]:
    """Return why a pod with a node does not start, and from when on it is stuck; empty while it starts normally.

    The failure time is its start, and the reason stays the same while it is stuck, so that a further try is no news.
    """
    since = time_of(status.get("startTime")) or created
    stuck: dict[str, Any] = {"failure_class": FailureClass.LAUNCH, "failure_time": since, "stuck_from": since}
    for field in ("initContainerStatuses", "containerStatuses"):
        for container in mappings(status.get(field)):
            init, name = field == "initContainerStatuses", str(container.get("name", ""))
            waiting = mapping(mapping(container.get("state")).get("waiting"))
            word = _STUCK.get(str(waiting.get("reason") or ""))
            if word is not None:
                message = f"container {name}: {waiting.get('message') or waiting.get('reason')}"
                return {**stuck, "reason": word, "message": intern(one_line(message, MESSAGE_MAXIMUM))}
            ended = _last_end(container)
            if init and ended.get("exitCode"):
                message = f"init container {name}"
                exit_code, reason = ended["exitCode"], str(ended.get("reason") or "Error")
                return {**stuck, "reason": reason, "exit_code": exit_code, "message": message}
    if _condition(status, "PodReadyToStartContainers", "False") and since is not None:
        message = "its volumes or its network are not there"
        return {**stuck, "reason": NOT_PREPARED, "message": message, "stuck_from": since + PREPARATION}
    return {}


def _last_end(container: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a container's last termination: the current one, or the one before its restart."""
    state = mapping(container.get("state"))
    return mapping(state.get("terminated")) or mapping(mapping(container.get("lastState")).get("terminated"))


def _restarted(raw: Mapping[str, Any], status: Mapping[str, Any], why: str, since: datetime | None) -> dict[str, Any]:
    """Return the failure of a pod that restarted in place on its own, while the kubelet still shows what ended."""
    ended = next(_failed_containers(status, _sidecars(raw)), None)
    container = ended[2] if ended is not None else mapping(None)
    return {
        "restarted": True,
        "failure_class": FailureClass.APP,
        "reason": Reason.POD_RESTARTED.value,
        "exit_code": int(container["exitCode"]) if container else None,
        "message": why,
        "failure_time": time_of(container.get("finishedAt")) or since,
    }


def _condition(status: Mapping[str, Any], kind: str, value: str = "True") -> Mapping[str, Any]:
    for condition in mappings(status.get("conditions")):
        if condition.get("type") == kind and condition.get("status") == value:
            return condition
    return mapping(None)
