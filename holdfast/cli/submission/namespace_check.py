"""Check in the cluster, before a submission if possible, whether a namespace is open to workloads (row D37)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast import names
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.activities.kube.client import Kube
    from holdfast.client import Holdfast
    from holdfast.model import Workload

_PATIENCE: Final = 5.0
"""Seconds for the whole check: a submission does not depend on the cluster, which may be away."""
_PATIENCE_UNSERVED: Final = 1.0
"""The same while no worker polls: that none answers must be said within 5 s, of which a query takes 3 (row D36)."""


async def refuse_closed(
    holdfast: Holdfast, workloads: Sequence[Workload], kubeconfig: str | None, context: str | None
) -> None:
    """Refuse workloads whose namespace does not exist, or is not enabled.

    This asks the cluster that the kubeconfig names, if it is the workloads' cluster. If there is no kubeconfig, it
    leads to another cluster, the cluster does not answer, or the caller may not ask, nothing is refused here. The
    worker then refuses the workload.

    Raises:
        HoldfastError: if a namespace is closed; it names the command that opens it.
    """
    chosen = kubeconfig or os.environ.get("KUBECONFIG")
    if not chosen and not _has_default():
        return
    from holdfast.activities.kube.errors import Forbidden
    from holdfast.cli.common.kubernetes import reached
    from holdfast.cli.common.output import say

    closed: list[str] = []
    try:
        async with asyncio.timeout(await _patience(holdfast)), reached(chosen, context) as kube:
            try:
                here = await _here(holdfast, kube, {one.cluster for one in workloads})
                closed = await _closed(kube, [one for one in workloads if one.cluster in here])
            except Forbidden as error:
                say(f"warning: whether its namespace is enabled was not checked: {error.message}", err=True)
    except (TimeoutError, HoldfastError):
        return
    if closed:
        raise HoldfastError("; ".join(closed))


async def _patience(holdfast: Holdfast) -> float:
    from temporalio.service import RPCError

    from holdfast.worker.runtime.pollers import polled

    try:
        served = (await polled(holdfast.client, names.QUEUE_WORKFLOWS)).served
    except RPCError:
        served = True
    return _PATIENCE if served else _PATIENCE_UNSERVED


async def _here(holdfast: Holdfast, kube: Kube, clusters: Collection[str]) -> set[str]:
    """Return which of the clusters is the one that the kubeconfig names, by its uid.

    Most submitters may not read that. For them it has the name that it publishes, as for `kubectl holdfast`.

    Raises:
        Forbidden: if the caller may not read it, and no name is published.
    """
    from holdfast.activities.kube.errors import Forbidden
    from holdfast.activities.kube.raw import mapping
    from holdfast.cli.cluster.checks import bound_uid

    try:
        uid = (await kube.get("v1", "Namespace", "kube-system"))["metadata"]["uid"]
    except Forbidden:
        published = await kube.find("v1", "ConfigMap", names.CONNECTION, names.WORKER_NAMESPACE)
        if published is None:
            raise
        return {one for one in clusters if one == mapping(published.get("data")).get("HOLDFAST_CLUSTER")}
    # A graph can have a thousand workloads, all for one cluster.
    return {one for one in clusters if await bound_uid(holdfast, one) == uid}


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
