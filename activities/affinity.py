"""Nodes that pods are to keep off, put into a pod template beside whatever affinity it has. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

WEIGHT = 100
"""The highest that Kubernetes knows: it counts as much as one of the template's own preferences may."""
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


class PlacementError(ValueError):
    """The template's affinity is not what Kubernetes expects, and where."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}")
        self.path = path
        self.message = message


def keep_off(spec: dict[str, Any], excluded: Sequence[str], disliked: Sequence[str], path: str) -> None:
    """Have a pod spec keep off some nodes, and prefer others to some.

    A spec that names its node is not scheduled at all, and is left as it is.

    Args:
        spec: the pod spec; it is changed.
        excluded: nodes on which it must not run.
        disliked: nodes to which it prefers any other.
        path: where the spec stands in its template.

    Raises:
        PlacementError: if what is there already has another shape than Kubernetes knows.
    """
    if not (excluded or disliked) or spec.get("nodeName"):
        return
    affinity = _object(spec, "affinity", path)
    node_affinity = _object(affinity, "nodeAffinity", f"{path}.affinity")
    path = f"{path}.affinity.nodeAffinity"
    if excluded:
        _require(_object(node_affinity, _REQUIRED, path), _not_in(excluded), f"{path}.{_REQUIRED}")
    if disliked:
        terms = _list(node_affinity, _PREFERRED, path)
        terms.append({"weight": WEIGHT, "preference": {"matchFields": _not_in(disliked)}})


def _require(selector: dict[str, Any], fields: list[dict[str, Any]], path: str) -> None:
    """Add to each of the terms, any of which suffices; one that is empty suits no node, and stays so."""
    terms = _list(selector, "nodeSelectorTerms", path)
    if not terms:
        terms.append({"matchFields": fields})
        return
    for index, term in enumerate(terms):
        if not isinstance(term, dict):
            raise PlacementError(f"{path}.nodeSelectorTerms[{index}]", f"expected an object, found {term!r}")
        here = cast("dict[str, Any]", term)
        if here.get("matchExpressions") or here.get("matchFields"):
            _list(here, "matchFields", f"{path}.nodeSelectorTerms[{index}]").extend(fields)


def _not_in(nodes: Sequence[str]) -> list[dict[str, Any]]:
    """Return one requirement a node: each may name exactly one."""
    return [{"key": "metadata.name", "operator": "NotIn", "values": [name]} for name in sorted(set(nodes))]


def _object(parent: dict[str, Any], field: str, path: str) -> dict[str, Any]:
    if parent.get(field) is None:
        parent[field] = {}
    if not isinstance(parent[field], dict):
        raise PlacementError(f"{path}.{field}", f"expected an object, found {parent[field]!r}")
    return cast("dict[str, Any]", parent[field])


def _list(parent: dict[str, Any], field: str, path: str) -> list[Any]:
    if parent.get(field) is None:
        parent[field] = []
    if not isinstance(parent[field], list):
        raise PlacementError(f"{path}.{field}", f"expected a list, found {parent[field]!r}")
    return cast("list[Any]", parent[field])
