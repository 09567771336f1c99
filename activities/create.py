"""Creation: all components in order, create-only, as the run-as account; what is there already must be our own."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from holdfast import names
from holdfast.activities.contract import Created, CreateInput
from holdfast.activities.inject import InjectionError, inject
from holdfast.activities.kube import (
    AlreadyExists,
    Conflict,
    Forbidden,
    KubeError,
    NotFound,
    Object,
    QuotaExceeded,
    Unreachable,
    WebhookFailed,
)
from holdfast.activities.raw import mapping, mappings
from holdfast.activities.report import apply_report
from holdfast.activities.site import RETRY_FIRST, RETRY_LAST, Pulse, Site, persist, told, user_of
from holdfast.model import Component, Failure, FailureClass, ObjectRef, Scope

OWNER_GONE = "OwnerGone"
"""Reason: the attempt's owner is gone or being deleted, so nothing is to be created under it any more."""

_MESSAGE_MAXIMUM = 500


class _Refusal(Exception):
    """A component cannot be created; `final` refusals stay so, others may pass."""

    def __init__(self, reason: str, message: str, *, final: bool = False) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.final = final


class _OwnerLost(Exception):
    """The attempt's owner is gone or going, by another hand than ours."""


async def create(site: Site, given: CreateInput) -> Created:
    """Create all components, then mark the attempt's owner submitted.

    Raises:
        ApplicationError: of type `ClusterMismatch` or `ClusterUnreachable`, both retried.
    """
    site.check(given.target)
    async with told(), Pulse() as pulse:
        try:
            return await _create_all(site, given, pulse)
        except _OwnerLost as lost:
            return Created(failure=_lost(given, str(lost)))


async def _create_all(site: Site, given: CreateInput, pulse: Pulse) -> Created:
    await persist(pulse, "looking for the owner", lambda: _living_owner(site, given))
    await persist(pulse, "reporting", lambda: apply_report(site.kube, given.target, given.report))
    objects: list[ObjectRef] = []
    for component in given.components:
        try:
            objects.append(await _create_patiently(site, given, component, pulse))
        except _Refusal as refusal:
            return Created(objects=tuple(objects), failure=_failure(given, component, refusal))
    await persist(pulse, "marking the attempt submitted", lambda: _mark_submitted(site, given))
    await persist(pulse, "reporting", lambda: apply_report(site.kube, given.target, given.report_submitted))
    return Created(objects=tuple(objects))


async def _create_patiently(site: Site, given: CreateInput, component: Component, pulse: Pulse) -> ObjectRef:
    """Create one component, bearing what may pass for as long as the workload's patience lasts."""
    try:
        sent = inject(
            component,
            target=given.target,
            attempt=given.attempt,
            owner_uid=given.owner_uid,
            installation=site.installation,
            labels=given.labels,
        )
    except InjectionError as error:
        raise _Refusal("Invalid", str(error), final=True) from None
    subject = f"{component.template['kind']} {sent['metadata']['name']}"
    delay = RETRY_FIRST
    pulse.say(f"creating {subject}")
    while True:
        # A worker that another has taken over from learns it here: one request may come late, but no second one.
        await persist(pulse, "looking for the owner", lambda: _living_owner(site, given))
        begun = asyncio.get_running_loop().time()
        try:
            made = await _create_once(site, given, sent)
        except Unreachable as error:
            pulse.say(f"creating {subject}: the API server does not answer: {error.message}")
            await asyncio.sleep(max(delay, error.retry_after or 0.0))
        except _Refusal as refusal:
            if refusal.final or pulse.borne >= given.patience:
                raise
            pulse.say(f"creating {subject}: {refusal.message}")
            await asyncio.sleep(min(delay, max(given.patience - pulse.borne, 0.05)))
            pulse.borne += asyncio.get_running_loop().time() - begun
        else:
            return ObjectRef(
                api_version=sent["apiVersion"],
                kind=sent["kind"],
                name=made["metadata"]["name"],
                uid=made["metadata"]["uid"],
            )
        delay = min(delay * 2, RETRY_LAST)


async def _create_once(site: Site, given: CreateInput, sent: Object) -> Object:
    """Create the object, or find that it is there already and ours."""
    try:
        return await site.kube.create(sent, impersonate=user_of(given.target))
    except AlreadyExists:
        return await _recognize(site, given, sent)
    except Unreachable:
        raise
    except QuotaExceeded as error:
        raise _Refusal("QuotaExceeded", error.message) from None
    except WebhookFailed as error:
        raise _Refusal("WebhookFailed", error.message) from None
    except Conflict as error:
        # Not the object itself: the server lost a race of its own, for example over a quota's count.
        raise _Refusal("Conflict", error.message) from None
    except Forbidden as error:
        # The rights were reviewed before; an authorizer that misses a role may only not have read it yet.
        raise _Refusal("Forbidden", error.message, final="RBAC: " not in error.message) from None
    except KubeError as error:
        raise _Refusal(error.reason or "Invalid", error.message, final=True) from None


async def _recognize(site: Site, given: CreateInput, sent: Object) -> Object:
    """Return the object that is there if an earlier try of ours made it; say whose it is otherwise."""
    metadata = sent["metadata"]
    found = await site.read_component(given.target, sent["apiVersion"], sent["kind"], metadata["name"])
    what = f"{sent['kind']} {given.target.namespace}/{metadata['name']}"
    if found is None:
        raise _Refusal("AlreadyExists", f"{what} was there, and went while it was looked at")
    there = mapping(found["metadata"])
    if "deletionTimestamp" in there:
        finalizers = ", ".join(there.get("finalizers") or ()) or "none"
        raise _Refusal("BeingDeleted", f"{what} is still being deleted (finalizers: {finalizers})")
    owners = mappings(there.get("ownerReferences"))
    if given.owner_uid in {owner.get("uid") for owner in owners}:
        hash_there = mapping(there.get("annotations")).get(names.ANNOTATION_SENT_HASH)
        if hash_there == metadata["annotations"][names.ANNOTATION_SENT_HASH]:
            return found
        raise _Refusal("AlreadyExists", f"{what} is this attempt's, and was sent as something else before", final=True)
    for owner in owners:
        if owner.get("kind") == names.ATTEMPT_KIND and owner.get("apiVersion") == names.API_VERSION:
            await _wait_for_collector(site, given, owner, what)
    raise _Refusal("AlreadyExists", f"{what} is there already and is not ours: {_described(there)}", final=True)


async def _wait_for_collector(site: Site, given: CreateInput, owner: Mapping[str, Any], what: str) -> None:
    """Refuse for now, if an object's owner is an attempt that is going or gone: the collector will take the object."""
    name = str(owner.get("name", ""))
    attempt = await site.kube.find(names.API_VERSION, names.ATTEMPT_KIND, name, given.target.namespace)
    if (
        attempt is None
        or attempt["metadata"].get("uid") != owner.get("uid")
        or "deletionTimestamp" in attempt["metadata"]
    ):
        raise _Refusal("BeingDeleted", f"{what} belongs to attempt {name}, which is being removed")


async def _living_owner(site: Site, given: CreateInput) -> Object:
    """Return the attempt's owner.

    Raises:
        _OwnerLost: if it is not there, or being deleted.
    """
    name = names.attempt_name(given.target.name, given.attempt)
    owner = await site.kube.find(names.API_VERSION, names.ATTEMPT_KIND, name, given.target.namespace)
    if owner is None or owner["metadata"]["uid"] != given.owner_uid or "deletionTimestamp" in owner["metadata"]:
        raise _OwnerLost(
            f"attempt {given.target.namespace}/{name} is gone or being deleted: nothing more is created under it"
        )
    return owner


async def _mark_submitted(site: Site, given: CreateInput) -> None:
    """Say on the owner that all components have been created, so that from now on one not there is one gone."""
    while True:
        owner = await _living_owner(site, given)
        if mapping(owner.get("status")).get("submitted") is True:
            return
        metadata = owner["metadata"]
        try:
            await site.kube.patch(
                names.API_VERSION,
                names.ATTEMPT_KIND,
                metadata["name"],
                given.target.namespace,
                uid=given.owner_uid,
                resource_version=metadata["resourceVersion"],
                subresource="status",
                patch={"status": {"submitted": True}},
            )
        except (Conflict, NotFound):
            continue
        return


def _failure(given: CreateInput, component: Component, refusal: _Refusal) -> Failure:
    return Failure(
        cls=FailureClass.LAUNCH,
        scope=Scope.COMPONENT,
        reason=refusal.reason,
        time=datetime.now(UTC),
        component=component.name,
        message=refusal.message[:_MESSAGE_MAXIMUM],
        attempt=given.attempt,
    )


def _lost(given: CreateInput, message: str) -> Failure:
    return Failure(
        cls=FailureClass.MISSING,
        scope=Scope.WORKLOAD,
        reason=OWNER_GONE,
        time=datetime.now(UTC),
        message=message,
        attempt=given.attempt,
    )


def _described(metadata: Mapping[str, Any]) -> str:
    """Say whose an object is, as far as it says so itself."""
    owners = [f"{owner.get('kind')} {owner.get('name')}" for owner in mappings(metadata.get("ownerReferences"))]
    workload = mapping(metadata.get("annotations")).get(names.ANNOTATION_WORKLOAD)
    if workload:
        owners.append(f"workload {workload}")
    return (
        f"it belongs to {', '.join(owners)}"
        if owners
        else f"it has no owner, created {metadata.get('creationTimestamp')}"
    )
