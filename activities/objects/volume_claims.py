"""The claims that belong to a workload: made before its components, deleted only when its life ends (row J22)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, cast

from holdfast import formats, names
from holdfast.activities.kube.client import REFUSED, Conflict, KubeError, NotFound, Object
from holdfast.activities.kube.raw import mapping, mappings
from holdfast.activities.objects.claims import CLAIM, CLAIMS_TOLD
from holdfast.activities.objects.make import Refusal, create_patiently
from holdfast.activities.site.site import Pulse, Site, user_of
from holdfast.model import Claims
from holdfast.model.calls.cluster import ClaimLeft, CreateInput, RemoveInput, Target
from holdfast.model.quantity import parse_quantity
from holdfast.model.spec.volume_claim import VolumeClaim


async def make_claims(site: Site, given: CreateInput, owner: Object, pulse: Pulse) -> None:
    """Create the workload's claims that do not exist yet; those that are to go with it belong to its anchor.

    Args:
        site: the cluster.
        given: the claims, and the workload.
        owner: the attempt's owner, which belongs to the same anchor.
        pulse: the heartbeats.

    Raises:
        Refusal: if one cannot be created, or patience has run out; it names the claim.
        OwnerLost: if the attempt's owner is gone or being deleted.
    """
    for claim in given.claims:
        sent = claim_object(claim, given.target, site.installation, owner["metadata"]["ownerReferences"])
        try:
            await create_patiently(site, given, sent, (), pulse, recognize=partial(recognized, given.target, claim))
        except Refusal as refusal:
            refusal.subject = claim.name
            raise


def claim_object(claim: VolumeClaim, target: Target, installation: str, owners: Sequence[Mapping[str, Any]]) -> Object:
    """Return the object to create for a claim. Pure."""
    ours = {names.LABEL_INSTALLATION: installation, names.LABEL_WORKLOAD_UID: target.workload_uid}
    metadata: dict[str, Any] = {
        "name": claim.name,
        "namespace": target.namespace,
        "labels": {**claim.labels, **ours},
        "annotations": {**claim.annotations, names.ANNOTATION_WORKLOAD: target.name},
    }
    if not claim.retain:
        # The collector needs no more. Who blocks an owner's deletion would need a right on its finalizers.
        more = {"controller", "blockOwnerDeletion"}
        metadata["ownerReferences"] = [{key: one[key] for key in one if key not in more} for one in owners]
    return {"apiVersion": CLAIM[0], "kind": CLAIM[1], "metadata": metadata, "spec": claim.spec}


def is_ours(target: Target, found: Mapping[str, Any]) -> bool:
    """Whether a claim was made for this workload. Pure."""
    return mapping(mapping(found["metadata"]).get("labels")).get(names.LABEL_WORKLOAD_UID) == target.workload_uid


def recognized(target: Target, claim: VolumeClaim, found: Object) -> Object:
    """Return a claim that exists if it can be used. Pure.

    Raises:
        Refusal: final, as JobSet's admission refuses it; or until a claim that is being deleted is gone.
    """
    metadata, what = found["metadata"], f"PersistentVolumeClaim {target.namespace}/{claim.name}"
    if "deletionTimestamp" in metadata:
        raise Refusal("BeingDeleted", f"{what} is still being deleted")
    if is_ours(target, found):
        return found
    kinds = {names.ANCHOR_KIND, *(kind for _, kind in formats.RESOURCES)}
    if any(one.get("kind") in kinds for one in mappings(metadata.get("ownerReferences"))):
        raise Refusal("BeingDeleted", f"{what} belongs to an earlier workload, and goes with it")
    if not claim.retain:
        why = "expected the retention policy Retain, since it would be deleted with a workload that has not made it"
        raise Refusal("AlreadyExists", f"{what} is there already: {why}", final=True)
    other = sorted(field for field, value in claim.spec.items() if not _same(value, mapping(found["spec"]).get(field)))
    if other:
        why = f"spec.{other[0]} is {mapping(found['spec']).get(other[0])!r}: expected {claim.spec[other[0]]!r}"
        raise Refusal("AlreadyExists", f"{what} is there already, and differs: {why}", final=True)
    return found


def _same(wanted: Any, found: Any) -> bool:
    """Whether a field of a claim has the wanted value; the API server adds fields and writes quantities its own way."""
    if isinstance(wanted, dict):
        each = cast("dict[str, Any]", wanted)
        return isinstance(found, dict) and all(_same(value, mapping(found).get(key)) for key, value in each.items())
    if wanted == found:
        return True
    with suppress(ValueError):
        return parse_quantity(wanted) == parse_quantity(found)
    return False


async def claims_left(site: Site, given: RemoveInput) -> tuple[Object, ...]:
    """Return the claims that are to go with the workload and still exist."""
    found = [await site.read_component(given.target, *CLAIM, one.name) for one in given.claims if one.goes]
    return tuple(one for one in found if one is not None and is_ours(given.target, one))


async def delete_claims(site: Site, target: Target, claims: Sequence[Object], refused: dict[str, str]) -> None:
    """Delete claims by their uids; the cluster keeps each until no pod uses it.

    `refused` is updated: why claims may not be deleted, by uid. They are reported as left.
    """
    for one in claims:
        metadata = one["metadata"]
        refused.pop(metadata["uid"], None)
        if "deletionTimestamp" in metadata:
            continue
        try:
            await site.kube.delete(
                *CLAIM, metadata["name"], target.namespace, uid=metadata["uid"], impersonate=user_of(target)
            )
        except (NotFound, Conflict):
            continue
        except REFUSED as error:
            refused[metadata["uid"]] = error.message


async def with_own(site: Site, target: Target, kept: Claims | None, claims: Sequence[ClaimLeft]) -> Claims | None:
    """Return the claims that outlive an attempt, with the workload's own among them; those that cannot be read miss."""
    own: list[str] = []
    for one in claims:
        with suppress(KubeError):
            if one.retain and await site.read_component(target, *CLAIM, one.name) is not None:
                own.append(one.name)
    if not own:
        return kept
    known = kept.names if kept is not None else ()
    total = len(own) + (kept.total if kept is not None else 0)
    return Claims(names=tuple(sorted((*known, *own))[:CLAIMS_TOLD]), total=total)
