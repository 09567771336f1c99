"""The definition of a format: how its documents are recognized and read, and how a status is written in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from holdfast.formats.condition import noted
from holdfast.formats.text import Document, Json
from holdfast.model import PodSet, Policy, Report, Status, Workload
from holdfast.profiles import PROFILES


def among_components(copies: Sequence[int | None], index: int, path: str) -> str:
    """Return the path of a component's field in a document that lists its components."""
    return f"spec.components[{index}].{path}"


@dataclass(frozen=True, slots=True)
class Context:
    """The inputs of a reader other than the document."""

    cluster: str
    namespace: str | None = None
    default_namespace: str = "default"
    name: str | None = None
    profiles: Mapping[str, Policy] = field(default_factory=lambda: PROFILES)

    def namespace_beside(self, own: object) -> str | None:
        """Return the namespace to read a document with that names `own`; None if its own is the one."""
        return self.namespace or (None if own else self.default_namespace)


def managed_by(document: Json) -> str | None:
    """Return the controller that `spec.managedBy` names."""
    spec: Json = document.get("spec") or {}
    return spec.get("managedBy")


def is_suspended(document: Json) -> bool:
    """Whether `spec.suspend` is set."""
    spec: Json = document.get("spec") or {}
    return spec.get("suspend") is True


class Resource(NamedTuple):
    """How documents of a format request workloads as custom resources in the cluster (rows F1 to F4)."""

    api_version: str
    kind: str
    managed_by: Callable[[Json], str | None]
    """The controller that a document names in `managedBy`."""
    is_suspended: Callable[[Json], bool]
    bare: Callable[[Json], Json]
    """Return a document without an admission controller's additions, such as Kueue's: each attempt reads them anew."""
    pod_sets: Callable[[Json], dict[str, tuple[PodSet, ...]]]
    """Return the pod sets with the admission controller's additions, by component; empty if nothing is added."""
    status: Callable[[Json, Report, datetime], Json]
    """Return the status of a document in the cluster for a report that is about to be written to it."""
    is_deployed: Callable[[Mapping[str, Any]], bool]
    """Whether a status says that a suspended workload's objects are still there, suspended in place."""
    status_suffices: Callable[[Mapping[str, Any]], bool]
    """Whether a status has all that the next one takes from the document."""
    folder: str
    """Its folder in `deploy/`: its policies, and the worker's rights."""
    framework: str = ""
    """The name under which Kueue's configuration lists its kind; empty: Kueue does not know it."""
    own_queue: bool = False
    """Whether a queue that it names is one of Holdfast's (row L9), and not of Kueue's."""
    note: Callable[[Json, Report, datetime], Json] = noted
    """Return the status of a document for which no workflow decides: what its workflow said last stays."""


class Format(NamedTuple):
    """One published format of a workload."""

    name: str
    knows: Callable[[Json], bool]
    """Whether a document has this format."""
    read: Callable[[Sequence[Document], Context], list[Workload]]
    """Read all of a stream's documents of this format."""
    status: Callable[[Workload, Status], Json]
    """Return a status in this format."""
    source_kinds: frozenset[tuple[str, str]]
    """API versions and kinds that `Workload.source` has for this format."""
    has_status: bool = False
    """Whether documents of this format have a status of their own."""
    place: Callable[[Sequence[int | None], int, str], str] = among_components
    """Path of a component's field in the document, given each component's copies, an index and the field's path."""
    resource: Resource | None = None
    """Its custom resource in the cluster; None: only clients submit its documents."""
