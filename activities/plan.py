"""Whose objects an activity may touch, and what it takes to find and read them."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, cast

from pydantic import BeforeValidator

from holdfast.model import Component, Payload, StatusRule


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
    expected_pods: int = 0
    status: Annotated[StatusRule, BeforeValidator(_known_of_status)] = StatusRule()
    """Lenient where `StatusRule` itself is strict: a watch must be able to read the plan a newer release has left."""


def planned(component: Component, workload_uid: str, attempt: int) -> PlannedComponent:
    """Return what is needed to find a component's object, whose name is the same each time it is asked for."""
    return PlannedComponent(
        name=component.name,
        api_version=component.template["apiVersion"],
        kind=component.template["kind"],
        object_name=object_name(component.template["metadata"], f"{workload_uid}/{attempt}/{component.name}"),
        expected_pods=component.expected_pods,
        status=component.status,
    )


def object_name(metadata: dict[str, Any], salt: str) -> str:
    """Return the object's name; from a `generateName` it is a pure function of the salt, so a retry finds it again."""
    given = metadata.get("name")
    if given:
        return str(given)
    return str(metadata["generateName"])[:240] + hashlib.sha256(salt.encode()).hexdigest()[:6]
