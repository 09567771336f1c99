"""Prepares an attempt: runs every check that can refuse it, then ensures its anchor and the attempt's owner exist."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from temporalio.exceptions import ApplicationError

from holdfast import formats, names
from holdfast.activities.kube.client import (
    AlreadyExists,
    Conflict,
    KubeError,
    NotFound,
    Object,
    Unreachable,
)
from holdfast.activities.kube.priority import BEGINNING
from holdfast.activities.kube.raw import mapping, mappings
from holdfast.activities.objects.attempts import refuse_revived
from holdfast.activities.objects.rehearse import rehearse
from holdfast.activities.operations.report import applied
from holdfast.activities.site.anchor import (
    asked_of,
    is_marked,
    is_ours,
    key_of,
    labels_of,
    marking,
    release_anchor,
    sequence_of,
)
from holdfast.activities.site.field_paths import written
from holdfast.activities.site.permissions import until_permitted
from holdfast.activities.site.site import Pulse, Site, as_retryable_errors, conflict, is_broken_off, refused
from holdfast.errors import HoldfastError
from holdfast.model import PodSet
from holdfast.model.calls.cluster import Prepared, PrepareInput, Target

_WAIT_SECONDS = 0.5


async def prepare(site: Site, given: PrepareInput) -> Prepared:
    """Ensure the anchor and this attempt's owner exist.

    Raises:
        ApplicationError: of type `ClusterMismatch` or `ClusterUnreachable` (retried), `Refused` or `ObjectConflict`.
    """
    async with as_retryable_errors(), Pulse() as pulse:
        try:
            await site.precedence.give_way(BEGINNING)
            return await _prepare(site, given, pulse)
        except asyncio.CancelledError:
            if not (given.hands_over and is_broken_off()):
                raise
            return Prepared(cluster_uid="", anchor_uid="", owner_uid="", borne=pulse.borne, broken_off=True)
        except ApplicationError as error:
            if error.non_retryable and given.attempt == 1 and given.target.anchor is None:
                await _withdraw(site, given.target)
            raise


async def _withdraw(site: Site, target: Target) -> None:
    """Delete the anchor if an earlier try created it: a workload that never began leaves nothing behind."""
    labels = f"{names.LABEL_WORKLOAD_UID}={target.workload_uid}"
    try:
        attempts = await site.kube.list(names.API_VERSION, names.ATTEMPT_KIND, target.namespace, labels=labels)
        if not attempts["items"]:
            await release_anchor(site, target, delete=True)
    except Unreachable:
        raise  # Then all of this is tried again.
    except KubeError:
        return  # What was refused stays refused; this was only tidying up.


async def _prepare(site: Site, given: PrepareInput, pulse: Pulse) -> Prepared:
    await site.confirm(given.target)
    _check_names(given)
    await until_permitted(site, given, pulse)
    await refuse_revived(site, given.target, given.attempt)
    await rehearse(site, given)
    anchor = await (_ensure_anchor(site, given, pulse) if given.target.anchor is None else _resource(site, given))
    sequence = sequence_of(given.target, anchor)
    _, shown = await applied(site, given.target, given.report)
    # From this report on, the resource shows that it holds quota; what it asks for is read from that version (row F8).
    anchor = dict(shown or anchor)
    pod_sets = _pod_sets(given.target, anchor)
    owner = await _ensure_owner(site, given, anchor, pulse)
    return Prepared(
        sequence=max(sequence, given.report.sequence),
        cluster_uid=site.cluster_uid,
        anchor_uid=anchor["metadata"]["uid"],
        owner_uid=owner["metadata"]["uid"],
        limits=site.limits,
        borne=pulse.borne,
        asked=asked_of(given.target, anchor),
        pod_sets=pod_sets,
    )


def _check_names(given: PrepareInput) -> None:
    seen: dict[tuple[str, str, str], str] = {}
    for index, component in enumerate(given.plan):
        for name in component.object_names:
            key = (component.api_version, component.kind, name)
            if key in seen:
                place = written(given, index, "template.metadata.name")
                raise refused(f"{place}: components {seen[key]} and {component.name} are both {component.kind} {name}")
            seen[key] = component.name


async def _resource(site: Site, given: PrepareInput) -> Object:
    """Return the custom resource that represents the workload, marked as ours so that it is deleted last."""
    target, key = given.target, key_of(given.target)
    what = f"{key[1]} {target.namespace}/{target.name}"
    while True:
        found = await site.kube.find(*key)
        if found is None or not is_ours(target, found):
            raise conflict(f"{what} of uid {target.workload_uid} is not there any more")
        if not is_marked(target.workload_uid, found):
            if "deletionTimestamp" in found["metadata"]:
                raise conflict(f"{what} is being deleted, and its finalizer was removed")
            try:
                found = await site.kube.patch(
                    *key,
                    uid=found["metadata"]["uid"],
                    resource_version=found["metadata"]["resourceVersion"],
                    patch=marking(site.installation, target.workload_uid, target.shard, found),
                )
            except (Conflict, NotFound):
                continue  # It has changed since it was read.
        site.known.keep(target, found)
        return found


def _pod_sets(target: Target, anchor: Object) -> dict[str, tuple[PodSet, ...]]:
    """Return where an attempt's pods run, as set by its admission (row F4)."""
    if target.anchor is None:
        return {}
    try:
        return formats.pod_sets(anchor)
    except HoldfastError as error:
        raise refused(str(error)) from None


async def _ensure_anchor(site: Site, given: PrepareInput, pulse: Pulse) -> Object:
    """Return our anchor, and create it if there is none; an anchor that an ended workload left behind is replaced."""
    target, kube = given.target, site.kube
    key = (names.API_VERSION, names.ANCHOR_KIND, names.anchor_name(target.name), target.namespace)
    is_first = given.attempt == 1  # Then there is most likely none: try to create it first.
    while True:
        anchor = None if is_first else await kube.find(*key)
        is_first = False
        if anchor is None:
            try:
                anchor = await kube.create(_anchor(site, given))
            except AlreadyExists:
                continue
            site.known.keep(target, anchor)
            return anchor
        metadata = mapping(anchor["metadata"])
        ours = mapping(anchor.get("spec")).get("workloadUid") == target.workload_uid
        released = names.FINALIZER not in (metadata.get("finalizers") or ())
        deleting = "deletionTimestamp" in metadata
        try:
            if ours and not released:
                # If it is being deleted, that is a request that the next look at it will find.
                return anchor
            if deleting and released:
                pulse.say(f"waiting for the old anchor {target.name} to go")
                await asyncio.sleep(_WAIT_SECONDS)
            elif ours:
                finalizers = [*(metadata.get("finalizers") or ()), names.FINALIZER]
                return await kube.patch(
                    *key,
                    uid=metadata["uid"],
                    resource_version=metadata["resourceVersion"],
                    patch={"metadata": {"finalizers": finalizers}},
                )
            elif released:
                await kube.delete(*key, uid=metadata["uid"])
            else:
                owner = mapping(anchor.get("spec")).get("workflowId", "")
                raise conflict(
                    f"anchor {target.namespace}/{target.name} belongs to workload "
                    f"{mapping(anchor.get('spec')).get('workloadUid')} (workflow {owner}), which has not ended"
                )
        except (Conflict, NotFound):
            continue  # It has changed since it was read: read it again.


async def _ensure_owner(site: Site, given: PrepareInput, anchor: Object, pulse: Pulse) -> Object:
    """Return this attempt's owner, and create it if there is none; wait for one that is being deleted to go."""
    target, kube = given.target, site.kube
    name = names.attempt_name(target.name, given.attempt)
    key = (names.API_VERSION, names.ATTEMPT_KIND, name, target.namespace)
    while True:
        try:
            return await kube.create(_owner(site, given, anchor))
        except AlreadyExists:
            owner = await kube.find(*key)
        if owner is None:
            continue
        ours = mapping(owner.get("spec")).get("workloadUid") == target.workload_uid
        if "deletionTimestamp" in owner["metadata"]:
            finalizers = ", ".join(owner["metadata"].get("finalizers") or ())
            pulse.say(f"waiting for the old attempt {name} to go{f' (finalizers {finalizers})' if finalizers else ''}")
        elif ours:
            return owner
        elif _orphaned(target, owner, anchor):
            pulse.say(f"waiting for attempt {name} of an earlier workload to be collected")
        else:
            raise conflict(
                f"attempt {target.namespace}/{name} belongs to workload {mapping(owner.get('spec')).get('workloadUid')}"
            )
        await asyncio.sleep(_WAIT_SECONDS)


def _orphaned(target: Target, owner: Mapping[str, Any], anchor: Mapping[str, Any]) -> bool:
    """Whether an owner's anchor is gone: our anchor now has its name, with another uid."""
    return any(
        (reference.get("apiVersion"), reference.get("kind")) == key_of(target)[:2]
        and reference.get("name") == anchor["metadata"]["name"]
        and reference.get("uid") != anchor["metadata"]["uid"]
        for reference in mappings(owner["metadata"].get("ownerReferences"))
    )


def _anchor(site: Site, given: PrepareInput) -> Object:
    target = given.target
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.ANCHOR_KIND,
        "metadata": {
            "name": names.anchor_name(target.name),
            "namespace": target.namespace,
            "labels": labels_of(site.installation, target.workload_uid, target.shard),
            "finalizers": [names.FINALIZER],
        },
        "spec": {
            "workloadUid": target.workload_uid,
            "workflowId": target.workflow_id,
            "specHash": given.spec_hash,
            "sourceKind": target.source_kind,
            "components": [
                {"name": component.name, "kind": component.kind, "expectedPods": component.expected_pods}
                for component in given.plan
            ],
        },
    }


def _owner(site: Site, given: PrepareInput, anchor: Mapping[str, Any]) -> Object:
    target = given.target
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.ATTEMPT_KIND,
        "metadata": {
            "name": names.attempt_name(target.name, given.attempt),
            "namespace": target.namespace,
            "labels": {
                **labels_of(site.installation, target.workload_uid, target.shard),
                names.LABEL_ATTEMPT: str(given.attempt),
            },
            "annotations": {names.ANNOTATION_WORKLOAD: target.name},
            "ownerReferences": [
                {
                    "apiVersion": key_of(target)[0],
                    "kind": key_of(target)[1],
                    "name": anchor["metadata"]["name"],
                    "uid": anchor["metadata"]["uid"],
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": {
            "workloadUid": target.workload_uid,
            "workflowId": target.workflow_id,
            "attempt": given.attempt,
            "plan": [component.model_dump(mode="json", by_alias=True) for component in given.plan],
        }
        | _selection(given),
    }


def _selection(given: PrepareInput) -> dict[str, Any]:
    if given.selection is None:
        return {}
    return {"selection": given.selection.model_dump(mode="json", by_alias=True, exclude_defaults=True)}
