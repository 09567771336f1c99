"""The document of evidence: what the API server and the logs tell of pods that are about to be deleted. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from holdfast.activities.kube.raw import mapping, mappings, one_line

LINES_MAXIMUM: Final = 200
"""The last lines of each log that are kept."""
LOG_MAXIMUM: Final = 16 * 1024
"""Characters of each log that are kept, the last ones."""
CONTAINERS_MAXIMUM: Final = 8
"""Containers of a pod that are told of; those that have failed first."""
MESSAGE_MAXIMUM: Final = 4096
"""Characters of a termination message: the limit of Kubernetes."""
_SHORT: Final = 512
_CONDITIONS_MAXIMUM: Final = 32
_DEVICES_MAXIMUM: Final = 64
_STATUSES: Final = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")


@dataclass(frozen=True, slots=True)
class LogWanted:
    """A log to read: of one instance of a container."""

    pod: str
    uid: str
    container: str
    previous: bool
    """Whether it is the instance before the container's last restart."""


def pod_evidence(pod: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a pod's status tells: its state, its containers' ends, its devices' health."""
    metadata, status = mapping(pod["metadata"]), mapping(pod.get("status"))
    return _without_empty(
        {
            "name": metadata["name"],
            "uid": metadata["uid"],
            "node": mapping(pod.get("spec")).get("nodeName"),
            "phase": status.get("phase"),
            "reason": status.get("reason"),
            "message": one_line(status.get("message"), _SHORT),
            "conditions": _conditions(status),
            "containers": [_container(one) for one in _containers(status)],
        }
    )


def node_evidence(node: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a node's status tells of its health."""
    metadata = mapping(node["metadata"])
    return {"name": metadata["name"], "conditions": _conditions(mapping(node.get("status")))}


def logs_wanted(pod: Mapping[str, Any]) -> Iterator[LogWanted]:
    """Yield the logs of a pod that there are: of each container that has started, and of its instance before."""
    metadata = mapping(pod["metadata"])
    for one in _containers(mapping(pod.get("status"))):
        state, name = mapping(one.get("state")), str(one.get("name"))
        restarted = bool(mapping(mapping(one.get("lastState")).get("terminated")))
        if restarted:
            yield LogWanted(metadata["name"], metadata["uid"], name, previous=True)
        # A container that waits to be restarted has no other log than that.
        if "running" in state or "terminated" in state:
            yield LogWanted(metadata["name"], metadata["uid"], name, previous=False)


def document(
    about: Mapping[str, Any],
    pods: Sequence[Mapping[str, Any]],
    nodes: Sequence[Mapping[str, Any]],
    logs: Mapping[LogWanted, Sequence[str]],
    stacks: Mapping[str, Sequence[str]],
    missing: Sequence[str],
) -> bytes:
    """Return the document, as JSON.

    Args:
        about: what it is of: workload, attempt, time, the reason of the removal.
        pods: as `pod_evidence` returns them, those that decided first.
        nodes: as `node_evidence` returns them.
        logs: the last lines of each log that was read.
        stacks: the lines of the stacks of a pod's program, by the pod's uid.
        missing: what could not be read, and why.
    """
    told = [{"pod": one.pod, "uid": one.uid, "container": one.container, "previous": one.previous} for one in logs]
    whole: dict[str, Any] = {"version": 1, **about, "pods": pods, "nodes": nodes}
    whole["logs"] = [{**one, "lines": list(lines)} for one, lines in zip(told, logs.values(), strict=True)]
    whole["stacks"] = [{"uid": uid, "lines": list(lines)} for uid, lines in stacks.items()]
    whole["missing"] = list(missing)
    return json.dumps(whole, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")


def _containers(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the statuses of a pod's containers, at most so many: those that failed first."""
    found = [one for key in _STATUSES for one in mappings(status.get(key))]
    if len(found) <= CONTAINERS_MAXIMUM:
        return found
    return sorted(found, key=lambda one: not _has_failed(one))[:CONTAINERS_MAXIMUM]


def _has_failed(container: Mapping[str, Any]) -> bool:
    ends = (mapping(mapping(container.get(key)).get("terminated")) for key in ("state", "lastState"))
    return any(end.get("exitCode") for end in ends)


def _container(status: Mapping[str, Any]) -> dict[str, Any]:
    devices = [
        {"device": one_line(entry.get("name"), _SHORT), "id": one_line(each.get("resourceID"), _SHORT)}
        | {"health": one_line(each.get("health"), _SHORT)}
        for entry in mappings(status.get("allocatedResourcesStatus"))
        for each in mappings(entry.get("resources"))
    ]
    return _without_empty(
        {
            "name": status.get("name"),
            "restarts": status.get("restartCount"),
            "state": _state(mapping(status.get("state"))),
            "previous": _state(mapping(status.get("lastState"))),
            "devices": devices[:_DEVICES_MAXIMUM],
        }
    )


def _state(state: Mapping[str, Any]) -> dict[str, Any]:
    for name in ("terminated", "waiting", "running"):
        if name in state:
            told = mapping(state[name])
            kept = {key: told.get(key) for key in ("exitCode", "signal", "reason", "startedAt", "finishedAt")}
            message = str(told.get("message") or "")[:MESSAGE_MAXIMUM]
            return {"state": name, **_without_empty({**kept, "message": message}, keep=("exitCode",))}
    return {}


def _conditions(status: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        _without_empty(
            {
                "type": one_line(one.get("type"), _SHORT),
                "status": one_line(one.get("status"), _SHORT),
                "reason": one_line(one.get("reason"), _SHORT),
                "message": one_line(one.get("message"), _SHORT),
                "since": one_line(one.get("lastTransitionTime"), _SHORT),
            }
        )
        for one in mappings(status.get("conditions"))[:_CONDITIONS_MAXIMUM]
    ]


def _without_empty(fields: Mapping[str, Any], keep: Sequence[str] = ()) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value or (name in keep and value is not None)}
