"""What this installation's monitor says on a node's object, and how that is read again. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from holdfast import names
from holdfast.activities.raw import mapping, mappings, time_of
from holdfast.model import NodeWish, NodeWord


def is_ready(node: Mapping[str, Any]) -> bool:
    """Whether a raw node's kubelet says that it is ready, and nothing takes that back."""
    conditions = mappings(mapping(node.get("status")).get("conditions"))
    return any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)


def marked_by(node: Mapping[str, Any]) -> set[str]:
    """Return the installations whose monitors say something on a raw node."""
    prefix = f"{names.ANNOTATION_NODE}/"
    annotations = mapping(mapping(node.get("metadata")).get("annotations"))
    return {key.removeprefix(prefix) for key in annotations if key.startswith(prefix)}


def patch_of(node: Mapping[str, Any], wish: NodeWish, installation: str) -> dict[str, Any] | None:
    """Return the change that a wish makes to a raw node, None where it is so already."""
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


def annotation_of(wish: NodeWish) -> str | None:
    """Return what is written on a node, None where nothing is to stand there."""
    if wish.word is NodeWord.NONE:
        return None
    said = {"state": wish.word.value, "since": wish.since.isoformat(), "why": wish.why}
    if wish.heard is not None:
        said["heard"] = wish.heard.isoformat()
    return json.dumps(said)


def word_on(node: Mapping[str, Any], installation: str) -> tuple[NodeWord, str, datetime | None]:
    """Return what this installation's monitor has said on a raw node: its word, why, and when it was last heard."""
    text = mapping(mapping(node.get("metadata")).get("annotations")).get(names.node_annotation(installation))
    if not isinstance(text, str):
        return NodeWord.NONE, "", None
    try:
        said = mapping(json.loads(text))
        word = NodeWord(str(said.get("state", "")))
    except ValueError:
        return NodeWord.NONE, "", None
    heard = time_of(said.get("heard"))
    return word, str(said.get("why") or ""), heard.astimezone(UTC) if heard is not None else None
