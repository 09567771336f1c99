"""What is kept of an object that is read among thousands, so that memory does not grow with all each says. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from sys import intern
from typing import Any

from holdfast import names
from holdfast.activities.kube import Object
from holdfast.activities.raw import mapping, sequence

_OWN = ("name", "uid", "resourceVersion", "deletionGracePeriodSeconds")
_ALIKE = ("namespace", "deletionTimestamp")
"""Texts that many objects have in common, and that are kept once."""
_LABELS = (names.LABEL_WORKLOAD_UID, names.LABEL_ATTEMPT, names.LABEL_LAUNCH)


def trace(raw: Mapping[str, Any]) -> Object:
    """Return by what an object is told, deleted and waited for, and its node. Its parts are not to be changed."""
    there = mapping(raw.get("metadata"))
    metadata: Object = {key: there[key] for key in _OWN if key in there}
    metadata |= {key: intern(str(there[key])) for key in _ALIKE if key in there}
    if "finalizers" in there:
        metadata["finalizers"] = _finalizers(tuple(sequence(there["finalizers"])))
    labels = mapping(there.get("labels"))
    metadata["labels"] = _labels(tuple(str(labels.get(key, "")) for key in _LABELS))
    return {"metadata": metadata, "spec": _place(str(mapping(raw.get("spec")).get("nodeName") or ""))}


def owned_trace(raw: Mapping[str, Any]) -> Object:
    """Return what `trace` does, and by whom an object is owned."""
    kept = trace(raw)
    owners = mapping(raw.get("metadata")).get("ownerReferences")
    if owners:
        kept["metadata"]["ownerReferences"] = owners
    return kept


def lean(raw: Object) -> Object:
    """Return an object without the template of what it brings forth, and without who has written which field."""
    return _without(raw, metadata="managedFields", spec="template")


def unsigned(raw: Object) -> Object:
    """Return an object without who has written which field."""
    return _without(raw, metadata="managedFields")


def _without(raw: Object, **parts: str) -> Object:
    cut = {part: {key: it for key, it in mapping(raw.get(part)).items() if key != left} for part, left in parts.items()}
    return {**raw, **{part: rest for part, rest in cut.items() if part in raw}}


@lru_cache(maxsize=1024)
def _labels(values: tuple[str, ...]) -> Object:
    return {key: value for key, value in zip(_LABELS, values, strict=True) if value}


@lru_cache(maxsize=1024)
def _finalizers(held_by: tuple[str, ...]) -> list[str]:
    return list(held_by)


@lru_cache(maxsize=1024)
def _place(node: str) -> Object:
    return {"nodeName": node} if node else {}
