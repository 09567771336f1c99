"""Status reports: applies a report to the workload's anchor, idempotently, and writes each of its Events once."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from holdfast import names
from holdfast.activities.kube.client import (
    REFUSED,
    Conflict,
    Kube,
    KubeError,
    NotFound,
    Object,
    UnknownKind,
    Unreachable,
)
from holdfast.activities.kube.raw import mapping, mappings
from holdfast.activities.site.anchor import Key, creator_of, is_ours, key_of, may_change, sequence_of, shown
from holdfast.activities.site.anchoring import anchor_early
from holdfast.activities.site.site import Pulse, Site, as_retryable_errors, user_of
from holdfast.model import Report
from holdfast.model.calls.cluster import Reported, ReportInput, Target

MESSAGE_MAXIMUM = 1024
_ANCHOR = (names.API_VERSION, names.ANCHOR_KIND)


async def report(site: Site, given: ReportInput) -> Reported:
    """Apply a status to the anchor, which is made first if that is asked for; a missing anchor is not an error."""
    site.check(given.target)
    async with as_retryable_errors(), Pulse() as pulse:
        if given.anchor is not None and not await anchor_early(site, given.target, given.anchor, pulse):
            return Reported()
        sequence, anchor = await applied(site, given.target, given.report)
        creator = creator_of(given.target, anchor) if anchor is not None else ""
        return Reported(sequence=sequence, creator=creator, anchored=given.anchor is not None)


async def apply_report(site: Site, target: Target, report: Report) -> int:
    """Apply a report to the workload's anchor unless a later one is there; write its Events unless they exist.

    A report that an earlier operation left unwritten comes first.

    Returns:
        The sequence of the later report on the anchor, 0 if there is none.
    """
    return (await applied(site, target, report))[0]


async def applied(
    site: Site, target: Target, report: Report, *, tells: bool = True
) -> tuple[int, Mapping[str, Any] | None]:
    """Apply a report as `apply_report` does; without its Events unless it `tells` them.

    Returns:
        The sequence of the later report on the anchor, 0 if there is none; and the anchor with the report, None if
        there is no anchor, or if the report says nothing new.
    """
    if report.repeats:
        return 0, None
    if report.before is not None:
        await _apply(site, target, report.before)
    return await _apply(site, target, report, tells=tells)


async def tell_events(site: Site, target: Target, report: Report) -> None:
    """Write the Events of a report whose status is written, or needless since a later report says more."""
    anchor = site.known.look(target) or (await site.kube.find(*key_of(target)) if report.events else None)
    if anchor is not None and is_ours(site, target, anchor):
        await _write_events(site, target, report, anchor)


async def _write_events(site: Site, target: Target, report: Report, anchor: Mapping[str, Any]) -> None:
    for event in events_of(report, anchor, datetime.now(UTC), key_of(target)[:2]):
        await _write_event(site.kube, event)


async def unlist(site: Site, target: Target, report: Report) -> None:
    """Delete the attempt's Services, so that no client is sent to pods that no longer serve (row L30).

    A Service that may not be deleted stays until the attempt is removed; the removal reports why it cannot be deleted.
    """
    for entry in report.unlist:
        with suppress(NotFound, Conflict, *REFUSED):
            await site.kube.delete(
                "v1", "Service", entry.name, target.namespace, uid=entry.uid, impersonate=user_of(target)
            )


async def _apply(
    site: Site, target: Target, report: Report, *, tells: bool = True
) -> tuple[int, Mapping[str, Any] | None]:
    await unlist(site, target, report)
    kube, key = site.kube, key_of(target)
    while True:
        remembered = site.known.take(target)
        anchor = remembered or await kube.find(*key)
        if anchor is None or not await may_change(site, target, anchor):
            return 0, None
        sequence = sequence_of(target, anchor)
        if remembered is not None and sequence >= report.sequence:
            continue  # Memory does not prove what is written: read the anchor.
        if sequence > report.sequence:
            return sequence, anchor
        if sequence == report.sequence:
            break
        try:
            anchor = await write_over(site, target, anchor, report)
            break
        except Conflict:
            continue
        except NotFound:
            if remembered is None:
                return 0, None
    site.known.keep(target, anchor)
    if tells:
        await _write_events(site, target, report, anchor)
    return 0, anchor


async def write_over(
    site: Site, target: Target, anchor: Mapping[str, Any], report: Report, marks: Mapping[str, str] | None = None
) -> Object:
    """Write a report over an anchor as it was read, and the marks of what begins (records 0065 and 0086).

    Raises:
        Conflict: if it has changed since; NotFound: if it is gone.
        Unreachable: if it is there, and its status is not served.
    """
    status = _shown(target, anchor, report, datetime.now(UTC))
    return await patch_status(site.kube, key_of(target), anchor, {**status, **(marks or {})})


async def patch_status(kube: Kube, key: Key, thing: Mapping[str, Any], status: Object) -> Object:
    """Write the status of a custom resource as it was read.

    Raises:
        Conflict: if it has changed since; NotFound: if it is gone.
        Unreachable: if it is there, and its status is not served: for a moment after its kind was applied, or by a
            definition that is not Holdfast's.
    """
    metadata = thing["metadata"]
    try:
        return await kube.patch(
            *key,
            uid=metadata["uid"],
            resource_version=metadata["resourceVersion"],
            subresource="status",
            patch={"status": status},
        )
    except UnknownKind as error:
        if await kube.find(*key) is None:
            raise
        what = f"the status of {key[1]} {key[3]}/{key[2]} is not served"
        raise Unreachable(error.status, error.reason, f"{what}: {error.message}") from error


def _shown(target: Target, anchor: Mapping[str, Any], report: Report, now: datetime) -> Object:
    return shown(target, anchor, report, now) or status_of(report, mapping(anchor.get("status")), now)


def status_of(report: Report, before: Mapping[str, Any], now: datetime) -> Object:
    """Return the anchor's status for a report; a condition that has not changed keeps its transition time. Pure."""
    known = {one.get("type"): one for one in mappings(before.get("conditions"))}
    conditions: list[Object] = []
    for condition in report.conditions:
        status = "True" if condition.status else "False"
        old = mapping(known.get(condition.type.value))
        kept = old.get("lastTransitionTime") if old.get("status") == status else None
        conditions.append(
            {
                "type": condition.type.value,
                "status": status,
                "reason": condition.reason.value,
                "message": condition.message,
                "lastTransitionTime": kept or _stamp(now),
            }
        )
    return {
        "sequence": report.sequence,
        "phase": report.phase.value,
        "reason": report.reason.value,
        "message": report.message,
        "attempt": report.attempt,
        "executions": report.executions,
        "restarts": report.restarts,
        "conditions": conditions,
    }


def events_of(
    report: Report, anchor: Mapping[str, Any], now: datetime, kind: tuple[str, str] = _ANCHOR
) -> list[Object]:
    """Return a report's Events; an Event has the same name each time it is built. Pure."""
    metadata: Mapping[str, Any] = anchor["metadata"]
    made: list[Object] = []
    for index, event in enumerate(report.events):
        suffix = f".{metadata['uid']}.{report.sequence}.{index}"
        one = event_on(kind, metadata, suffix, event.reason.value, event.message, now)
        one["metadata"]["annotations"] = {names.LABEL_ATTEMPT: str(event.attempt)}
        made.append({**one, "type": event.type})
    return made


def event_on(
    kind: tuple[str, str],
    metadata: Mapping[str, Any],
    suffix: str,
    reason: str,
    message: str,
    now: datetime,
) -> dict[str, Any]:
    """Return an Event on an object. Pure.

    Args:
        kind: the object's API version and kind.
        metadata: the object's name, namespace and uid.
        suffix: appended to the object's name to form the Event's, so that it is written once.
        reason: one word.
        message: what happened; truncated if it is longer than the API server accepts.
        now: the time.
    """
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": metadata["name"][: 253 - len(suffix)].rstrip("-.") + suffix,
            "namespace": metadata["namespace"],
        },
        "involvedObject": {
            "apiVersion": kind[0],
            "kind": kind[1],
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
        },
        "type": "Normal",
        "reason": reason,
        "message": message[:MESSAGE_MAXIMUM],
        "source": {"component": names.EVENT_SOURCE},
        "reportingComponent": names.EVENT_SOURCE,
        "reportingInstance": names.EVENT_SOURCE,
        "firstTimestamp": _stamp(now),
        "lastTimestamp": _stamp(now),
        "count": 1,
    }


async def _write_event(kube: Kube, event: Object) -> None:
    try:
        await kube.create(event)
    except Unreachable:
        raise
    except KubeError:
        # It exists already, or the namespace is being deleted: an Event is never worth failing for.
        return


def _stamp(now: datetime) -> str:
    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
