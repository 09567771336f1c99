"""The PersistentVolumeClaims of a StatefulSet's pods that outlive it (row D25)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from holdfast.activities.kube.client import KubeError, Object
from holdfast.activities.site.site import Site, user_of
from holdfast.model import Claims
from holdfast.model.calls.cluster import PlannedComponent, Target
from holdfast.model.spec.volume_claim import CLAIM as CLAIM

CLAIMS_TOLD = 16


async def claims_kept(site: Site, target: Target, plan: Sequence[PlannedComponent]) -> Claims | None:
    """Return the names of claims that outlived their StatefulSets; None if there are none, or they cannot be read.

    They are reported in addition to the proof of removal, which does not need them.
    """
    named = [f"{claim}-{name}" for one in plan for claim in one.claims for name in one.object_names]
    if not named:
        return None
    ours = re.compile(rf"(?:{'|'.join(map(re.escape, named))})-[0-9]+")

    def keep(found: Object) -> str | None:
        name = str(found["metadata"]["name"])
        return name if ours.fullmatch(name) else None

    for user in ("", user_of(target)):
        try:
            kept = (await site.kube.list(*CLAIM, target.namespace, keep=keep, impersonate=user))["items"]
        except KubeError:
            continue
        return Claims(names=tuple(sorted(kept)[:CLAIMS_TOLD]), total=len(kept)) if kept else None
    return None
