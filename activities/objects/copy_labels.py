"""The labels that one copy of a component has of its own or selects nodes by, with their computed values. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import assert_never

from holdfast.model import CopyLabel, CopyWord
from holdfast.model.calls.cluster import Target


@dataclass(frozen=True, slots=True)
class Copy:
    """One copy of a component, as its labels describe it."""

    target: Target
    """The workload."""
    name: str
    """The name of its object."""
    index: int
    launches: int
    """How often it was restarted with its whole component or attempt."""
    restarts: int = 0
    """How often it was restarted alone."""
    priority: int | None = None
    """The priority of its pods, if it is known."""


def copy_labels(labels: Mapping[str, CopyLabel], copy: Copy) -> dict[str, str]:
    """Return the values for a copy, by key; a priority that is not known has none."""
    found = {key: _value(label, copy) for key, label in labels.items()}
    return {key: value for key, value in found.items() if value is not None}


def _value(label: CopyLabel, copy: Copy) -> str | None:
    target = copy.target
    match label.word:
        case CopyWord.INDEX:
            return str(copy.index + label.offset)
        case CopyWord.KEY:
            # Other tools compare with this value, so they define the digest; it protects no secret.
            return hashlib.sha1(f"{target.namespace}/{copy.name}".encode(), usedforsecurity=False).hexdigest()
        case CopyWord.ATTEMPT:
            return str(copy.launches)
        case CopyWord.RESTARTS:
            return str(copy.restarts)
        case CopyWord.WORKLOAD_UID:
            return target.workload_uid
        case CopyWord.NAME:
            return copy.name
        case CopyWord.NAMESPACED_NAME:
            return f"{target.namespace}_{copy.name}"
        case CopyWord.PRIORITY:
            return None if copy.priority is None else str(copy.priority)
        case _:
            assert_never(label.word)
