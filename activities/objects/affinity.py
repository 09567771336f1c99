"""Adds the nodes that pods must avoid to a pod template, beside any affinity it already has. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from holdfast.activities.kube.raw import mapping, mappings

WEIGHT = 100
"""The highest weight that Kubernetes allows: as much as one of the template's own preferences may have."""
_PRESENT = frozenset({"In", "Exists", "Gt", "Lt"})
"""Operators that only a node with the label satisfies."""
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


class PlacementError(ValueError):
    """The template's affinity, at `path`, does not have the shape that Kubernetes expects."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}")
        self.path = path
        self.message = message


def keep_off(
    spec: dict[str, Any], excluded: Sequence[str], disliked: Sequence[str], path: str, marked: Sequence[str] = ()
) -> None:
    """Make a pod spec exclude some nodes, and prefer any other node to some.

    A spec that names its node is not scheduled at all, and is left as it is. A spec that itself selects nodes with a
    mark (a diagnosis of broken nodes) may run on them.

    Args:
        spec: the pod spec; it is changed.
        excluded: nodes on which it must not run.
        disliked: nodes to which it prefers any other.
        path: the path of the spec in its template.
        marked: labels, `key` or `key=value`, of nodes on which it must not run.

    Raises:
        PlacementError: if the existing affinity does not have the shape that Kubernetes expects.
    """
    selector = mapping(spec.get("nodeSelector"))
    marks = [mark for mark in marked if not _asks_for(_equals(selector), mark)]
    if not (excluded or disliked or marks) or spec.get("nodeName"):
        return
    affinity = _object(spec, "affinity", path)
    node_affinity = _object(affinity, "nodeAffinity", f"{path}.affinity")
    path = f"{path}.affinity.nodeAffinity"
    if excluded or marks:
        _require(_object(node_affinity, _REQUIRED, path), _not_in(excluded), marks, f"{path}.{_REQUIRED}")
    if disliked:
        terms = _list(node_affinity, _PREFERRED, path)
        terms.append({"weight": WEIGHT, "preference": {"matchFields": _not_in(disliked)}})


def _require(selector: dict[str, Any], fields: list[dict[str, Any]], marks: Sequence[str], path: str) -> None:
    """Add the requirements to each term, since any one suffices; an empty term matches no node, and is left empty."""
    terms = _list(selector, "nodeSelectorTerms", path)
    if not terms:
        terms.append({})
        _narrow(cast("dict[str, Any]", terms[0]), fields, marks, f"{path}.nodeSelectorTerms[0]")
        return
    for index, term in enumerate(terms):
        if not isinstance(term, dict):
            raise PlacementError(f"{path}.nodeSelectorTerms[{index}]", f"expected an object, found {term!r}")
        here = cast("dict[str, Any]", term)
        if here.get("matchExpressions") or here.get("matchFields"):
            _narrow(here, fields, marks, f"{path}.nodeSelectorTerms[{index}]")


def _narrow(term: dict[str, Any], fields: list[dict[str, Any]], marks: Sequence[str], path: str) -> None:
    there = mappings(term.get("matchExpressions"))
    without = [_without(mark) for mark in marks if not _asks_for(there, mark)]
    if without:
        expressions = _list(term, "matchExpressions", path)
        expressions.extend(one for one in without if one not in expressions)
    if fields:
        _list(term, "matchFields", path).extend(fields)


def _without(mark: str) -> dict[str, Any]:
    """Return the requirement that a node does not have a mark; a node without the label also meets it."""
    key, valued, value = mark.partition("=")
    if valued:
        return {"key": key, "operator": "NotIn", "values": [value]}
    return {"key": key, "operator": "DoesNotExist"}


def _equals(selector: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [{"key": key, "operator": "In", "values": [value]} for key, value in selector.items()]


def _asks_for(requirements: Iterable[Mapping[str, Any]], mark: str) -> bool:
    """Whether the requirements match only nodes with the mark."""
    key, valued, value = mark.partition("=")
    for one in requirements:
        if one.get("key") != key:
            continue
        if not valued and one.get("operator") in _PRESENT:
            return True
        if one.get("operator") == "In" and one.get("values") == [value]:
            return True
    return False


def _not_in(nodes: Sequence[str]) -> list[dict[str, Any]]:
    """Return one requirement per node, since each may name exactly one."""
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
