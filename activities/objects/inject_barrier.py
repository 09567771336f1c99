"""What the pods that wait at a barrier get in addition: the files of their in-place restart agent. Their programs read
two of them: which attempt they are, and what they resume from (rows J24, J25).
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any, Final, cast

from holdfast import names
from holdfast.activities.kube.raw import mapping, mappings
from holdfast.model.spec.restart_agent import restart_agent

ORDERS_VOLUME: Final = "holdfast-in-place-restart"
MEMORY_VOLUME: Final = "holdfast-in-place-memory"
BARRIER_LIFTED_BY: Final = (names.ANNOTATION_IN_PLACE_ATTEMPT, names.ANNOTATION_RESTARTS_SEEN)
"""Annotations with which a pod's programs would start without the others."""


class BarrierProblem(ValueError):
    """The template does not allow what the agent needs at `path`."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(path, message)
        self.path = path
        self.message = message


def add_barrier(template: dict[str, Any], path: str, *, resumes: bool) -> None:
    """Give a pod's in-place restart agent its files, and all its containers the files for programs, in place.

    The agent reads the orders from the pod's annotations, and remembers in an emptyDir which attempt has run: both
    outlive its containers. A program reads the very file by which the agent has let it start, and with it the
    checkpoint to resume from, which was written before. An environment variable would not do, not even one that refers
    to the annotation: the kubelet may start a container with what it knew of the pod before it wrote these files.

    Args:
        template: The pod template.
        path: Its path, for errors.
        resumes: Whether its pods make checkpoints.

    Raises:
        BarrierProblem: if the template has something in the place of what is added.
    """
    annotations = mapping(mapping(template.get("metadata")).get("annotations"))
    for name in BARRIER_LIFTED_BY:
        if name in annotations:
            message = "expected none: it lets a pod's programs start, once all pods are there"
            raise BarrierProblem(f"{path}.metadata.annotations[{name}]", message)
    spec: dict[str, Any] = template["spec"]
    path = f"{path}.spec"
    agent = restart_agent(spec)
    shown = {**names.IN_PLACE_ORDERS}
    told = [{"name": names.ENV_IN_PLACE_ATTEMPT_FILE, "value": names.IN_PLACE_ATTEMPT_FILE}]
    if resumes:
        shown[PurePosixPath(names.IN_PLACE_RESUME_FILE).name] = names.ANNOTATION_RESUME_FROM
        told.append({"name": names.ENV_RESUME_FROM_FILE, "value": names.IN_PLACE_RESUME_FILE})
    items = [
        {"path": name, "fieldRef": {"fieldPath": f"metadata.annotations['{annotation}']"}}
        for name, annotation in shown.items()
    ]
    volumes: dict[str, dict[str, Any]] = {
        ORDERS_VOLUME: {"downwardAPI": {"items": items}},
        MEMORY_VOLUME: {"emptyDir": {}},
    }
    present = mappings(spec.get("volumes"))
    for name in volumes:
        if any(one.get("name") == name for one in present):
            raise BarrierProblem(f"{path}.volumes", f"expected none named {name!r}, which the agent needs")
    spec["volumes"] = [*present, *({"name": name, **source} for name, source in volumes.items())]
    for field in ("initContainers", "containers"):
        for index, container in enumerate(cast("list[dict[str, Any]]", spec.get(field) or [])):
            env: list[Any] = container.get("env") or []
            own = [mapping(one).get("name") for one in env]
            container["env"] = [*(one for one in told if one["name"] not in own), *env]
            mounts = {ORDERS_VOLUME: names.IN_PLACE_ORDERS_DIRECTORY}
            if field == "initContainers" and container.get("name") == agent:
                mounts[MEMORY_VOLUME] = names.IN_PLACE_MEMORY_DIRECTORY
            _mount(container, mounts, f"{path}.{field}[{index}].volumeMounts")


def _mount(container: dict[str, Any], mounts: dict[str, str], path: str) -> None:
    present: list[Any] = container.get("volumeMounts") or []
    for where in mounts.values():
        if any(mapping(one).get("mountPath") == where for one in present):
            raise BarrierProblem(path, f"expected none at {where}, where the agent's files are")
    container["volumeMounts"] = [*present, *({"name": name, "mountPath": where} for name, where in mounts.items())]
