"""The labels that one copy of a component has of its own or selects nodes by, with their computed values. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import assert_never

from holdfast.model import CopyLabel, CopyWord
from holdfast.model.calls.cluster import Target


def copy_labels(
    labels: Mapping[str, CopyLabel], target: Target, name: str, index: int, launches: int, priority: int | None = None
) -> dict[str, str]:
    """Return the values for a copy, by key; a priority that is not known has none.

    Args:
        labels: what to compute for each copy.
        target: the workload.
        name: the name of the copy's object.
        index: the copy's index.
        launches: how often the copy was created before.
        priority: the priority of its pods, if it is known.
    """
    found = {key: _value(label, target, name, index, launches, priority) for key, label in labels.items()}
    return {key: value for key, value in found.items() if value is not None}


def _value(label: CopyLabel, target: Target, name: str, index: int, launches: int, priority: int | None) -> str | None:
    match label.word:
        case CopyWord.INDEX:
            return str(index + label.offset)
        case CopyWord.KEY:
            # Other tools compare with this value, so they define the digest; it protects no secret.
            return hashlib.sha1(f"{target.namespace}/{name}".encode(), usedforsecurity=False).hexdigest()
        case CopyWord.ATTEMPT:
            return str(launches)
        case CopyWord.WORKLOAD_UID:
            return target.workload_uid
        case CopyWord.NAME:
            return name
        case CopyWord.NAMESPACED_NAME:
            return f"{target.namespace}_{name}"
        case CopyWord.PRIORITY:
            return None if priority is None else str(priority)
        case _:
            assert_never(label.word)
