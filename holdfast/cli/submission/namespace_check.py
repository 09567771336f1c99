"""Check in the cluster, before a submission if possible, whether a namespace is open to workloads (row D37)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.activities.kube.client import Kube
    from holdfast.client import Holdfast
    from holdfast.model import Workload

_PATIENCE: Final = 5.0
"""Seconds for the whole check: a submission does not depend on the cluster, which may be away."""


async def refuse_closed(
    holdfast: Holdfast, workloads: Sequence[Workload], kubeconfig: str | None, context: str | None
) -> None:
    """Refuse workloads whose namespace does not exist, or is not enabled.

    This asks the cluster that the kubeconfig names, if its uid is that of the workloads' cluster. If there is no
    kubeconfig, it leads to another cluster, or the cluster does not answer, nothing is refused here. The worker then
    refuses the workload.

    Raises:
        HoldfastError: if a namespace is closed; it names the command that opens it.
    """
    chosen = kubeconfig or os.environ.get("KUBECONFIG")
    if not chosen and not _has_default():
        return
    from holdfast.cli.cluster.checks import bound_uid
    from holdfast.cli.common.kubernetes import reached

    closed: list[str] = []
    try:
        async with asyncio.timeout(_PATIENCE), reached(chosen, context) as kube:
            here = (await kube.get("v1", "Namespace", "kube-system"))["metadata"]["uid"]
            # A graph can have a thousand workloads, all for one cluster.
            uids = {cluster: await bound_uid(holdfast, cluster) for cluster in {one.cluster for one in workloads}}
            ours = [one for one in workloads if uids[one.cluster] == here]
            closed = await _closed(kube, ours)
    except (TimeoutError, HoldfastError):
        return
    if closed:
        raise HoldfastError("; ".join(closed))


def _has_default() -> bool:
    return Path("~/.kube/config").expanduser().exists()


async def _closed(kube: Kube, workloads: Sequence[Workload]) -> list[str]:
    from holdfast.activities.site.closed import closed_to
    from holdfast.model import RefusedCreate

    asked = {which: await closed_to(kube, *which) for which in {(one.namespace, one.run_as): None for one in workloads}}
    found: dict[tuple[str, str], str] = {}
    for one in workloads:
        closed = asked[one.namespace, one.run_as]
        waits = one.policy.refused_create is RefusedCreate.WAIT
        if closed is not None and not (closed.opens and waits):
            found[one.namespace, one.run_as] = closed.why
    return list(found.values())
