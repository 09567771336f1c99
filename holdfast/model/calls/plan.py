"""The workload whose objects an activity may touch, and the plan to find and read them."""

from __future__ import annotations

import hashlib
from collections.abc import Container, Iterable
from typing import Annotated, Any, cast

from pydantic import BeforeValidator, Field

from holdfast import names
from holdfast.model import Component, ObjectRef, Payload, StatusRule
from holdfast.model.spec.mount import VOLUME_PREFIX

_SUFFIX = 6
"""How many characters a name has after its `generateName`."""


class AnchorKind(Payload):
    """A kind of custom resource."""

    api_version: str
    kind: str


class Target(Payload):
    """The workload whose objects an activity may touch, in every activity's input."""

    cluster: str
    cluster_uid: str = ""
    """uid of the `kube-system` namespace once known: another cluster under the same name is refused."""
    namespace: str
    name: str
    workload_uid: str
    workflow_id: str
    shard: int
    run_as: str
    source_kind: str = ""
    anchor: Annotated[AnchorKind | None, Field(exclude_if=lambda value: value is None)] = None
    """The kind of the custom resource that stands for the workload, with its name and uid; None: an Anchor does."""

    def attempt_name(self, attempt: int) -> str:
        """Return the name of the owner object of one of its attempts."""
        return names.attempt_name(self.name, attempt, self.anchor.kind if self.anchor is not None else "")


def _known_of_status(value: Any) -> Any:
    """Return a status rule on the wire without the fields that a newer release may have added."""
    if not isinstance(value, dict):
        return value
    known = {name for field, info in StatusRule.model_fields.items() for name in (field, info.alias)}
    return {key: entry for key, entry in cast("dict[str, Any]", value).items() if key in known}


class PlannedComponent(Payload):
    """The parts of a component that are needed to find and read it; its template is not repeated."""

    name: str
    api_version: str
    kind: str
    object_name: str
    """The name of its object; for copies, the prefix of all their names."""
    expected_pods: int = 0
    """The number of pods over all its copies."""
    status: Annotated[StatusRule, BeforeValidator(_known_of_status)] = StatusRule()
    """Lenient where `StatusRule` itself is strict: a watch must be able to read the plan of a newer release."""
    copies: Annotated[int | None, Field(exclude_if=lambda value: value is None)] = None
    """How many objects it stands for, `<object name>-<index>`; None: one, under the name itself."""
    later: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Whether it is created after others: before it is first seen, it is not missing."""
    awaited: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Whether its readiness or completion is reported at once."""

    claims: Annotated[tuple[str, ...], Field(exclude_if=lambda value: not value)] = ()
    """The name prefixes of its pods' claims, before its object's name and the pod's number (row D25)."""

    @property
    def object_names(self) -> tuple[str, ...]:
        """The names of its objects, by index."""
        if self.copies is None:
            return (self.object_name,)
        return tuple(names.copy_name(self.object_name, index) for index in range(self.copies))

    @property
    def pods_each(self) -> int:
        """How many pods each of its objects should have."""
        return self.expected_pods // self.copies if self.copies else self.expected_pods

    def has(self, name: str) -> bool:
        """Whether one of its objects is planned under this name."""
        if self.copies is None:
            return name == self.object_name
        return has_copy(self.object_name, self.copies, name)


class GangPods(Payload):
    """How the pods of a workload's gang are made."""

    component: str
    """The component whose pods are its members."""
    pods: int
    """The wanted number of pods: the most that a round may have, plus the spares."""


class DataVolume(Payload):
    """A data set that pods of a workload read, as it is mounted in them."""

    volume: str
    digest: str
    path: str
    """The path at which containers find it."""
    components: tuple[str, ...]
    """The components whose pods read it."""
    source: str = ""
    """The source it was fetched from: it must be granted to the namespace for as long as pods are made (row X4)."""

    @property
    def mount(self) -> str:
        """The name of its mount."""
        return self.volume.removeprefix(VOLUME_PREFIX)


def sources_of(data: Iterable[DataVolume], components: Container[str]) -> tuple[str, ...]:
    """Return the sources of the data sets that pods of some components read (row X4)."""
    return tuple(one.source for one in data if one.source and any(name in components for name in one.components))


class CopyLaunch(Payload):
    """Which launch of a copy is made, if it was ever made again alone (row J23)."""

    launch: int = 0
    """How often it was made again alone within this attempt: added to its component's launches."""
    restarts: int
    """How often it was made again alone, over all attempts."""


def has_copy(base: str, copies: int, name: str) -> bool:
    """Whether a name belongs to one of this many copies."""
    return names.copy_index(name, base, copies) is not None


def planned(component: Component, workload_uid: str, attempt: int, *, awaited: bool = False) -> PlannedComponent:
    """Return the plan to find a component's object; its name is the same on every call."""
    return PlannedComponent(
        name=component.name,
        api_version=component.template["apiVersion"],
        kind=component.template["kind"],
        object_name=object_name(component.template["metadata"], f"{workload_uid}/{attempt}/{component.name}"),
        expected_pods=component.expected_pods,
        status=component.status,
        copies=component.copies,
        later=bool(component.after),
        awaited=awaited,
        claims=component.claims,
    )


def object_name(metadata: dict[str, Any], salt: str) -> str:
    """Return the object's name; from a `generateName` it is a pure function of the salt, so a retry finds it again."""
    given = metadata.get("name")
    if given:
        return str(given)
    return _prefix(metadata) + hashlib.sha256(salt.encode()).hexdigest()[:_SUFFIX]


def has_name(metadata: dict[str, Any], name: str) -> bool:
    """Whether an object of this name is that of a template with this metadata, whatever the salt was."""
    given = metadata.get("name")
    return name == given if given else name[:-_SUFFIX] == _prefix(metadata)


def _prefix(metadata: dict[str, Any]) -> str:
    return str(metadata["generateName"])[:240]


def copies_ref(component: Component) -> ObjectRef:
    """Return the reference that stands for all of a component's copies, however many they are."""
    template = component.template
    return ObjectRef(
        api_version=template["apiVersion"],
        kind=template["kind"],
        name=template["metadata"]["name"],
        copies=component.copies,
    )
