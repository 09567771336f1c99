"""PersistentVolumeClaims that a StatefulSet makes for its pods, and whether they outlive it (row D25)."""

from __future__ import annotations

from typing import Any, cast


def claims_of(template: dict[str, Any]) -> tuple[str, ...]:
    """Return what the claims of a StatefulSet's pods are called, before its own name and the pod's number."""
    if (template.get("apiVersion"), template.get("kind")) != ("apps/v1", "StatefulSet"):
        return ()
    claims = _mapping(template.get("spec")).get("volumeClaimTemplates")
    named = (_mapping(_mapping(one).get("metadata")).get("name") for one in _list(claims))
    return tuple(str(name) for name in named if name)


def keeps_claims(template: dict[str, Any]) -> bool:
    """Whether a StatefulSet's claims outlive it, which Kubernetes does if it is not told otherwise."""
    policy = _mapping(_mapping(template.get("spec")).get("persistentVolumeClaimRetentionPolicy"))
    return bool(claims_of(template)) and policy.get("whenDeleted") != "Delete"


def _mapping(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []
