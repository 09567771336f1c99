"""A PersistentVolumeClaim that belongs to a workload, and not to one of its attempts (row J22)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final

from pydantic import Field, field_validator

from holdfast import names
from holdfast.model.base import Model
from holdfast.model.labels import check_label
from holdfast.model.spec.component import Component

VOLUME_CLAIMS_MAXIMUM: Final = 256
CLAIM: Final = ("v1", "PersistentVolumeClaim")
"""API version and kind of a claim."""


class VolumeClaim(Model):
    """A claim that is made before the components, survives restarts and suspensions, and may outlive the workload."""

    name: str
    """The name of the object, unique within the workload."""
    labels: dict[str, str] = {}
    """Labels of the claim."""
    annotations: dict[str, str] = {}
    """Annotations of the claim."""
    spec: dict[str, Any]
    """The claim's own `spec`, which the API server validates."""
    retain: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Whether it stays when the workload is removed. If so, a claim of this name that exists already is used."""

    @field_validator("name")
    @classmethod
    def _name(cls, value: str) -> str:
        if not names.DNS_SUBDOMAIN.match(value) or len(value) > 253:
            raise ValueError(f"{value!r}: expected a Kubernetes name, at most 253 characters of [-a-z0-9.]")
        return value

    @field_validator("labels")
    @classmethod
    def _labels(cls, value: dict[str, str]) -> dict[str, str]:
        for key, text in value.items():
            check_label(key, text)
        return value

    def sentence(self) -> str:
        """Say what becomes of it: `data-train goes with it`."""
        return f"{self.name} {'stays when it is removed' if self.retain else 'goes with it'}"


def check_volume_claims(claims: Iterable[VolumeClaim], components: Iterable[Component]) -> None:
    """Check that each claim has a name of its own.

    Raises:
        ValueError: naming the claim.
    """
    seen: set[str] = set()
    made = {_claim_name(one.template) for one in components}
    for index, one in enumerate(claims):
        if one.name in seen:
            raise ValueError(f"volumeClaims[{index}].name: {one.name!r} is used twice")
        if one.name in made:
            raise ValueError(f"volumeClaims[{index}].name: {one.name!r} is the name of a component's object too")
        seen.add(one.name)


def _claim_name(template: Mapping[str, Any]) -> str | None:
    return template["metadata"].get("name") if (template["apiVersion"], template["kind"]) == CLAIM else None
