"""The labels that one copy of a component has of its own, with their computed values. Pure."""

from __future__ import annotations

import hashlib
from typing import assert_never

from holdfast.model import Component, CopyLabel, CopyWord
from holdfast.model.calls.cluster import Target


def copy_labels(component: Component, target: Target, name: str, index: int, launches: int) -> dict[str, str]:
    """Return the labels of a copy, by key.

    Args:
        component: the component of the copy.
        target: the workload.
        name: the name of the copy's object.
        index: the copy's index.
        launches: how often the copy was created before.
    """
    return {key: _value(label, target, name, index, launches) for key, label in component.copy_labels.items()}


def _value(label: CopyLabel, target: Target, name: str, index: int, launches: int) -> str:
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
        case _:
            assert_never(label.word)
