"""Adds staged data sets to a pod template: a volume for each, read-only in every container (row L14)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from holdfast.activities.data.cache import data_path
from holdfast.model.calls.cluster import DataVolume
from holdfast.model.spec.mount import taken_in

if TYPE_CHECKING:
    from holdfast.activities.data.settings import Data


class DataProblem(ValueError):
    """The template, or this worker, does not allow what has to be added at `path`."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(path, message)
        self.path = path
        self.message = message


@dataclass(frozen=True, slots=True)
class DataPlace:
    """Where pods find the data sets of their namespace, and no others (row X10)."""

    host_path: str = ""
    """The namespace's folder of the cache, on nodes."""
    claim: str = ""
    """The claim, in the namespace, that holds this folder instead."""


def place_of(data: Data | None, namespace: str) -> DataPlace | None:
    """Return where pods of a namespace find the cache of a worker; None if it stages nothing."""
    if data is None:
        return None
    return DataPlace(f"{data.host_path}/{namespace}" if data.host_path else "", data.claim)


def add_data(spec: dict[str, Any], data: Sequence[DataVolume], place: DataPlace | None, path: str) -> None:
    """Add data sets to a pod's template.

    Raises:
        DataProblem: if something in the template conflicts with them, or this worker has no place for data sets.
    """
    if data and place is None:
        raise DataProblem(
            path, "this worker has no place for data sets: its operator gives it one (setting `data_directory`)"
        )
    for one in data:
        assert place is not None
        taken = taken_in(spec, one.volume, one.path)
        if taken:
            raise DataProblem(path, f"{taken} of a data set")
        where = data_path(one.digest)
        mount: dict[str, Any] = {"name": one.volume, "mountPath": one.path, "readOnly": True}
        if place.claim:
            volume: dict[str, Any] = {"persistentVolumeClaim": {"claimName": place.claim, "readOnly": True}}
            mount["subPath"] = where
        else:
            # If a node lacks the directory, the kubelet must not create an empty one.
            volume = {"hostPath": {"path": f"{place.host_path}/{where}", "type": "Directory"}}
        _append(spec, "volumes", {"name": one.volume, **volume})
        for field in ("initContainers", "containers"):
            for container in _containers(spec, field):
                _append(container, "volumeMounts", mount)


def _containers(spec: dict[str, Any], field: str) -> list[dict[str, Any]]:
    given: Any = spec.get(field) or []
    return [cast("dict[str, Any]", one) for one in cast("list[Any]", given) if isinstance(one, dict)]


def _append(parent: dict[str, Any], field: str, entry: dict[str, Any]) -> None:
    given: Any = parent.get(field) or []
    parent[field] = [*cast("list[Any]", given), dict(entry)]
