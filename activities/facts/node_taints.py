"""What the provisioner says on a node's object: its quarantine, and that its power is off (row L15). Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from holdfast import names
from holdfast.activities.kube.raw import annotated, mapping, mappings, time_of
from holdfast.model import NodeWord
from holdfast.policy.nodes.fence import once_off

Patch = dict[str, Any]


def quarantine(node: Mapping[str, Any], installation: str) -> Patch | None:
    """Return the change that keeps new pods off a node that is to be wiped; None where it is so already."""
    key = names.quarantine_taint(installation)
    if any(one.get("key") == key for one in _taints(node)):
        return None
    return {"spec": {"taints": [*_taints(node), {"key": key, "value": "wipe", "effect": "NoSchedule"}]}}


def let_go(node: Mapping[str, Any], installation: str) -> Patch | None:
    """Return the change that takes this off again; None where it is not there."""
    key = names.quarantine_taint(installation)
    others = [one for one in _taints(node) if one.get("key") != key]
    return {"spec": {"taints": others or None}} if len(others) < len(_taints(node)) else None


def fence(node: Mapping[str, Any], installation: str, at: datetime, why: str, renewed: str = "") -> Patch | None:
    """Return the change that says that a node's power is off, and has Kubernetes let its pods go; None if it is so.

    Where the monitor waits for this proof, its word becomes Lost with the same change: once Kubernetes has taken the
    pods away nobody could tell any more why they are not there.

    Args:
        node: the raw node.
        installation: whose provisioner says it.
        at: since when its power is known to be off.
        why: by which proof.
        renewed: the last renewal of its lease in the silence that this is the proof for; empty where it has none.
    """
    there = any(one.get("key") == names.TAINT_OUT_OF_SERVICE for one in _taints(node))
    before = _said(node, installation)
    if there and before is not None and before.get("renewed", "") == renewed:
        return None
    ours = not there or is_own_taint(node, names.TAINT_OUT_OF_SERVICE, installation)
    said = json.dumps({"at": at.isoformat(), "why": why, "taint": ours, "renewed": renewed})
    annotations = {names.fenced_annotation(installation): said, **_word_once_off(node, installation, why)}
    patch: Patch = {"metadata": {"annotations": annotations}}
    if not there:
        taint = {"key": names.TAINT_OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute"}
        patch["spec"] = {"taints": [*_taints(node), taint]}
    return patch


def _word_once_off(node: Mapping[str, Any], installation: str, why: str) -> dict[str, str]:
    """Return what the monitor's annotation becomes, as the monitor itself will have it; nothing where it does not."""
    key = names.node_annotation(installation)
    said = annotated(node, key) or {}
    if said.get("state") != NodeWord.FENCING.value:
        return {}
    heard = time_of(said.get("heard"))
    why = once_off(heard.astimezone(UTC), why) if heard is not None else why
    return {key: json.dumps({**said, "state": NodeWord.LOST.value, "why": why})}


def is_fenced(node: Mapping[str, Any], installation: str) -> bool:
    """Whether this installation says of a node that its power is off."""
    return _said(node, installation) is not None


def power_off(node: Mapping[str, Any], installation: str) -> tuple[datetime, str, str] | None:
    """Return what this installation says of a node's power.

    Returns:
        Since when it is off, by which proof, and the last renewal of its lease before that; None where nothing is said.
        A time that cannot be read is the earliest there is.
    """
    said = _said(node, installation)
    if said is None:
        return None
    at = time_of(said.get("at")) or datetime.min.replace(tzinfo=UTC)
    return at.astimezone(UTC), str(said.get("why") or ""), str(said.get("renewed") or "")


def is_own_taint(node: Mapping[str, Any], key: str, installation: str) -> bool:
    """Whether a taint of a node says nothing that this installation has not said itself by it."""
    said = _said(node, installation) if key == names.TAINT_OUT_OF_SERVICE and installation else None
    return said is not None and bool(said.get("taint"))


def unfence(node: Mapping[str, Any], installation: str, patch: Patch | None) -> Patch | None:
    """Return a change of a node, if there is one, that also takes back that its power is off.

    Kubernetes' taint goes with it where this installation has put it there; others' stays.
    """
    said = _said(node, installation)
    if said is None:
        return patch
    patch = patch or {}
    annotations = {**patch.get("metadata", {}).get("annotations", {}), names.fenced_annotation(installation): None}
    patch["metadata"] = {**patch.get("metadata", {}), "annotations": annotations}
    if said.get("taint"):
        taints = patch["spec"]["taints"] or [] if "spec" in patch else _taints(node)
        patch["spec"] = {"taints": [one for one in taints if one.get("key") != names.TAINT_OUT_OF_SERVICE] or None}
    return patch


def _taints(node: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [dict(one) for one in mappings(mapping(node.get("spec")).get("taints"))]


def _said(node: Mapping[str, Any], installation: str) -> Mapping[str, Any] | None:
    return annotated(node, names.fenced_annotation(installation))
