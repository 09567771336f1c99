"""What a pod template that is resumed in place gets from the one that would be sent now: merged, never taken. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from holdfast.activities.kube.raw import mapping
from holdfast.model.spec.component import PLACEMENT


def merged(there: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return the merge patch that adds to a pod template what the wanted one has; empty where it has all of it.

    Labels, annotations, node selector, tolerations and scheduling gates. Others may have added to them: what is there
    and not wanted stays, and where both say something the wanted one counts.
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
