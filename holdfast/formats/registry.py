"""What a format is: how its documents are known, how they are read, how a status is given back in its terms."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from holdfast.formats.text import Document, Json
from holdfast.model import Policy, Report, Status, Workload
from holdfast.profiles import PROFILES


def among_components(copies: Sequence[int | None], index: int, path: str) -> str:
    """Return where a field of one component stands in a document that lists its components."""
    return f"spec.components[{index}].{path}"


@dataclass(frozen=True, slots=True)
class Context:
    """What the reader of a document is told besides it."""

    cluster: str
    namespace: str | None = None
    name: str | None = None
    profiles: Mapping[str, Policy] = field(default_factory=lambda: PROFILES)


class Resource(NamedTuple):
    """How the documents of a form ask for workloads as custom resources in the cluster (rows F1 to F4)."""

    api_version: str
    kind: str
    managed_by: Callable[[Json], str | None]
    """Which controller a document says is its own."""
    is_suspended: Callable[[Json], bool]
    bare: Callable[[Json], Json]
    """A document without what whoever admits it adds to it, such as Kueue: that is read anew before each attempt."""
    status: Callable[[Json, Report, datetime], Json]
    """The status of a document that is in the cluster, for a report on its way to it."""


class Format(NamedTuple):
    """One published form of a workload."""

    name: str
    knows: Callable[[Json], bool]
    """Whether a document is of this form."""
    read: Callable[[Sequence[Document], Context], list[Workload]]
    """Read all of a stream's documents of this form."""
    status: Callable[[Workload, Status], Json]
    """Give a status in the terms of this form."""
    source_kinds: frozenset[tuple[str, str]]
    """API versions and kinds that `Workload.source` names for this form."""
    has_status: bool = False
    """Whether documents of this form have a status of their own."""
    place: Callable[[Sequence[int | None], int, str], str] = among_components
    """Where a field of a component stands in the document; given: how many copies each has, which one, the path."""
    resource: Resource | None = None
    """How its documents are custom resources; None: clients alone submit them."""
