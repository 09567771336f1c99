"""Clearing: deletes what is still active of an ended workload and proves it gone; keeps objects that have ended."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from temporalio import activity

from holdfast import names
from holdfast.activities.evidence.take import take_evidence
from holdfast.activities.facts.components import has_ended
from holdfast.activities.facts.objects import object_facts
from holdfast.activities.facts.pods import PodFacts, pod_facts
from holdfast.activities.kube.client import Conflict, NotFound, Object, Unreachable
from holdfast.activities.kube.raw import mapping
from holdfast.activities.kube.trim import Trace, lean, trace
from holdfast.activities.objects.ancestry import own_pods
from holdfast.activities.objects.copies import read_objects
from holdfast.activities.objects.make import is_owned
from holdfast.activities.operations.observe import look
from holdfast.activities.operations.replace import REFUSED_TOLD, delete_all, force_pods, forceable, told_of
from holdfast.activities.operations.report import apply_report
from holdfast.activities.site.deadline import Deadline, Grace
from holdfast.activities.site.site import RETRY_FIRST, Pulse, Site, as_retryable_errors, persist
from holdfast.model.calls.cluster import Cleared, ClearInput, ObserveInput, PlannedComponent

_POLL_FIRST = 0.1
_POLL_LAST = 2.0


@dataclass(slots=True)
class _Going:
    """The objects and pods of one component that are still active or being deleted."""

    plan: PlannedComponent
    objects: list[Object] = field(default_factory=list[Object])
    pods: list[Object] = field(default_factory=list[Object])


async def clear(site: Site, given: ClearInput) -> Cleared:
    """Keep evidence if asked to, delete what is still active, prove it gone, and observe what is kept (rows J12, P3).

    Raises:
        ApplicationError: of type `ClusterMismatch` or `ClusterUnreachable`, both retried.
    """
    site.check(given.target)
    async with as_retryable_errors(), Pulse() as pulse:
        await persist(pulse, "reporting", lambda: apply_report(site, given.target, given.report))
        # The mark goes before the first deletion: while the owner is without it, no try has deleted anything.
        begins = await persist(pulse, "reading the attempt", lambda: _is_unmarked(site, given))
        evidence = await take_evidence(site, given, untouched=begins)
        if begins:
            await persist(pulse, "marking the attempt ended", lambda: _mark_ended(site, given))
        if not await _until_gone(site, given, pulse):
            return Cleared(done=False, evidence=evidence)
        seen = await persist(pulse, "looking at what is kept", lambda: look(site, _observing(given)))
        await persist(pulse, "reporting", lambda: apply_report(site, given.target, given.report_done))
        return Cleared(done=True, seen=seen.model_copy(update={"blind": site.blind(pulse.blind)}), evidence=evidence)


def _observing(given: ClearInput) -> ObserveInput:
    return ObserveInput(
        target=given.target,
        attempt=given.attempt,
        owner_uid=given.owner_uid,
        plan=given.plan,
        report=given.report,
    )


async def _is_unmarked(site: Site, given: ClearInput) -> bool:
    """Whether the owner exists and is not marked as ended yet."""
    name = given.target.attempt_name(given.attempt)
    owner = await site.kube.find(names.API_VERSION, names.ATTEMPT_KIND, name, given.target.namespace)
    if owner is None or owner["metadata"]["uid"] != given.owner_uid:
        return False
    return names.ANNOTATION_ENDED not in mapping(owner["metadata"].get("annotations"))


async def _mark_ended(site: Site, given: ClearInput) -> None:
    """Mark the owner, if it exists, as ended: from then on nothing is created under it or counts as missing."""
    with suppress(NotFound, Conflict):
        await site.kube.patch(
            names.API_VERSION,
            names.ATTEMPT_KIND,
            given.target.attempt_name(given.attempt),
            given.target.namespace,
            uid=given.owner_uid,
            patch={"metadata": {"annotations": {names.ANNOTATION_ENDED: "true"}}},
        )


async def _until_gone(site: Site, given: ClearInput, pulse: Pulse) -> bool:
    """Delete what is active, repeatedly, until it is proven gone; return False if time runs out first."""
    clock = asyncio.get_running_loop().time
    deadline = _deadline(given, clock())
    grace, delay = Grace(site.grace(given.grace)), _POLL_FIRST
    while True:
        try:
            going = await _active(site, given)
            if not going:
                return True
            kept = dict[str, str]()
            pods: list[Mapping[str, Any]] = []
            for one in going:
                fresh = [thing for thing in one.objects if "deletionTimestamp" not in thing["metadata"]]
                # An object that changed since it was read may have ended: the next round reads it again.
                whys = await delete_all(site, given.target, fresh, one.plan, as_read=True)
                pods += forceable(one.pods, whys)
                kept |= whys
            grace.see(kept.keys())
            refused = [*kept.values()]
            refused += await force_pods(site, given.target, pods) if grace.is_over else ()
            left = refused[:REFUSED_TOLD] + [told_of(one.plan, one.objects, one.pods) for one in going]
            pulse.say("waiting for what was still active to go", left[:16], len(going))
        except Unreachable as error:
            pulse.say(f"deleting what is still active: the API server does not answer: {error.message}", *pulse.told)
            grace.miss()
            await asyncio.sleep(RETRY_FIRST)
        pulse.blind = site.blind(pulse.blind)
        left_over = deadline.left(clock()) if deadline is not None else delay
        if left_over <= 0:
            return False
        await asyncio.sleep(min(delay, left_over))
        delay = min(delay * 1.5, _POLL_LAST)


def _deadline(given: ClearInput, now: float) -> Deadline | None:
    if given.until is None:
        return None
    wall = datetime.now(UTC)
    started = activity.info().started_time if activity.in_activity() else wall
    return Deadline(given.until, started, wall, now)


async def _active(site: Site, given: ClearInput) -> list[_Going]:
    """Return what has not ended, by quorum reads; objects are read first, so that no pod of a deleted one is missed."""
    target = given.target
    read = [(plan, await read_objects(site, target, plan, given.attempt, lean)) for plan in given.plan]
    labels = f"{names.LABEL_WORKLOAD_UID}={target.workload_uid},{names.LABEL_ATTEMPT}={given.attempt}"

    def facts_and_trace(pod: Object) -> tuple[PodFacts, Trace]:
        return pod_facts(pod), trace(pod)

    listed = await site.kube.list("v1", "Pod", target.namespace, labels=labels, keep=facts_and_trace)
    pods: dict[str, list[tuple[PodFacts, Object]]] = {}
    for facts, pod in await own_pods(site, target, given.plan, listed["items"], lambda one: one[0].controller):
        pods.setdefault(facts.component, []).append((facts, pod))
    found = [_going(given, plan, objects, pods.get(plan.name, [])) for plan, objects in read]
    return [one for one in found if one.objects or one.pods]


def _going(
    given: ClearInput, plan: PlannedComponent, objects: Sequence[Object | None], pods: Sequence[tuple[PodFacts, Object]]
) -> _Going:
    """Return the parts of a component that have not ended; another owner's object of the same name is left out."""
    going, kept = _Going(plan), set[int | None]()
    for index, (name, found) in enumerate(zip(plan.object_names, objects, strict=True)):
        if found is None or not is_owned(found, given.owner_uid):
            continue
        copy = None if plan.copies is None else index
        one = plan.model_copy(update={"object_name": name, "expected_pods": plan.pods_each, "copies": None})
        of_it = [facts for facts, _ in pods if facts.copy == copy]
        if "deletionTimestamp" not in found["metadata"] and has_ended(one, object_facts(found), of_it):
            kept.add(copy)
        else:
            going.objects.append(found)
    going.pods = [pod for facts, pod in pods if facts.copy not in kept]
    return going
