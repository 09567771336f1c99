"""What the pods that wait at a barrier get in addition: the files of their in-place restart agent, of which their
programs read one: which attempt they are (row J24).
"""

from __future__ import annotations

from typing import Any, Final, cast

from holdfast import names
from holdfast.activities.kube.raw import mapping, mappings
from holdfast.model.spec.restart_agent import restart_agent

ORDERS_VOLUME: Final = "holdfast-in-place-restart"
MEMORY_VOLUME: Final = "holdfast-in-place-memory"


class BarrierProblem(ValueError):
    """The template does not allow what the agent needs at `path`."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(path, message)
        self.path = path
        self.message = message


def add_barrier(spec: dict[str, Any], path: str) -> None:
    """Give a pod's in-place restart agent its files, and all its containers the file with their attempt, in place.

    The agent reads the orders from the pod's annotations, and remembers in an emptyDir which attempt has run: both
    outlive its containers. A program reads the very file by which the agent has let it start. An environment variable
    would not do, not even one that refers to the annotation: the kubelet may start a container with what it knew of
    the pod before it wrote that file.

    Args:
        spec: The spec of the pod template.
        path: Its path, for errors.

    Raises:
        BarrierProblem: if the template has something in the place of what is added.
    """
    agent = restart_agent(spec)
    orders = [
        {"path": name, "fieldRef": {"fieldPath": f"metadata.annotations['{annotation}']"}}
        for name, annotation in names.IN_PLACE_ORDERS.items()
    ]
    volumes: dict[str, dict[str, Any]] = {
        ORDERS_VOLUME: {"downwardAPI": {"items": orders}},
        MEMORY_VOLUME: {"emptyDir": {}},
    }
    told = {"name": names.ENV_IN_PLACE_ATTEMPT_FILE, "value": names.IN_PLACE_ATTEMPT_FILE}
    present = mappings(spec.get("volumes"))
    for name in volumes:
        if any(one.get("name") == name for one in present):
            raise BarrierProblem(f"{path}.volumes", f"expected none named {name!r}, which the agent needs")
    spec["volumes"] = [*present, *({"name": name, **source} for name, source in volumes.items())]
    for field in ("initContainers", "containers"):
        for index, container in enumerate(cast("list[dict[str, Any]]", spec.get(field) or [])):
            env: list[Any] = container.get("env") or []
            if not any(mapping(one).get("name") == names.ENV_IN_PLACE_ATTEMPT_FILE for one in env):
                container["env"] = [told, *env]
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
