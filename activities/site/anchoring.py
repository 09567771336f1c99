"""Makes the Anchor of a workload, also before its first attempt (record 0096)."""

from __future__ import annotations

import asyncio
from typing import Final

from temporalio.exceptions import ApplicationError

from holdfast import names
from holdfast.activities.kube.client import AlreadyExists, Conflict, KubeError, NotFound, Object, Unreachable
from holdfast.activities.kube.raw import mapping
from holdfast.activities.site.anchor import is_held, is_ours, key_of, labels_of
from holdfast.activities.site.closed import namespace_closed
from holdfast.activities.site.site import Pulse, Site, conflict
from holdfast.model.calls.cluster import AnchorInput, Target

_WAIT_SECONDS: Final = 0.5


async def anchor_early(site: Site, target: Target, given: AnchorInput, pulse: Pulse) -> bool:
    """Make the Anchor of a workload that waits to begin, and return whether it exists.

    It is not made where the workload may not begin: the first attempt is refused with the reason. One that exists
    counts whatever the namespace permits now, and one without our finalizer has ended: it is left as it is.

    Raises:
        ApplicationError: of type `ClusterMismatch`.
        Unreachable: if the API server does not answer.
    """
    await site.confirm(target)
    try:
        found = await site.kube.find(*key_of(target))
        if found is not None and is_ours(site, target, found):
            return True
        if await namespace_closed(site, target, site.permits) is not None:
            return False
        await ensure_anchor(site, target, given, pulse, expected=False)
    except Unreachable:
        raise
    except (KubeError, ApplicationError):
        return False
    return True


async def ensure_anchor(
    site: Site, target: Target, given: AnchorInput, pulse: Pulse, *, expected: bool
) -> tuple[Object, bool]:
    """Return our anchor, and whether this created it; an anchor that an ended workload left behind is replaced.

    Args:
        site: the cluster.
        target: the workload.
        given: the anchor's contents.
        pulse: told of a wait for an old anchor to go.
        expected: whether there is most likely one: then it is looked for first.

    Raises:
        ApplicationError: of type `ObjectConflict`, if another workload that has not ended has its name.
        KubeError: if the API server refuses it.
    """
    kube, key = site.kube, key_of(target)
    while True:
        anchor = await kube.find(*key) if expected else None
        expected = True
        if anchor is None:
            try:
                anchor = await kube.create(_anchor(site, target, given))
            except AlreadyExists:
                continue
            site.known.keep(target, anchor)
            return anchor, True
        metadata, ours, released = anchor["metadata"], is_ours(site, target, anchor), not is_held(anchor)
        try:
            if ours and not released:
                # If it is being deleted, that is a request that the next look at it will find.
                return anchor, False
            if "deletionTimestamp" in metadata and released:
                pulse.say(f"waiting for the old anchor {target.name} to go")
                await asyncio.sleep(_WAIT_SECONDS)
            elif ours:
                finalizers = [*(metadata.get("finalizers") or ()), names.FINALIZER]
                held = await kube.patch(
                    *key,
                    uid=metadata["uid"],
                    resource_version=metadata["resourceVersion"],
                    patch={"metadata": {"finalizers": finalizers}},
                )
                return held, False
            elif released:
                await kube.delete(*key, uid=metadata["uid"])
            else:
                owner = mapping(anchor.get("spec")).get("workflowId", "")
                raise conflict(
                    f"anchor {target.namespace}/{target.name} belongs to workload "
                    f"{mapping(anchor.get('spec')).get('workloadUid')} (workflow {owner}), which has not ended; "
                    "`holdfast sweep --dry-run` says whether Temporal knows it"
                )
        except (Conflict, NotFound):
            continue  # It has changed since it was read: read it again.


def _anchor(site: Site, target: Target, given: AnchorInput) -> Object:
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
