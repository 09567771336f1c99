"""Writes and reads what this installation's monitor records on a Node object. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from holdfast import names
from holdfast.activities.facts.node_taints import power_off
from holdfast.activities.kube.raw import annotated, mapping, mappings, one_line, time_of
from holdfast.model import NodeWish, NodeWord, OwnMarks
from holdfast.model.words import TEXT_KEPT


def is_ready(node: Mapping[str, Any]) -> bool:
    """Whether a raw node's Ready condition is True: its kubelet says so, and nothing has reset it."""
    conditions = mappings(mapping(node.get("status")).get("conditions"))
    return any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)


def marked_by(node: Mapping[str, Any]) -> set[str]:
    """Return the installations whose monitors have annotated a raw node."""
    prefix = f"{names.ANNOTATION_NODE}/"
    annotations = mapping(mapping(node.get("metadata")).get("annotations"))
    return {key.removeprefix(prefix) for key in annotations if key.startswith(prefix)}


def patch_of(node: Mapping[str, Any], wish: NodeWish, installation: str) -> dict[str, Any] | None:
    """Return the patch that applies a wish to a raw node, None if the node has it already."""
    key, taint = names.node_annotation(installation), names.node_taint(installation)
    said = mapping(mapping(node.get("metadata")).get("annotations")).get(key)
    wanted = annotation_of(wish)
    taints = mappings(mapping(node.get("spec")).get("taints"))
    others = [dict(one) for one in taints if one.get("key") != taint]
    kept = [dict(one) for one in taints if one.get("key") == taint]
    bearing = kept or [{"key": taint, "value": wish.word.value, "effect": "NoSchedule"}]
    own = bearing if wanted is not None else []
    if said == wanted and len(others) + len(own) == len(taints):
        return None
    return {"metadata": {"annotations": {key: wanted}}, "spec": {"taints": [*others, *own] or None}}


def with_fault_label(
    node: Mapping[str, Any], wish: NodeWish, installation: str, patch: dict[str, Any] | None
) -> dict[str, Any] | None:
    """Return a node's patch, if any, extended to set or remove the label of broken hardware.

    Every node with broken hardware has the label, with or without pods: it disturbs no running pod, and new pods avoid
    the node by it. It stays until the node's health check has passed.
    """
    key = names.fault_label(installation)
    there = key in mapping(mapping(node.get("metadata")).get("labels"))
    if wish.word is NodeWord.FAULTY and not there:
        value = "true"
    elif wish.word is NodeWord.NONE and there:
        value = None
    else:
        return patch
    patch = patch or {}
    return {**patch, "metadata": {**mapping(patch.get("metadata")), "labels": {key: value}}}


def annotation_of(wish: NodeWish) -> str | None:
    """Return the annotation to write on a node, None for no annotation."""
    if wish.word is NodeWord.NONE:
        return None
    said = {"state": wish.word.value, "since": wish.since.isoformat(), "why": wish.why}
    if wish.heard is not None:
        said["heard"] = wish.heard.isoformat()
    return json.dumps(said)


def is_marked(node: Mapping[str, Any], installation: str) -> bool:
    """Whether this installation's monitor has marked a raw node, by its annotation or by its taint alone."""
    return installation in marked_by(node) or _taint(node, installation) is not None


def own_marks(node: Mapping[str, Any], installation: str) -> OwnMarks | None:
    """Return this installation's marks on a raw node; None if there are none.

    If the annotation is gone, or is not understood, the value of the taint is used.
    """
    word, why, heard = word_on(node, installation)
    taint, off = _taint(node, installation), power_off(node, installation)
    if word is NodeWord.NONE and taint is None and off is None:
        labels = mapping(mapping(node.get("metadata")).get("labels"))
        faulty = names.fault_label(installation) in labels
        return OwnMarks(word=NodeWord.FAULTY, why="its label says so") if faulty else None
    if word is NodeWord.NONE and taint is not None:
        value = str(taint.get("value") or "")
        word, why = NodeWord(value) if value in set(NodeWord) - {""} else NodeWord.DOWN, "its taint says so"
    since = _said(node, installation).get("since")
    own = OwnMarks(word=word, why=why, since=time_of(since), heard=heard)
    if off is None:
        return own
    at, off_why, renewed = off
    return own.model_copy(update={"off": at, "off_why": off_why, "off_renewed": renewed})


def _taint(node: Mapping[str, Any], installation: str) -> Mapping[str, Any] | None:
    key = names.node_taint(installation)
    return next((one for one in mappings(mapping(node.get("spec")).get("taints")) if one.get("key") == key), None)


def word_on(node: Mapping[str, Any], installation: str) -> tuple[NodeWord, str, datetime | None]:
    """Return what this installation's monitor recorded on a raw node: the word, why, and when it was last heard."""
    said = _said(node, installation)
    try:
        word = NodeWord(str(said.get("state", "")))
    except ValueError:
        return NodeWord.NONE, "", None
    return word, one_line(said.get("why"), TEXT_KEPT), time_of(said.get("heard"))


def _said(node: Mapping[str, Any], installation: str) -> Mapping[str, Any]:
    return annotated(node, names.node_annotation(installation)) or {}
