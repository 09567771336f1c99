"""Whose objects an activity may touch, and what it takes to find and read them."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, cast

from pydantic import BeforeValidator, Field

from holdfast import names
from holdfast.model import Component, ObjectRef, Payload, StatusRule


class AnchorKind(Payload):
    """A kind of custom resource."""

    api_version: str
    kind: str


class Target(Payload):
    """Whose objects an activity may touch, in every activity's input."""

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


def _known_of_status(value: Any) -> Any:
    """Return a status rule on the wire without the fields that a newer release may have added."""
    if not isinstance(value, dict):
        return value
    known = {name for field, info in StatusRule.model_fields.items() for name in (field, info.alias)}
    return {key: entry for key, entry in cast("dict[str, Any]", value).items() if key in known}


class PlannedComponent(Payload):
    """What of a component is needed to find it and read it; its template is not repeated."""

    name: str
    api_version: str
    kind: str
    object_name: str
    """Its object's; of copies, what all their names begin with."""
    expected_pods: int = 0
    """Over all its copies."""
    status: Annotated[StatusRule, BeforeValidator(_known_of_status)] = StatusRule()
    """Lenient where `StatusRule` itself is strict: a watch must be able to read the plan a newer release has left."""
    copies: Annotated[int | None, Field(exclude_if=lambda value: value is None)] = None
    """How many objects it stands for, `<object name>-<index>`; None for one under the name itself."""
    later: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Whether it is created after others: until it was seen, it is not missing."""
    awaited: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Whether it is news at once that it is ready or complete."""

    claims: Annotated[tuple[str, ...], Field(exclude_if=lambda value: not value)] = ()
    """What the claims of its pods are called, before its object's name and the pod's number (row D25)."""

    @property
    def object_names(self) -> tuple[str, ...]:
        """The names of its objects, by index."""
        if self.copies is None:
            return (self.object_name,)
        return tuple(names.copy_name(self.object_name, index) for index in range(self.copies))

    @property
    def pods_each(self) -> int:
        """How many pods each of its objects is to have."""
        return self.expected_pods // self.copies if self.copies else self.expected_pods

    def has(self, name: str) -> bool:
        """Whether one of its objects is planned under this name."""
        if self.copies is None:
            return name == self.object_name
        return has_copy(self.object_name, self.copies, name)


class GangPods(Payload):
    """How the pods of a workload's gang are made."""

    component: str
    """Whose pods its members are."""
    pods: int
    """How many there are to be: the most that a round may have, and the spares."""


class DataVolume(Payload):
    """A data set that pods of a workload read, as it is put into them."""

    volume: str
    digest: str
    path: str
    """Where containers find it."""
    components: tuple[str, ...]
    """Whose pods read it."""
    source: str = ""
    """What it was fetched from: that must be granted to the namespace for as long as pods are made (row X4)."""


def has_copy(base: str, copies: int, name: str) -> bool:
    """Whether a name is that of one of so many copies."""
    start, _, index = name.rpartition("-")
    known = start == base and index.isdecimal() and int(index) < copies
    return known and names.copy_name(base, int(index)) == name


def planned(component: Component, workload_uid: str, attempt: int, *, awaited: bool = False) -> PlannedComponent:
    """Return what is needed to find a component's object, whose name is the same each time it is asked for."""
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
    return str(metadata["generateName"])[:240] + hashlib.sha256(salt.encode()).hexdigest()[:6]


def copies_ref(component: Component) -> ObjectRef:
    """Return what is remembered of a component's copies: one reference, however many they are."""
    template = component.template
    return ObjectRef(
        api_version=template["apiVersion"],
        kind=template["kind"],
        name=template["metadata"]["name"],
        copies=component.copies,
    )
