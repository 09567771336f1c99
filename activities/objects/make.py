"""Creates one component under an attempt's owner: create-only, as the run-as account; what exists must be ours."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from holdfast import names
from holdfast.activities.facts.objects import launch_of
from holdfast.activities.kube.client import (
    AlreadyExists,
    Conflict,
    Forbidden,
    KubeError,
    Object,
    QuotaExceeded,
    Unreachable,
    WebhookFailed,
)
from holdfast.activities.kube.raw import mapping, mappings
from holdfast.activities.objects.attempts import living_owner_of
from holdfast.activities.objects.inject import InjectionError, Placement, inject
from holdfast.activities.objects.inject_data import place_of
from holdfast.activities.objects.verdict import without_content
from holdfast.activities.site.closed import is_account, withdrawn
from holdfast.activities.site.priorities import priority_class
from holdfast.activities.site.site import RETRY_FIRST, RETRY_LAST, Pulse, Site, persist, user_of
from holdfast.model import Component, CopyWord, Failure, FailureClass, ObjectRef, Scope
from holdfast.model.calls.cluster import CreateInput, MakeInput, has_copy
from holdfast.model.calls.plan import sources_of

OWNER_GONE = "OwnerGone"
"""Reason: the attempt's owner is gone or being deleted, so nothing more is created under it."""

_MESSAGE_MAXIMUM = 500

Recognize = Callable[[Object], Object]
"""Returns an object that is there already if it is the wanted one; otherwise raises `Refusal`."""


class Refusal(Exception):
    """A component cannot be created; `final` refusals are permanent, others may pass."""

    def __init__(self, reason: str, message: str, *, final: bool = False) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.final = final
        self.subject = ""
        """The copy that cannot be created, where the component has copies; or the workload's own claim."""


class OwnerLost(Exception):
    """The attempt's owner is gone or being deleted, and not by us."""


class Outdated(Exception):
    """An earlier launch of a component was there, created by a late request: it must be deleted first."""


class Interrupted(Exception):
    """The object to create exists already, left by a try that was interrupted before it finished."""


async def make_patiently(
    site: Site,
    given: MakeInput,
    component: Component,
    pulse: Pulse,
    waiting_for: str = "",
    copy_index: int | None = None,
    *,
    looked: bool = False,
) -> ObjectRef:
    """Create one component's object, or one copy of it; retry refusals that may pass until patience runs out.

    Args:
        site: the cluster.
        given: what to create, and for which attempt.
        component: the component.
        pulse: the heartbeats, which say what it waits for.
        waiting_for: what else the operation is still to create, as a text to put first.
        copy_index: the copy, if the component has copies.
        looked: whether the attempt's owner has just been looked for.

    Raises:
        Refusal: if it cannot be created, or patience has run out.
        OwnerLost: if the attempt's owner is gone or being deleted.
        Interrupted: if an earlier try created it, and an interrupted creation must be replaced.
        Outdated: if a late request created an earlier launch of it.
    """
    try:
        priority = await persist(pulse, "reading the priority of its pods", lambda: _priority(site, component))
        sent = _sent(site, given, component, copy_index, priority)
        sources = sources_of(given.data, {component.name})
        return await create_patiently(site, given, sent, sources, pulse, waiting_for, looked)
    except Refusal as refusal:
        if copy_index is not None:
            refusal.subject = names.copy_name(str(component.template["metadata"]["name"]), copy_index)
        raise


async def _priority(site: Site, component: Component) -> int | None:
    """Return the priority of a component's pods, where one of its labels tells it (row J21)."""
    if all(one.word is not CopyWord.PRIORITY for one in component.copy_labels.values()):
        return None
    return await site.priorities.of(priority_class(component.template))


def _is_strict(given: MakeInput) -> bool:
    """Whether it is accepted now; what was accepted once stays so, as server and worker of the day read it."""
    return isinstance(given, CreateInput) and (given.strict or given.attempt == 1)


def _sent(site: Site, given: MakeInput, component: Component, copy_index: int | None, priority: int | None) -> Object:
    try:
        return inject(
            component,
            Placement(
                target=given.target,
                attempt=given.attempt,
                owner_uid=given.owner_uid,
                installation=site.installation,
                labels=given.labels,
                bounds=given.bounds,
                gang=given.gang,
                rendezvous=site.rendezvous,
                rendezvous_ca=site.rendezvous_ca(),
                data=given.data,
                place=place_of(site.data, given.target.namespace),
                excluded=given.nodes_excluded,
                disliked=given.nodes_disliked,
                marked=site.marks.selectable if given.nodes_unmarked else (),
                resume_from=given.resume_from,
                in_place=given.in_place,
                strict=_is_strict(given),
                priority=priority,
            ),
            config_hash=given.config_hashes.get(component.name, ""),
            launch=given.launches.get(component.name, 0),
            copy_index=copy_index,
            copy_launch=given.copy_launches.get(component.name, {}).get(copy_index) if copy_index is not None else None,
            restarts=given.restarts.get(component.name),
        )
    except InjectionError as error:
        raise Refusal("Invalid", str(error), final=True) from None


async def create_patiently(
    site: Site,
    given: MakeInput,
    sent: Object,
    sources: Sequence[str],
    pulse: Pulse,
    waiting_for: str = "",
    looked: bool = False,
    recognize: Recognize | None = None,
) -> ObjectRef:
    """Create an object; retry refusals that may pass until patience runs out.

    Args:
        site: the cluster.
        given: what to create, and for which attempt.
        sent: the object.
        sources: the sources of the data sets that its pods read.
        pulse: the heartbeats, which say what it waits for.
        waiting_for: as in `make_patiently`.
        looked: as in `make_patiently`.
        recognize: what to do with an object that is there already; None: it is wanted if an earlier try for the attempt
            created it.

    Raises:
        Refusal, OwnerLost, Interrupted, Outdated: as `make_patiently` does.
    """
    subject = f"{sent['kind']} {sent['metadata']['name']}"
    delay = RETRY_FIRST
    sent_before = False
    pulse.say(f"{waiting_for}creating {subject}")
    while True:
        # Here a worker learns that another has taken over from it: one of its requests may be late, but no second one.
        if not looked:
            await persist(pulse, "looking for the owner", lambda: living_owner(site, given))
        looked = False
        begun = asyncio.get_running_loop().time()
        withdrawal = await persist(
            pulse, "asking whether it is still permitted", lambda: _withdrawal(site, given, sent, sources)
        )
        try:
            if withdrawal is not None:
                raise withdrawal
            adopts = sent_before or not given.replaces_interrupted
            made = await _make_once(site, given, sent, adopts=adopts, recognize=recognize)
        except Unreachable as error:
            sent_before = True  # It may have been created all the same: then it is this try's own.
            pulse.say(f"{waiting_for}creating {subject}: the API server does not answer: {error.message}")
            await asyncio.sleep(max(delay, error.retry_after or 0.0))
        except Refusal as refusal:
            if refusal.final or (given.patience is not None and pulse.borne >= given.patience):
                raise
            pulse.say(f"{waiting_for}creating {subject}: {refusal.message}")
            left = given.patience - pulse.borne if given.patience is not None else delay
            await pulse.bear(min(delay, max(left, 0.05)), since=begun)
        else:
            return ref_of(made, sent["apiVersion"], sent["kind"])
        delay = min(delay * 2, RETRY_LAST)


async def _withdrawal(site: Site, given: MakeInput, sent: Object, sources: Sequence[str]) -> Refusal | None:
    """Return the refusal if what was permitted before no longer is; None if it still is (row X4)."""
    closed = await withdrawn(site, given.target, sent, sources)
    if closed is None:
        return None
    if not closed.known:
        return Refusal("Forbidden", closed.why)
    # An account among the components may be created a moment later.
    brings = any(is_account(one.template["apiVersion"], one.template["kind"]) for one in given.components)
    return Refusal(names.ERROR_REFUSED, closed.why, final=not (closed.opens and (given.waits or brings)))


def ref_of(made: Mapping[str, Any], api_version: str, kind: str) -> ObjectRef:
    """Return an object's identity."""
    metadata = made["metadata"]
    return ObjectRef(api_version=api_version, kind=kind, name=metadata["name"], uid=metadata["uid"])


def is_owned(found: Mapping[str, Any], owner_uid: str) -> bool:
    """Whether the attempt's owner with this uid owns an object."""
    return owner_uid in {owner.get("uid") for owner in mappings(mapping(found["metadata"]).get("ownerReferences"))}


async def _make_once(
    site: Site, given: MakeInput, sent: Object, *, adopts: bool, recognize: Recognize | None = None
) -> Object:
    """Create the object, or return the existing one if it is ours."""
    metadata = sent["metadata"]
    if recognize is not None or _is_handed_over(given, sent):
        # A quota also counts an admitted object whose name is then taken: look for a handed-over object first.
        found = await site.read_component(given.target, sent["apiVersion"], sent["kind"], metadata["name"])
        if found is not None and recognize is not None:
            return recognize(found)
        if found is not None:
            return await _recognize(site, given, sent, adopts=adopts)
    try:
        return await site.kube.create(sent, impersonate=user_of(given.target), strict=_is_strict(given))
    except AlreadyExists as error:
        if recognize is not None:
            raise Refusal("AlreadyExists", error.message) from None  # It is looked at again.
        return await _recognize(site, given, sent, adopts=adopts)
    except Unreachable:
        raise
    except QuotaExceeded as error:
        # Admission runs before the store: an object that an earlier try of ours created may be what fills the quota.
        metadata = sent["metadata"]
        found = await site.read_component(given.target, sent["apiVersion"], sent["kind"], metadata["name"])
        if found is not None and is_owned(found, given.owner_uid):
            return await _recognize(site, given, sent, adopts=adopts)
        raise Refusal("QuotaExceeded", error.message) from None
    except WebhookFailed as error:
        raise Refusal("WebhookFailed", error.message) from None
    except Conflict as error:
        # The conflict is not about the object: the server lost a race of its own, for example over a quota's count.
        raise Refusal("Conflict", error.message) from None
    except Forbidden as error:
        # The rights were checked before; an authorizer that misses a role may just not have read it yet.
        final = not given.waits and "RBAC: " not in error.message
        raise Refusal("Forbidden", without_content(error.message, sent), final=final) from None
    except KubeError as error:
        raise Refusal(error.reason or "Invalid", without_content(error.message, sent), final=True) from None


def is_sent_alike(found: Mapping[str, Any], sent: Mapping[str, Any]) -> bool:
    """Whether an object was sent exactly as it would be sent now."""
    return _bears(found, sent, names.ANNOTATION_SENT_HASH)


def is_made_alike(found: Mapping[str, Any], sent: Mapping[str, Any]) -> bool:
    """Whether an object is of this launch, and was made from what the user's spec says now.

    Then only what Holdfast adds can differ, for example after an upgrade between a creation and its retry (row D28).
    """
    labels = mapping(mapping(found["metadata"]).get("labels"))
    # What a copy has as both is written by Holdfast: an earlier release told launches where this one tells restarts.
    copied = mapping(sent["metadata"].get("annotations"))
    theirs = {
        key: value
        for key, value in sent["metadata"]["labels"].items()
        if not key.startswith(names.GROUP) and copied.get(key) != value
    }
    return (
        launch_of(found) == launch_of(sent)
        and _bears(found, sent, names.ANNOTATION_CONFIG_HASH)
        and all(labels.get(key) == value for key, value in theirs.items())
    )


def _bears(found: Mapping[str, Any], sent: Mapping[str, Any], annotation: str) -> bool:
    wanted = mapping(mapping(sent["metadata"]).get("annotations")).get(annotation)
    return bool(wanted) and mapping(mapping(found["metadata"]).get("annotations")).get(annotation) == wanted


def _is_handed_over(given: MakeInput, sent: Object, uid: str | None = None) -> bool:
    """Whether a creation that was broken off may have made an object, with this uid if one is given."""
    name, kind = sent["metadata"]["name"], sent["kind"]
    for one in given.made:
        if one.copies is not None:
            known = one.kind == kind and has_copy(one.name, one.copies, name)
        else:
            known = one.uid == uid if uid is not None else (one.kind, one.name) == (kind, name)
        if known:
            return True
    return False


async def _recognize(site: Site, given: MakeInput, sent: Object, *, adopts: bool) -> Object:
    """Return the existing object if an earlier try of ours created it; otherwise raise, and say whose it is."""
    metadata = sent["metadata"]
    found = await site.read_component(given.target, sent["apiVersion"], sent["kind"], metadata["name"])
    what = f"{sent['kind']} {given.target.namespace}/{metadata['name']}"
    if found is None:
        raise Refusal("AlreadyExists", f"{what} existed, but was deleted before it could be read")
    there = mapping(found["metadata"])
    if "deletionTimestamp" in there:
        finalizers = ", ".join(there.get("finalizers") or ()) or "none"
        raise Refusal("BeingDeleted", f"{what} is still being deleted (finalizers: {finalizers})")
    owners = mappings(there.get("ownerReferences"))
    if is_owned(found, given.owner_uid):
        if not adopts and not _is_handed_over(given, sent, str(there.get("uid"))):
            raise Interrupted(f"{what} of attempt {given.attempt} was there already, half-made: it is replaced whole")
        if is_sent_alike(found, sent):
            return found
        if launch_of(found) < launch_of(sent):
            raise Outdated(f"{what} of an earlier launch came late")
        if is_made_alike(found, sent):
            return found
        raise Refusal(
            "AlreadyExists", f"{what} is this attempt's, but was created with a different spec before", final=True
        )
    for owner in owners:
        if owner.get("kind") == names.ATTEMPT_KIND and owner.get("apiVersion") == names.API_VERSION:
            await _wait_for_collector(site, given, owner, what)
    raise Refusal("AlreadyExists", f"{what} is there already and is not ours: {described(there)}", final=True)


async def _wait_for_collector(site: Site, given: MakeInput, owner: Mapping[str, Any], what: str) -> None:
    """Refuse for now if an object's owner is an attempt that is gone or being deleted: the collector will delete it."""
    name = str(owner.get("name", ""))
    attempt = await site.kube.find(names.API_VERSION, names.ATTEMPT_KIND, name, given.target.namespace)
    if (
        attempt is None
        or attempt["metadata"].get("uid") != owner.get("uid")
        or "deletionTimestamp" in attempt["metadata"]
    ):
        raise Refusal("BeingDeleted", f"{what} belongs to attempt {name}, which is being removed")


async def living_owner(site: Site, given: MakeInput) -> Object:
    """Return the attempt's owner.

    Raises:
        OwnerLost: if it is gone or being deleted, or its workload has ended.
    """
    name = given.target.attempt_name(given.attempt)
    owner = await living_owner_of(site, given.target, given.attempt, given.owner_uid)
    if owner is None:
        raise OwnerLost(
            f"attempt {given.target.namespace}/{name} is gone or being deleted: nothing more is created under it"
        )
    if names.ANNOTATION_ENDED in mapping(owner["metadata"].get("annotations")):
        raise OwnerLost(f"attempt {given.target.namespace}/{name} has ended: nothing more is created under it")
    return owner


def failure_of(given: MakeInput, component: Component, refusal: Refusal) -> Failure:
    """Return a refusal as a failure of the workload."""
    return Failure(
        cls=FailureClass.LAUNCH,
        scope=Scope.COMPONENT,
        reason=refusal.reason,
        time=datetime.now(UTC),
        component=component.name,
        subject=refusal.subject,
        message=refusal.message[:_MESSAGE_MAXIMUM],
        attempt=given.attempt,
    )


def lost_of(given: MakeInput, message: str) -> Failure:
    """Return the failure of an attempt whose owner is gone."""
    return Failure(
        cls=FailureClass.MISSING,
        scope=Scope.WORKLOAD,
        reason=OWNER_GONE,
        time=datetime.now(UTC),
        message=message,
        attempt=given.attempt,
    )


def described(metadata: Mapping[str, Any]) -> str:
    """Describe whose object this is, as far as its metadata says."""
    owners = [f"{owner.get('kind')} {owner.get('name')}" for owner in mappings(metadata.get("ownerReferences"))]
    workload = mapping(metadata.get("annotations")).get(names.ANNOTATION_WORKLOAD)
    if workload:
        owners.append(f"workload {workload}")
    return (
        f"it belongs to {', '.join(owners)}"
        if owners
        else f"it has no owner, created {metadata.get('creationTimestamp')}"
    )
