"""Connects to Temporal and the cluster: retries, and logs the address that does not answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

import structlog
from temporalio.client import Client, WorkflowExecutionDescription, WorkflowExecutionStatus, WorkflowHandle
from temporalio.service import RPCError, RPCStatusCode

from holdfast import names
from holdfast.activities.entities.executions import input_of
from holdfast.activities.kube.client import Kube, KubeError
from holdfast.activities.kube.raw import mapping
from holdfast.errors import HoldfastError, Undecodable
from holdfast.model.words import shortened
from holdfast.worker.entities.begin import begin_monitor, begin_provisioner, begin_watch, provisioner_state
from holdfast.worker.runtime.health import Health
from holdfast.worker.runtime.settings import Settings, SettingsError
from holdfast.worker.runtime.temporal import CHECK_DEADLINE, TemporalConnector
from holdfast.workflows.entities.cluster_watch import (
    MEMO_CLUSTER_UID,
    MEMO_INSTALLATION,
    MEMO_SHARD_SETS,
    SIGNAL_DIVIDE,
)
from holdfast.workflows.entities.node_monitor import MEMO_TIMINGS, SIGNAL_STOP, SIGNAL_TIMINGS
from holdfast.workflows.entities.provisioner import SIGNAL_AT_ONCE
from holdfast.workflows.entities.provisioner import SIGNAL_STOP as SIGNAL_STOP_PROVISIONER

CHECK_PERIOD: Final = 5.0
PAUSE_FIRST: Final = 0.25
TEMPORAL: Final = "temporal"
KUBERNETES: Final = "kubernetes"

T = TypeVar("T")
Log: Any = structlog.stdlib.get_logger("holdfast.worker")


class IdentityError(SettingsError):
    """The cluster that answers is not the one that the name belongs to."""


async def persist(what: str, where: str, call: Callable[[], Awaitable[T]], health: Health, longest: float) -> T:
    """Repeat a call until it succeeds; readiness fails meanwhile, and each failure is logged with the address."""
    pause = PAUSE_FIRST
    while True:
        try:
            result = await call()
        except SettingsError:
            raise
        except (RPCError, RuntimeError, HoldfastError, KubeError, OSError, TimeoutError) as error:
            why = shortened(str(error)) or type(error).__name__
            # A key that is missing may be brought: the file is read again at each try.
            does = "holds what this worker cannot read" if isinstance(error, Undecodable) else "does not answer"
            health.note(what, False, f"{where} {does}: {why}")
            Log.warning(f"{what} {does}: trying again", address=where, why=why)
            await asyncio.sleep(pause)
            pause = min(longest, pause * 2)
            continue
        health.note(what, True, where)
        return result


async def temporal(connector: TemporalConnector, settings: Settings, health: Health) -> Client:
    """Return a client once Temporal answers and has the namespace; each try reads certificates and keys again."""
    return await persist(TEMPORAL, connector.where, connector.connect, health, settings.temporal_wait.total_seconds())


async def cluster_uid(kube: Kube, where: str, settings: Settings, health: Health) -> str:
    """Return the cluster's own identity once it answers: the uid of its namespace `kube-system`."""

    async def ask() -> str:
        return str((await kube.get("v1", "Namespace", "kube-system"))["metadata"]["uid"])

    return await persist(KUBERNETES, where, ask, health, settings.temporal_wait.total_seconds())


async def installation_of(client: Client, settings: Settings, uid: str, health: Health) -> str:
    """Return the label of this installation's objects: as configured, or derived from the cluster's own identity.

    Raises:
        SettingsError: if it is derived, and a second installation would begin with the label of the first.
    """
    derived = f"holdfast-{uid[:8]}"
    if settings.installation or settings.managed_by == names.MANAGED_BY:
        return settings.installation or derived
    handle = client.get_workflow_handle(names.watch_workflow_id(settings.cluster))

    async def once() -> str:
        found = await _described(handle)
        # One that has begun with the derived label has objects with it, and keeps it.
        if found is not None and await _installation_in(found) == derived:
            return derived
        raise SettingsError(
            f"installation: missing: with managed_by {settings.managed_by!r} it is the label that tells objects of "
            "this installation from those of another on this cluster: expected a DNS label such as "
            f"{settings.managed_by.rpartition('/')[2]!r} (--installation), or {derived!r} if it has run here before"
        )

    return await persist(TEMPORAL, _where(settings), once, health, settings.temporal_wait.total_seconds())


async def bind(
    client: Client,
    settings: Settings,
    uid: str,
    installation: str,
    start: bool,
    health: Health,
    kube: Kube | None = None,
) -> None:
    """Check that the name belongs to this cluster and, if `start`, start the cluster's entities.

    Args:
        client: the Temporal client.
        settings: the worker's settings.
        uid: the cluster's own identity.
        installation: the installation whose objects this worker acts on.
        start: whether this worker starts the cluster's entities.
        health: records whether Temporal answers.
        kube: the cluster, which shows the pending work of an earlier provisioner; None: a provisioner starts empty.

    Raises:
        IdentityError: if the name belongs to another cluster, or to another installation on it.
    """
    workflow_id = names.watch_workflow_id(settings.cluster)

    async def once() -> None:
        if start:
            await begin_watch(client, settings, uid, installation)
        handle = client.get_workflow_handle(workflow_id)
        found = await _running(handle)
        if found is None:
            return
        memo = await found.memo()
        _compare(settings.cluster, "cluster", memo.get(MEMO_CLUSTER_UID), uid, workflow_id)
        _compare(settings.cluster, "installation", memo.get(MEMO_INSTALLATION), installation, workflow_id)
        if start and memo.get(MEMO_SHARD_SETS) != len(settings.shard_sets):
            await handle.signal(SIGNAL_DIVIDE, settings.shard_sets)
        if start:
            await _provisioner(client, settings, uid, installation, kube)
            await _monitor(client, settings, uid)

    await persist(TEMPORAL, _where(settings), once, health, settings.temporal_wait.total_seconds())


def _where(settings: Settings) -> str:
    return f"{settings.temporal_address} (namespace {settings.temporal_namespace})"


async def _monitor(client: Client, settings: Settings, uid: str) -> None:
    """Start or update the cluster's node monitor by these settings, or stop it."""
    timings, workflow_id = settings.node_timings, names.node_monitor_id(settings.cluster)
    await _end_of_another(client, workflow_id, uid)
    if settings.node_monitor:
        await begin_monitor(client, settings, uid)
    handle = client.get_workflow_handle(workflow_id)
    found = await _running(handle)
    if found is None:
        return
    if not settings.node_monitor:
        await handle.signal(SIGNAL_STOP)
    elif (await found.memo()).get(MEMO_TIMINGS) != timings.model_dump_json():
        await handle.signal(SIGNAL_TIMINGS, timings)


async def _provisioner(client: Client, settings: Settings, uid: str, installation: str, kube: Kube | None) -> None:
    """Start or update the cluster's provisioner by these settings, or stop it."""
    workflow_id = names.provisioner_id(settings.cluster)
    await _end_of_another(client, workflow_id, uid)
    handle = client.get_workflow_handle(workflow_id)
    if settings.provisioner_url and await _running(handle) is None:
        state = await provisioner_state(kube, settings.cluster, uid, installation) if kube is not None else None
        await begin_provisioner(client, settings, uid, state)
    found = await _running(handle)
    if found is None:
        return
    if not settings.provisioner_url:
        await handle.signal(SIGNAL_STOP_PROVISIONER)
    else:  # A worker without a configured service may have asked it to stop.
        await handle.signal(SIGNAL_AT_ONCE, settings.provisioner_at_once)


async def _end_of_another(client: Client, workflow_id: str, uid: str) -> None:
    """Terminate an entity of the cluster that had this name before: no worker can act for it any more."""
    found = await _running(client.get_workflow_handle(workflow_id))
    if found is None:
        return
    given = await input_of(client, workflow_id, found.run_id)
    bound = mapping(given[0] if given else None).get("clusterUid")
    if bound in {None, uid}:
        return
    Log.warning("ends an entity of another cluster", workflow_id=workflow_id, cluster_uid=bound)
    handle = client.get_workflow_handle(workflow_id, run_id=found.run_id)
    await handle.terminate(reason=f"cluster {uid} has taken the place of its cluster {bound}")


async def _installation_in(found: WorkflowExecutionDescription) -> object:
    """Return the label in a watch's memo; None if it is over, and its memo cannot be read: its key may be lost."""
    try:
        return (await found.memo()).get(MEMO_INSTALLATION)
    except Exception:  # A codec or a converter may raise anything.
        if found.status is WorkflowExecutionStatus.RUNNING:
            raise
        return None


async def _running(handle: WorkflowHandle[Any, Any]) -> WorkflowExecutionDescription | None:
    """Describe a workflow if it is running, else return None."""
    found = await _described(handle)
    return found if found is not None and found.status is WorkflowExecutionStatus.RUNNING else None


async def _described(handle: WorkflowHandle[Any, Any]) -> WorkflowExecutionDescription | None:
    """Describe a workflow, also one that is over; return None if Temporal knows none."""
    try:
        return await handle.describe(rpc_timeout=CHECK_DEADLINE)
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return None
        raise


def _compare(cluster: str, what: str, bound: object, found: str, workflow_id: str) -> None:
    if bound is None or bound == found:
        return
    problem = (
        f"cluster: the name {cluster!r} belongs to {what} {bound} in this Temporal namespace, and this {what} is "
        f"{found}: "
    )
    if what != "cluster":
        raise IdentityError(f"{problem}set {what} {bound}, or give the cluster of this {what} another name")
    raise IdentityError(
        f"{problem}give this cluster another name, or, if it has truly taken the other's place and no worker of that "
        f"runs, end its watch: temporal workflow terminate --workflow-id {workflow_id}; "
        "for its workloads see docs/how-to/outages.md#a-cluster-that-is-built-anew"
    )


async def keep_checking(
    health: Health, temporal_check: Callable[[], Awaitable[object]], kube: Kube | None, where: tuple[str, str]
) -> None:
    """Check both periodically, so that readiness is current."""
    while True:
        await asyncio.sleep(CHECK_PERIOD)
        await _check(health, TEMPORAL, where[0], temporal_check)
        if kube is not None:
            asked = datetime.now(UTC)
            if not await _check(health, KUBERNETES, where[1], lambda: kube.get("v1", "Namespace", "kube-system")):
                # The check times out before the request does, so the request itself does not record it.
                kube.sight.lost(asked)


async def _check(health: Health, what: str, where: str, ask: Callable[[], Awaitable[object]]) -> bool:
    """Record whether it answers; return false if it times out."""
    try:
        async with asyncio.timeout(CHECK_DEADLINE.total_seconds()):
            await ask()
    except (RPCError, RuntimeError, KubeError, OSError, TimeoutError) as error:
        health.note(what, False, f"{where} does not answer: {str(error)[:200] or type(error).__name__}")
        return not isinstance(error, TimeoutError)
    health.note(what, True, where)
    return True
