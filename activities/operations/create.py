"""Creates all components in order, then marks the attempt submitted; can refuse to complete a half-made creation."""

from __future__ import annotations

import asyncio

from temporalio import activity

from holdfast import names
from holdfast.activities.data.room import Use
from holdfast.activities.data.stage import still_whole
from holdfast.activities.entities.over import is_over
from holdfast.activities.kube.client import Conflict, NotFound, Object
from holdfast.activities.kube.priority import BEGINNING
from holdfast.activities.kube.raw import mapping
from holdfast.activities.objects.copies import make_component
from holdfast.activities.objects.make import (
    Interrupted,
    OwnerLost,
    Refusal,
    failure_of,
    is_owned,
    living_owner,
    lost_of,
    ref_of,
)
from holdfast.activities.objects.volume_claims import make_claims
from holdfast.activities.operations.report import apply_report, patch_status
from holdfast.activities.site.site import Pulse, Site, as_retryable_errors, is_broken_off, persist, tries
from holdfast.model import ObjectRef
from holdfast.model.calls.cluster import Created, CreateInput, PlannedComponent, copies_ref, planned


async def create(site: Site, given: CreateInput) -> Created:
    """Create all components, then mark the attempt's owner submitted.

    If a half-made creation must be replaced (S4), a second try of this activity means that the first was interrupted.
    It then creates nothing more, and returns `Created.interrupted`.

    Raises:
        ApplicationError: of type `ClusterMismatch` or `ClusterUnreachable`, both retried.
    """
    site.check(given.target)
    objects: list[ObjectRef] = []
    async with as_retryable_errors(), Pulse() as pulse:
        try:
            await site.precedence.give_way(BEGINNING)
            return await create_under(site, given, pulse, objects)
        except asyncio.CancelledError:
            if not (given.hands_over and is_broken_off()):
                raise
            return Created(objects=tuple(objects), borne=pulse.borne, broken_off=True)


async def create_under(
    site: Site, given: CreateInput, pulse: Pulse, objects: list[ObjectRef], owner: Object | None = None
) -> Created:
    """Create what does not exist yet, and append each object to `objects` once it exists.

    Args:
        site: the cluster.
        given: what to create.
        pulse: the heartbeats.
        objects: what exists, also if this is broken off.
        owner: the attempt's owner, if it has just been read or made.
    """
    try:
        if owner is None:
            owner = await persist(pulse, "looking for the owner", lambda: living_owner(site, given))
        return await _create_all(site, given, pulse, objects, owner)
    except OwnerLost as lost:
        return Created(failure=lost_of(given, str(lost)))
    except Interrupted as interrupted:
        return Created(interrupted=str(interrupted))


async def _create_all(site: Site, given: CreateInput, pulse: Pulse, objects: list[ObjectRef], owner: Object) -> Created:
    if given.replaces_interrupted:
        if _is_submitted(owner):
            return await _as_submitted(site, given, pulse)
        if tries() > 1:
            raise Interrupted(f"the submission of attempt {given.attempt} was interrupted: it is replaced whole")
    await persist(pulse, "reporting", lambda: apply_report(site, given.target, given.report))
    if given.components and (why := await lost_data(site, given, pulse)):
        lost = Refusal("DataNotReady", why)
        return Created(failure=failure_of(given, given.components[0], lost))
    try:
        await make_claims(site, given, owner, pulse)
    except Refusal as refusal:
        return Created(failure=failure_of(given, given.components[0], refusal), exhausted=not refusal.final)
    for index, component in enumerate(given.components):
        if component.copies is not None:
            objects.append(copies_ref(component))  # However many copies get created: a hand-over needs this.
        try:
            looked = index == 0 and given.report.repeats  # Then nothing has been sent since the owner was read.
            made = await make_component(site, given, component, pulse, _waiting_for(given, index), looked=looked)
            if component.copies is None:
                objects.append(made)
        except Refusal as refusal:
            failure = failure_of(given, component, refusal)
            return Created(objects=tuple(objects), failure=failure, exhausted=not refusal.final)
    await persist(pulse, "marking the attempt submitted", lambda: _mark_submitted(site, given, owner))
    await persist(pulse, "reporting", lambda: apply_report(site, given.target, given.report_submitted))
    return Created(objects=tuple(objects))


async def lost_data(site: Site, given: CreateInput, pulse: Pulse) -> str:
    """Complete the data sets that the pods read; return why they can never read them, empty if they can (row X10)."""

    async def ended(namespace: str, use: Use) -> bool:
        return await is_over(site, activity.client(), namespace, use)

    return await still_whole(site, given.target, given.data, pulse, ended)


def _waiting_for(given: CreateInput, made: int) -> str:
    """Describe what is still to be created, by kind: `waiting for 1 of 1 ConfigMap, 3 of 12 Pod: `."""
    every = [
        (index, str(component.template["kind"]))
        for index, component in enumerate(given.components)
        for _ in range(1 if component.copies is None else component.copies)
    ]
    kinds, still = [kind for _, kind in every], [kind for index, kind in every if index >= made]
    left = [f"{still.count(kind)} of {kinds.count(kind)} {kind}" for kind in dict.fromkeys(still)]
    return f"waiting for {', '.join(left)}: "


async def _as_submitted(site: Site, given: CreateInput, pulse: Pulse) -> Created:
    """Return what an earlier try submitted, without changing any of it (row S3)."""
    objects: list[ObjectRef] = []
    for component in given.components:
        plan = planned(component, given.target.workload_uid, given.attempt)
        if component.copies is not None:
            objects.append(copies_ref(component))
            continue

        async def read(plan: PlannedComponent = plan) -> Object | None:
            return await site.read_component(given.target, plan.api_version, plan.kind, plan.object_name)

        found = await persist(pulse, f"looking for {plan.kind} {plan.object_name}", read)
        if found is not None and is_owned(found, given.owner_uid):
            objects.append(ref_of(found, plan.api_version, plan.kind))
    await persist(pulse, "reporting", lambda: apply_report(site, given.target, given.report_submitted))
    return Created(objects=tuple(objects))


async def _mark_submitted(site: Site, given: CreateInput, owner: Object) -> None:
    """Mark the owner submitted: all components were created, so from now on an absent component is a missing one.

    The owner was read before they were created. If it changed since, the patch conflicts and the owner is read again.
    """
    while True:
        if _is_submitted(owner):
            return
        key = (names.API_VERSION, names.ATTEMPT_KIND, owner["metadata"]["name"], given.target.namespace)
        try:
            await patch_status(site.kube, key, owner, {"submitted": True})
        except (Conflict, NotFound):
            owner = await living_owner(site, given)
            continue
        return


def _is_submitted(owner: Object) -> bool:
    return mapping(owner.get("status")).get("submitted") is True
