"""PersistentVolumeClaims that a StatefulSet creates for its pods, and whether they outlive it (row D25)."""

from __future__ import annotations

from typing import Any, cast


def claims_of(template: dict[str, Any]) -> tuple[str, ...]:
    """Return the names of a StatefulSet's volume claim templates: prefixes of `<claim>-<StatefulSet>-<pod number>`."""
    if (template.get("apiVersion"), template.get("kind")) != ("apps/v1", "StatefulSet"):
        return ()
    claims = _mapping(template.get("spec")).get("volumeClaimTemplates")
    named = (_mapping(_mapping(one).get("metadata")).get("name") for one in _list(claims))
    return tuple(str(name) for name in named if name)


def keeps_claims(template: dict[str, Any]) -> bool:
    """Whether a StatefulSet's claims outlive it, which is Kubernetes' default."""
    policy = _mapping(_mapping(template.get("spec")).get("persistentVolumeClaimRetentionPolicy"))
    return bool(claims_of(template)) and policy.get("whenDeleted") != "Delete"


def _mapping(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []
