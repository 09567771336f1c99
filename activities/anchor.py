"""Letting go of a workload's anchor: our finalizer off it, and the anchor deleted where its workload is no more."""

from __future__ import annotations

from holdfast import names
from holdfast.activities.contract import Target
from holdfast.activities.kube import Conflict, NotFound
from holdfast.activities.raw import mapping
from holdfast.activities.site import Site


async def release_anchor(site: Site, target: Target, *, delete: bool) -> None:
    """Take our finalizer off the workload's anchor, and delete it if told to; one that is another's is left alone."""
    kube, key = site.kube, (names.API_VERSION, names.ANCHOR_KIND, names.anchor_name(target.name), target.namespace)
    while True:
        remembered = site.known.take(target)
        anchor = remembered or await kube.find(*key)
        if anchor is None or mapping(anchor.get("spec")).get("workloadUid") != target.workload_uid:
            return
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
                await kube.delete(*key, uid=metadata["uid"])
        except NotFound:
            if remembered is None:
                return
            continue
        except Conflict:
            continue
        return
