"""What the provisioner records on a Node object: its quarantine, and that its power is off (row L15). Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from holdfast import names
from holdfast.activities.kube.raw import annotated, mapping, mappings, one_line, time_of
from holdfast.model import NodeWord
from holdfast.model.words import TEXT_KEPT
from holdfast.policy.nodes.fence import once_off

Patch = dict[str, Any]
WIPE: Final = "wipe"
"""The taint's value on a node that was asked to be wiped: a provisioner that begins anew wipes it."""
HELD: Final = "held"
"""Its value on a node that nobody asked to be wiped: it waits for a person."""


def quarantine(node: Mapping[str, Any], installation: str, value: str = WIPE) -> Patch | None:
    """Return the patch that keeps new pods off a node; None if it is there already.

    A node that is to be wiped is not held instead. One that is held may be asked to be wiped.
    """
    there = quarantined(node, installation)
    if there is not None and (there == WIPE or value != WIPE):
        return None
    key = names.quarantine_taint(installation)
    others = [one for one in _taints(node) if one.get("key") != key]
    return {"spec": {"taints": [*others, {"key": key, "value": value, "effect": "NoSchedule"}]}}


def quarantined(node: Mapping[str, Any], installation: str) -> str | None:
    """Return the value of a node's quarantine; None if it is in none."""
    key = names.quarantine_taint(installation)
    return next((str(one.get("value") or "") for one in _taints(node) if one.get("key") == key), None)


def let_go(node: Mapping[str, Any], installation: str) -> Patch | None:
    """Return the patch that removes the quarantine; None if there is none."""
    key = names.quarantine_taint(installation)
    others = [one for one in _taints(node) if one.get("key") != key]
    return {"spec": {"taints": others or None}} if len(others) < len(_taints(node)) else None


def fence(node: Mapping[str, Any], installation: str, at: datetime, why: str, renewed: str = "") -> Patch | None:
    """Return the patch that records that a node's power is off, and makes Kubernetes release its pods; None if present.

    If the monitor waits for this proof, the same patch changes its word to Lost: once Kubernetes has removed the pods,
    nothing else could tell why they are gone.

    Args:
        node: the raw node.
        installation: the installation whose provisioner records it.
        at: since when its power is known to be off.
        why: the proof.
        renewed: the last renewal of its lease before the silence that this proof is for; empty if it has none.
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
    """Return the monitor's annotation as the monitor itself will change it; empty if it will not."""
    key = names.node_annotation(installation)
    said = annotated(node, key) or {}
    if said.get("state") != NodeWord.FENCING.value:
        return {}
    heard = time_of(said.get("heard"))
    why = once_off(heard, why) if heard is not None else why
    return {key: json.dumps({**said, "state": NodeWord.LOST.value, "why": why})}


def is_fenced(node: Mapping[str, Any], installation: str) -> bool:
    """Whether this installation has recorded that a node's power is off."""
    return _said(node, installation) is not None


def power_off(node: Mapping[str, Any], installation: str) -> tuple[datetime, str, str] | None:
    """Return what this installation has recorded about a node's power.

    Returns:
        Since when it is off, the proof, and the last renewal of its lease before that; None if nothing is recorded.
        A time that cannot be read becomes the earliest possible one.
    """
    said = _said(node, installation)
    if said is None:
        return None
    at = time_of(said.get("at")) or datetime.min.replace(tzinfo=UTC)
    return at, one_line(said.get("why"), TEXT_KEPT), one_line(said.get("renewed"), TEXT_KEPT)


def is_own_taint(node: Mapping[str, Any], key: str, installation: str) -> bool:
    """Whether this installation itself put the taint of this key on a node."""
    said = _said(node, installation) if key == names.TAINT_OUT_OF_SERVICE and installation else None
    return said is not None and bool(said.get("taint"))


def unfence(node: Mapping[str, Any], installation: str, patch: Patch | None) -> Patch | None:
    """Return a node's patch, if any, extended to remove the record that its power is off.

    It also removes Kubernetes' taint if this installation put it there; a taint from others stays.
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
