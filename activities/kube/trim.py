"""Keeps only the needed fields of objects that are read by the thousand, so memory stays bounded. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from sys import intern
from typing import Any

from holdfast import names
from holdfast.activities.kube.client import Object
from holdfast.activities.kube.owners import controller_of
from holdfast.activities.kube.raw import mapping, sequence

_LABELS = (names.LABEL_WORKLOAD_UID, names.LABEL_ATTEMPT, names.LABEL_LAUNCH)


class Trace(Mapping[str, Any]):
    """The fields to identify, delete and await an object, and its node; it reads like the whole object.

    Fields that many objects share are kept once. The others are kept without the tables that a dictionary needs. For
    the thousands of pods of a removal, this saves most of the memory.
    """

    __slots__ = ("_common", "_grace", "_name", "_node", "_uid", "_version")

    def __init__(self, raw: Mapping[str, Any]) -> None:
        """Take the kept fields from an object in JSON form."""
        there = mapping(raw.get("metadata"))
        labels = mapping(there.get("labels"))
        self._name, self._uid, self._version = there.get("name"), there.get("uid"), there.get("resourceVersion")
        self._grace = there.get("deletionGracePeriodSeconds")
        self._node = intern(str(mapping(raw.get("spec")).get("nodeName") or ""))
        self._common = _common(
            there.get("namespace"),
            there.get("deletionTimestamp"),
            tuple(sequence(there["finalizers"])) if "finalizers" in there else None,
            tuple(str(labels.get(key, "")) for key in _LABELS),
        )

    def __getitem__(self, key: str) -> Any:
        """Return `metadata` or `spec`, built anew each time."""
        match key:
            case "metadata":
                own = {
                    "name": self._name,
                    "uid": self._uid,
                    "resourceVersion": self._version,
                    "deletionGracePeriodSeconds": self._grace,
                }
                return {name: value for name, value in own.items() if value is not None} | self._common
            case "spec":
                return {"nodeName": self._node} if self._node else {}
            case _:
                raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the parts that are kept."""
        return iter(("metadata", "spec"))

    def __len__(self) -> int:
        """Return how many parts are kept."""
        return 2


class OwnedTrace(Trace):
    """A `Trace` with the owner references."""

    __slots__ = ("_owners",)

    def __init__(self, raw: Mapping[str, Any]) -> None:
        """Take the kept fields from an object in JSON form."""
        super().__init__(raw)
        self._owners = mapping(raw.get("metadata")).get("ownerReferences")

    def __getitem__(self, key: str) -> Any:
        """Return `metadata` or `spec`, built anew each time."""
        part = super().__getitem__(key)
        return part | {"ownerReferences": self._owners} if key == "metadata" and self._owners else part


class PodTrace(Trace):
    """A `Trace` with the controller of a pod; thousands of pods share a few controllers."""

    __slots__ = ("controller",)

    def __init__(self, raw: Mapping[str, Any]) -> None:
        """Take the kept fields from a pod in JSON form."""
        super().__init__(raw)
        self.controller = controller_of(raw)


def pod_trace(raw: Mapping[str, Any]) -> PodTrace:
    """Return the trace of a pod, with its controller."""
    return PodTrace(raw)


def trace(raw: Mapping[str, Any]) -> Trace:
    """Return the fields to identify, delete and await an object, and its node."""
    return Trace(raw)


def owned_trace(raw: Mapping[str, Any]) -> Trace:
    """Return the trace of an object, with its owner references."""
    return OwnedTrace(raw)


def lean(raw: Object) -> Object:
    """Return an object without `spec.template` and `metadata.managedFields`."""
    return _without(raw, metadata="managedFields", spec="template")


def unsigned(raw: Object) -> Object:
    """Return an object without `metadata.managedFields`."""
    return _without(raw, metadata="managedFields")


def _without(raw: Object, **parts: str) -> Object:
    cut = {part: {key: it for key, it in mapping(raw.get(part)).items() if key != left} for part, left in parts.items()}
    return {**raw, **{part: rest for part, rest in cut.items() if part in raw}}


@lru_cache(maxsize=1024)
def _common(
    namespace: str | None, deleted: str | None, held_by: tuple[str, ...] | None, labels: tuple[str, ...]
) -> Object:
    """Return the fields that many objects share; callers must not change them."""
    common: Object = {"labels": {key: value for key, value in zip(_LABELS, labels, strict=True) if value}}
    if namespace is not None:
        common["namespace"] = namespace
    if deleted is not None:
        common["deletionTimestamp"] = deleted
    if held_by is not None:
        common["finalizers"] = list(held_by)
    return common
