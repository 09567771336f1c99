"""Why a pod has no node yet: the scheduler's message, with the pod's requests added. Pure (row D34)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from sys import intern
from typing import Any, Final

from holdfast.activities.kube.raw import mapping, mappings, one_line, time_of
from holdfast.model.observation import SCHEDULING_GATED, UNSCHEDULABLE
from holdfast.model.quantity import format_quantity, parse_quantity

MESSAGE_MAXIMUM: Final = 320
SCHEDULING: Final = timedelta(seconds=5)
"""How long the scheduler has for a pod before its wait is reported: most pods get a node at the next try."""

_AVAILABLE = re.compile(r"^(\d+/\d+) nodes are available: (.*)$", re.DOTALL)
_INSUFFICIENT = re.compile(r"\d+ Insufficient (\S+?)(?=[,.]?$|, )")
_PREEMPTION = re.compile(r"[,.]?\s*(?:preemption:|no new claims to deallocate).*$", re.DOTALL)


def unscheduled(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts that say why a pod has no node; empty while its status does not say."""
    found = next(
        (
            one
            for one in mappings(mapping(raw.get("status")).get("conditions"))
            if one.get("type") == "PodScheduled" and one.get("status") == "False"
        ),
        None,
    )
    since = time_of(found.get("lastTransitionTime")) if found is not None else None
    if found is None or since is None:
        return {}
    spec, reason = mapping(raw.get("spec")), str(found.get("reason") or UNSCHEDULABLE)
    if reason == SCHEDULING_GATED:
        message = ", ".join(str(one.get("name", "")) for one in mappings(spec.get("schedulingGates")))
    else:
        message = scheduling(str(found.get("message") or ""), spec)
    return {
        "reason": intern(reason),
        "message": intern(one_line(message, MESSAGE_MAXIMUM)),
        "waits_from": since + SCHEDULING,
    }


def scheduling(message: str, spec: Mapping[str, Any]) -> str:
    """Return a scheduler's message on a pod, without its part on preemption, and with the pod's requests.

    `0/8 nodes are available: 8 Insufficient cpu. preemption: ...` is `0/8 nodes have enough cpu (each asks for 5000)`.
    """
    message = _PREEMPTION.sub("", " ".join(message.split())).rstrip(" .")
    available = _AVAILABLE.match(message)
    lacking = list(dict.fromkeys(_INSUFFICIENT.findall(message)))
    if not lacking:
        return message
    asks = [f"{requested(spec, one)}{'' if len(lacking) == 1 else f' {one}'}" for one in lacking]
    told = f" (each asks for {' and '.join(asks)})"
    if available is not None and len(lacking) == 1 and re.fullmatch(r"\d+ Insufficient \S+", available[2]):
        return f"{available[1]} nodes have enough {lacking[0]}{told}"
    return message + told


def requested(spec: Mapping[str, Any], resource: str) -> str:
    """Return how much of a resource a pod requests, as the scheduler counts it.

    That is what the pod itself requests, if it does. Else it is the most of what runs at one time: its containers with
    all sidecars, or an init container with the sidecars that started before it.
    """

    def of(holder: Mapping[str, Any]) -> int | None:
        found = mapping(mapping(holder.get("resources")).get("requests")).get(resource)
        return None if found is None else _quantity(found)

    most, sidecars = 0, 0
    for one in mappings(spec.get("initContainers")):
        asked = of(one) or 0
        if one.get("restartPolicy") == "Always":
            sidecars += asked
        else:
            most = max(most, sidecars + asked)
    most = max(most, sidecars + sum(of(one) or 0 for one in mappings(spec.get("containers"))))
    whole = of(spec)
    overhead = _quantity(mapping(spec.get("overhead")).get(resource) or 0)
    return format_quantity((most if whole is None else whole) + overhead)


def _quantity(value: Any) -> int:
    try:
        return parse_quantity(value)
    except ValueError:
        return 0
