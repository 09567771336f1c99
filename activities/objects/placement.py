"""Merges the pod template that would be sent now into one that is resumed in place; removes nothing. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from holdfast.activities.kube.raw import mapping
from holdfast.model.spec.component import PLACEMENT


def merged(there: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return the merge patch that adds the wanted template's entries to a pod template; empty if it has them all.

    It covers labels, annotations, node selector, tolerations and scheduling gates. Others may have added to them: an
    entry that only the existing template has stays, and if both set a value, the wanted one counts.
    """
    change: dict[str, Any] = {}
    for field, keys in PLACEMENT.items():
        for key in keys:
            value, present = mapping(wanted.get(field)).get(key), mapping(there.get(field)).get(key)
            if isinstance(value, dict):
                known = mapping(present)
                fresh = {
                    name: entry for name, entry in cast("dict[str, Any]", value).items() if known.get(name) != entry
                }
                if fresh:
                    change.setdefault(field, {})[key] = fresh
            elif isinstance(value, list):
                listed = cast("list[Any]", present) if isinstance(present, list) else []
                more = [entry for entry in cast("list[Any]", value) if entry not in listed]
                if more:
                    change.setdefault(field, {})[key] = [*listed, *more]
    return change
