"""Why a controller cannot create pods: a quota, a webhook, a right. Its Events say so, its status does not (D34)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from holdfast.activities.facts.scheduling import MESSAGE_MAXIMUM
from holdfast.activities.kube.client import Forbidden, Kube
from holdfast.activities.kube.raw import mapping, mappings, one_line, time_of
from holdfast.model.calls.cluster import PlannedComponent
from holdfast.model.observation import FAILED_CREATE

FIELDS: Final = f"type=Warning,reason={FAILED_CREATE}"


async def events_of(kube: Kube, namespace: str) -> list[Mapping[str, Any]]:
    """Return the Events of a namespace about pods that could not be created; empty if Events may not be read.

    Raises:
        KubeError: if the read fails otherwise.
    """
    try:
        return mappings((await kube.list("v1", "Event", namespace, fields=FIELDS))["items"])
    except Forbidden:
        return []


def words(events: Iterable[Mapping[str, Any]], plan: Sequence[PlannedComponent], since: datetime) -> dict[str, str]:
    """Return the latest Event message for each component of a plan. Pure.

    An Event is about the component's own object, or one made from it, whose name begins with that name: a Deployment's
    ReplicaSet, a JobSet's Job. Events before `since` are about an earlier attempt.
    """
    latest: dict[str, tuple[datetime, str]] = {}
    for event in events:
        at = _at(event)
        if at is None or at < since or event.get("reason") != FAILED_CREATE:
            continue
        name = str(mapping(event.get("involvedObject")).get("name") or "")
        for component in plan:
            if component.name in latest and latest[component.name][0] >= at:
                continue
            if any(name == one or name.startswith(f"{one}-") for one in component.object_names):
                latest[component.name] = (at, one_line(event.get("message"), MESSAGE_MAXIMUM))
    return {name: message for name, (_, message) in sorted(latest.items())}


def _at(event: Mapping[str, Any]) -> datetime | None:
    series = mapping(event.get("series")).get("lastObservedTime")
    return time_of(series) or time_of(event.get("lastTimestamp")) or time_of(event.get("eventTime"))
