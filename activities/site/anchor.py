"""The object that represents a workload in the cluster: an Anchor, or the custom resource that asked for it (F2)."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any

from holdfast import formats, names
from holdfast.activities.kube.client import REFUSED, Conflict, NotFound, Object
from holdfast.activities.kube.raw import mapping, mappings
from holdfast.activities.site.closed import namespace_closed
from holdfast.activities.site.site import Site
from holdfast.formats.condition import life_in
from holdfast.model import Report
from holdfast.model.calls.cluster import Target
from holdfast.model.observation import Asked

Key = tuple[str, str, str, str]
"""API version, kind, name and namespace."""


def key_of(target: Target) -> Key:
    """Return the key of the object that represents a workload."""
    if target.anchor is not None:
        return (target.anchor.api_version, target.anchor.kind, target.name, target.namespace)
    return (names.API_VERSION, names.ANCHOR_KIND, names.anchor_name(target.name), target.namespace)


def is_ours(site: Site, target: Target, anchor: Mapping[str, Any]) -> bool:
    """Whether an object represents this workload, and not another of its name.

    Which custom resource a workload names is in its document, which says anything: one that this installation does not
    run represents none of its workloads (row X2).
    """
    if target.anchor is None:
        return mapping(anchor.get("spec")).get("workloadUid") == target.workload_uid
    kind, uid = key_of(target)[:2], target.workload_uid
    if kind not in formats.RESOURCES or mapping(anchor["metadata"]).get("uid") != uid:
        return False
    return _has_begun(site, uid, anchor) or asks_here(kind, anchor, site.managed_by)


def asks_here(kind: tuple[str, str], document: Mapping[str, Any], managed_by: str) -> bool:
    """Whether a custom resource asks an installation for a workload, by its `managedBy` (rows F1, F10).

    Args:
        kind: its API version and kind, one of `formats.RESOURCES`.
        document: the resource; items of a list do not carry their kind.
        managed_by: the `managedBy` of resources that the installation runs.
    """
    if not isinstance(document.get("spec"), dict) or formats.RESOURCES[kind].managed_by(dict(document)) != managed_by:
        return False
    owners = mappings(mapping(document["metadata"]).get("ownerReferences"))
    # A component of a workload has one engine.
    return not any(one.get("kind") == names.ATTEMPT_KIND for one in owners)


async def may_change(site: Site, target: Target, anchor: Mapping[str, Any]) -> bool:
    """Whether an object represents this workload, and may be written to, released and deleted.

    A custom resource that has begun is finished and released whatever its namespace permits by now; one that has not
    begun is left alone where nothing may begin (rows X4, X11).

    Raises:
        KubeError: if the API server does not say.
    """
    if not is_ours(site, target, anchor):
        return False
    if target.anchor is None or _has_begun(site, target.workload_uid, anchor):
        return True
    return await namespace_closed(site, target, site.permits) is None


def _has_begun(site: Site, uid: str, resource: Mapping[str, Any]) -> bool:
    """Whether this installation has marked a custom resource; our finalizer may be gone from it already."""
    metadata = mapping(resource["metadata"])
    return _is_labelled(uid, metadata) and (
        mapping(metadata.get("labels")).get(names.LABEL_INSTALLATION) == site.installation
    )


def is_held(anchor: Mapping[str, Any]) -> bool:
    """Whether the anchor has our finalizer."""
    return names.FINALIZER in (mapping(anchor["metadata"]).get("finalizers") or ())


def sequence_of(target: Target, anchor: Mapping[str, Any]) -> int:
    """Return the sequence of the report that the anchor shows; -1 if it shows none."""
    status = mapping(anchor.get("status"))
    if target.anchor is not None:
        life = life_in(status)
        return life.sequence if life is not None else -1
    sequence = status.get("sequence")
    return sequence if isinstance(sequence, int) else -1


def asked_of(target: Target, anchor: Mapping[str, Any]) -> Asked | None:
    """Return what a custom resource asks for; None if an Anchor represents the workload, which asks for nothing."""
    return asked_by(anchor) if target.anchor is not None else None


def creator_of(target: Target, anchor: Mapping[str, Any]) -> str:
    """Return who created a custom resource, as the API server signed it; empty: nobody is known (row F13).

    It signs those that Holdfast manages. What another controller manages may say anything.
    """
    managed_by = str(mapping(anchor.get("spec")).get("managedBy") or "")
    if target.anchor is None or not names.is_own_manager(managed_by):
        return ""
    annotations = mapping(mapping(anchor["metadata"]).get("annotations"))
    return str(annotations.get(names.ANNOTATION_CREATED_BY) or "")


def asked_by(resource: Mapping[str, Any]) -> Asked:
    """Return what a custom resource asks for."""
    form, metadata = formats.RESOURCES[resource["apiVersion"], resource["kind"]], mapping(resource["metadata"])
    return Asked(
        kind=form.kind,
        generation=int(metadata.get("generation") or 1),
        suspend=form.is_suspended(dict(resource)),
        deleting="deletionTimestamp" in metadata,
        foreground="foregroundDeletion" in (metadata.get("finalizers") or ()),
        by=str(mapping(metadata.get("annotations")).get(names.ANNOTATION_CHANGED_BY) or ""),
    )


def shown(target: Target, anchor: Mapping[str, Any], report: Report, now: datetime) -> Object | None:
    """Return the status of a custom resource for a report; None if an Anchor represents the workload."""
    if target.anchor is None:
        return None
    return formats.RESOURCES[target.anchor.api_version, target.anchor.kind].status(dict(anchor), report, now)


def is_marked(uid: str, resource: Mapping[str, Any]) -> bool:
    """Whether a custom resource has our label and annotation to find it by, and our finalizer to make it go last."""
    return _is_labelled(uid, mapping(resource["metadata"])) and is_held(resource)


def _is_labelled(uid: str, metadata: Mapping[str, Any]) -> bool:
    labels, annotations = mapping(metadata.get("labels")), mapping(metadata.get("annotations"))
    return annotations.get(names.ANNOTATION_LIFE) == uid and labels.get(names.LABEL_WORKLOAD_UID) == uid


def marking(installation: str, uid: str, shard: int, resource: Mapping[str, Any]) -> Object:
    """Return the patch that marks a custom resource as the one that represents a workload."""
    finalizers = [one for one in mapping(resource["metadata"]).get("finalizers") or () if one != names.FINALIZER]
    return {
        "metadata": {
            "labels": labels_of(installation, uid, shard),
            "annotations": {names.ANNOTATION_LIFE: uid},
            "finalizers": [*finalizers, names.FINALIZER],
        }
    }


def labels_of(installation: str, uid: str, shard: int) -> dict[str, str]:
    """Return the labels that find the object that represents a workload."""
    return {
        names.LABEL_INSTALLATION: installation,
        names.LABEL_WORKLOAD_UID: uid,
        names.LABEL_SHARD: str(shard),
    }


def is_standing(target: Target, anchor: Mapping[str, Any]) -> bool:
    """Whether the anchor says that its workload's life goes on: by our finalizer, or by a status that is not final."""
    if is_held(anchor) or target.anchor is None:
        return is_held(anchor)
    life = life_in(mapping(anchor.get("status")))
    return "deletionTimestamp" not in anchor["metadata"] and life is not None and not life.phase.ended


async def delete_held(site: Site, target: Target) -> None:
    """Delete the object that represents a workload, if our finalizer holds it until all else is gone.

    A deletion that is refused does not keep the workload's pods: it is asked for again, and told, at the end.
    """
    found = await site.kube.find(*key_of(target))
    if found is None or not is_ours(site, target, found) or not is_held(found):
        return
    if "deletionTimestamp" in found["metadata"]:
        return
    with suppress(NotFound, Conflict, *REFUSED):
        await site.kube.delete(*key_of(target), uid=found["metadata"]["uid"])


async def release_anchor(site: Site, target: Target, *, delete: bool) -> bool:
    """Remove our finalizer from the workload's anchor, and delete it if told to; another workload's is left alone.

    Returns:
        Whether the anchor is still there: it was not to be deleted, or another's finalizer holds it.
    """
    kube, key = site.kube, key_of(target)
    while True:
        remembered = site.known.take(target)
        anchor = remembered or await kube.find(*key)
        if anchor is None or not await may_change(site, target, anchor):
            return False
        metadata = anchor["metadata"]
        finalizers = [one for one in metadata.get("finalizers") or () if one != names.FINALIZER]
        try:
            if finalizers != (metadata.get("finalizers") or []):
                await kube.patch(
                    *key,
                    uid=metadata["uid"],
                    resource_version=metadata["resourceVersion"],
                    patch={"metadata": {"finalizers": finalizers}},
                )
            if delete and "deletionTimestamp" not in metadata:
                left = await kube.delete(*key, uid=metadata["uid"])
                return "deletionTimestamp" in mapping(left.get("metadata"))
        except NotFound:
            if remembered is None:
                return False
            continue
        except Conflict:
            continue
        return bool(finalizers) or "deletionTimestamp" not in metadata
