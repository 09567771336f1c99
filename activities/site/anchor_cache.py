"""Anchors as this process last wrote them, so that a status can be written without reading the anchor first.

Each write names its base version: if a remembered anchor has changed, the write is refused and the anchor read again.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from holdfast import formats, names
from holdfast.activities.kube.raw import mapping
from holdfast.model.calls.cluster import Target

_MOST = 1000


class KnownAnchors:
    """The anchors that the latest writes returned."""

    def __init__(self) -> None:
        """Start with none."""
        self._anchors: OrderedDict[tuple[str, str, str], bytes] = OrderedDict()
        """As JSON, which takes a fifth of what it is read into."""

    def take(self, target: Target) -> Mapping[str, Any] | None:
        """Return a workload's anchor, and forget it: the caller stores the result of its write."""
        return _read(self._anchors.pop(_key(target), None))

    def look(self, target: Target) -> Mapping[str, Any] | None:
        """Return a workload's anchor, and remember it on."""
        return _read(self._anchors.get(_key(target)))

    def has(self, target: Target) -> bool:
        """Whether a workload's anchor is remembered."""
        return _key(target) in self._anchors

    def keep(self, target: Target, anchor: Mapping[str, Any]) -> None:
        """Remember a workload's anchor as the API server has just returned it."""
        metadata = {key: value for key, value in anchor["metadata"].items() if key != "managedFields"}
        kept = {**anchor, "metadata": metadata}
        form = formats.RESOURCES[target.anchor.api_version, target.anchor.kind] if target.anchor is not None else None
        if form is not None and form.status_suffices(mapping(anchor.get("status"))):
            # Spec and annotations are each as large as the workload; the status has all that the next write needs,
            # beside what shows whose the resource is.
            kept["spec"] = _only(anchor.get("spec"), "managedBy")
            metadata["annotations"] = _only(metadata.get("annotations"), names.ANNOTATION_LIFE)
        try:
            self._anchors[_key(target)] = json.dumps(kept, separators=(",", ":")).encode()
        except RecursionError:  # It was read with more room on the stack.
            self._anchors.pop(_key(target), None)
        if len(self._anchors) > _MOST:
            self._anchors.popitem(last=False)


def _read(kept: bytes | None) -> Mapping[str, Any] | None:
    return None if kept is None else json.loads(kept)


def _only(content: Any, key: str) -> dict[str, Any]:
    found = mapping(content)
    return {key: found[key]} if key in found else {}


def _key(target: Target) -> tuple[str, str, str]:
    return target.namespace, target.name, target.workload_uid
