"""Why a node has not prepared a pod: the pod's status does not say, its Events do (row L16)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from holdfast.activities.facts.pods import MESSAGE_MAXIMUM, NOT_PREPARED, PodFacts
from holdfast.activities.kube.client import Forbidden, Kube
from holdfast.activities.kube.raw import mappings, one_line

WORDS: Final = frozenset(
    {"FailedMount", "FailedAttachVolume", "FailedMapVolume", "FailedCreatePodSandBox", "NetworkNotReady"}
)
"""Reasons of Events that say why."""
ASKED_MAXIMUM: Final = 3
"""Pods whose Events are read in one look: a cause that affects many pods shows on the first of them."""


async def with_event_reasons(kube: Kube, pods: Sequence[PodFacts], attempt: int, at: datetime) -> list[PodFacts]:
    """Return the pods of a live look; those that are not prepared get the reason from their Events.

    If Events may not be read, or none is left, the pods are unchanged.
    """
    late = [pod for pod in pods if pod.attempt == attempt and pod.reason == NOT_PREPARED and _is_due(pod, at)]
    late = sorted(late, key=lambda pod: pod.name)[:ASKED_MAXIMUM]
    if not late:
        return [*pods]
    try:
        said = await asyncio.gather(*(_word(kube, pod) for pod in late))
    except Forbidden:
        return [*pods]
    known = {pod.uid: pod for pod in said}
    return [known.get(pod.uid, pod) for pod in pods]


def _is_due(pod: PodFacts, at: datetime) -> bool:
    return pod.stuck_from is not None and pod.stuck_from <= at


async def _word(kube: Kube, pod: PodFacts) -> PodFacts:
    fields = f"involvedObject.uid={pod.uid},type=Warning"
    found = await kube.list("v1", "Event", pod.namespace, fields=fields)
    events = [one for one in mappings(found["items"]) if one.get("reason") in WORDS]
    if not events:
        return pod
    last = max(events, key=_last)
    return replace(pod, reason=str(last["reason"]), message=one_line(last.get("message"), MESSAGE_MAXIMUM))


def _last(event: Mapping[str, Any]) -> str:
    # All are written in UTC, and each field in one format, so the text sorts by time.
    return str(event.get("lastTimestamp") or event.get("eventTime") or "")
