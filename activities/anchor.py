"""Letting go of a workload's anchor: our finalizer off it, and the anchor deleted where its workload is no more."""

from __future__ import annotations

from holdfast import names
from holdfast.activities.contract import Target
from holdfast.activities.kube import Conflict, Kube, NotFound
from holdfast.activities.raw import mapping


async def release_anchor(kube: Kube, target: Target, *, delete: bool) -> None:
    """Take our finalizer off the workload's anchor, and delete it if told to; one that is another's is left alone."""
    key = (names.API_VERSION, names.ANCHOR_KIND, names.anchor_name(target.name), target.namespace)
    while True:
        anchor = await kube.find(*key)
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
            return
        except Conflict:
            continue
        return
