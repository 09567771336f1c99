"""Boots, wipes and powers off nodes' machines, and marks the nodes (row L15): checked first, proven at the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Final

from pydantic import ValidationError
from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from holdfast import names
from holdfast.activities.facts import node_taints
from holdfast.activities.kube.client import REFUSED, Conflict, Forbidden, Invalid, NotFound, Unreachable
from holdfast.activities.kube.raw import mapping, mappings, one_line
from holdfast.activities.nodes.machine import (
    Away,
    Machine,
    Note,
    NotNow,
    Provisioning,
    Refusal,
    ServiceError,
    Step,
    switch,
    wipe,
)
from holdfast.activities.nodes.machine_identity import Identities, problem
from holdfast.activities.site.site import Site, as_retryable_errors
from holdfast.model.calls.provisioner import (
    CheckProvisionerInput,
    Enlisted,
    EnlistInput,
    Provisioned,
    ProvisionInput,
)
from holdfast.model.entities.provisioner import Checked, NodeAction, NodeRequest, Progress, Result
from holdfast.model.words import counted

BEAT_SECONDS: Final = 2.0
CONFLICTS_BORNE: Final = 8
"""Tries per change: a node's status, and with it the version that our change names, changes every few seconds."""
LEASE_LONGEST: Final = 60.0
PODS_TOLD: Final = 3
_LEASE: Final = ("coordination.k8s.io/v1", "Lease")
_NONE: Final = "this worker has no provisioner: see the setting provisioner_url"


def _without() -> ApplicationError:
    """Return the error of a worker that has no service configured; another worker may have one."""
    return ApplicationError(_NONE, type="NoProvisioner", category=ApplicationErrorCategory.BENIGN)


class _Gone(Exception):
    """The node's object is gone, or another one has its name."""


async def enlist(site: Site, port: Provisioning | None, given: EnlistInput) -> Enlisted:
    """Find the provisioning service of a node, and quarantine a node that is to be wiped.

    Raises:
        ApplicationError: of type `ClusterMismatch`, `ClusterUnreachable` or `NoProvisioner`, which are retried.
    """
    site.check_cluster(given.cluster, given.cluster_uid)
    request = given.request
    async with as_retryable_errors():
        node = await site.kube.find("v1", "Node", request.node)
        if node is None and request.action not in {NodeAction.BOOT, NodeAction.POWER_OFF}:
            return Enlisted(refused=f"there is no node {request.node}")
        uid = str(node["metadata"]["uid"]) if node is not None else ""
        if request.uid and request.uid != uid:
            return Enlisted(refused=f"the object of node {request.node} is gone, or another one has its name")
        if not request.action.by_service:
            return Enlisted(uid=uid)
        if port is None:
            raise _without()
        try:
            service = port.service_of(request.node, _said(node))
        except Refusal as refusal:
            return Enlisted(uid=uid, refused=str(refusal))
        if request.action is NodeAction.WIPE:
            try:
                await _quarantine(site, request.node, uid)
            except _Gone:
                return Enlisted(refused=f"there is no node {request.node} any more")
            except (Forbidden, Invalid) as error:
                return Enlisted(uid=uid, refused=f"it cannot be put into quarantine: {error.message}")
        return Enlisted(uid=uid, service=service)


async def provision(
    site: Site, port: Provisioning | None, given: ProvisionInput, identities: Identities | None = None
) -> Provisioned:
    """Carry out the request for a node, or a part of it.

    Args:
        site: the cluster.
        port: the service; None where this worker has none.
        given: the request.
        identities: the nodes' UUIDs, read once for several requests; by default read for this one.

    Raises:
        ApplicationError: of type `ClusterMismatch` or `NoProvisioner`, which are retried.
    """
    site.check_cluster(given.cluster, given.cluster_uid)
    request = given.request
    if port is None and request.action.by_service:
        raise _without()
    done = await _tried(site, port, request, identities or Identities())
    return done.model_copy(update={"renewed": request.renewed}) if request.fence else done


async def _tried(site: Site, port: Provisioning | None, request: NodeRequest, identities: Identities) -> Provisioned:
    """Carry out the request, and turn an error into its result."""
    async with _beating(request.progress) as (progress, note):
        try:
            request = request.model_copy(update={"progress": progress()})
            return await _done(site, port, request, identities, note)
        except Away as error:
            if error.broken and port is not None and await port.answers(request.node, request.service):
                return Provisioned(result=Result.WAITS, said=str(error), progress=progress(), reached=True)
            return Provisioned(result=Result.AWAY, said=str(error), progress=progress())
        except NotNow as error:
            return Provisioned(result=Result.WAITS, said=str(error), progress=progress(), reached=True)
        except Refusal as error:
            return Provisioned(result=Result.REFUSED, said=str(error), progress=progress(), reached=True)
        except _Gone as error:
            said = f"the node's object is gone, or another one has its name{error}"
            result = Result.WITHDRAWN if request.fence else Result.REFUSED
            return Provisioned(result=result, said=said, progress=progress())
        except Unreachable as error:
            said = one_line(f"the API server does not answer: {error.message}", 200)
            return Provisioned(result=Result.WAITS, said=said, progress=progress())
        except REFUSED as error:
            return Provisioned(result=Result.WAITS, said=one_line(error.message, 200), progress=progress())


async def check(site: Site, port: Provisioning | None, given: CheckProvisionerInput) -> Checked:
    """Ask the service whether it would take a request.

    Raises:
        ApplicationError: of type `ClusterMismatch`.
    """
    site.check_cluster(given.cluster, given.cluster_uid)
    if port is None:
        return Checked(good=False, found=_NONE, remedy="give each worker of this cluster the same settings")
    async with as_retryable_errors():
        node = await site.kube.find("v1", "Node", given.node) if given.node else None
        checked = await port.check(given.node, _said(node))
        if not given.node or not checked.good:
            return checked
        try:
            await _machine(site, port, given.node, node, Identities())
        except Refusal as refusal:
            return Checked(good=False, found=f"{checked.found}; {refusal}", remedy="nothing is done to it until then")
        except ServiceError as error:
            return Checked(good=False, found=str(error), remedy="ask again")
        return checked


async def _done(
    site: Site, port: Provisioning | None, request: NodeRequest, identities: Identities, note: Note
) -> Provisioned:
    if request.action is NodeAction.RELEASE:
        await _let_go(site, request)
        return Provisioned(result=Result.DONE, said="it takes pods again")
    if request.action is NodeAction.FENCED:
        return await _by_hand(site, request)
    if port is None:
        raise _without()
    node = await site.kube.find("v1", "Node", request.node)
    same = node is not None and node["metadata"]["uid"] == request.uid
    if request.uid and not same and request.action is not NodeAction.BOOT:  # A machine may join as a new node.
        if request.action is NodeAction.WIPE and node is not None:  # Its drives may be those that were not wiped.
            await _quarantine(site, request.node, node["metadata"]["uid"], node_taints.HELD)
            raise _Gone("; the node that has it is in quarantine until it is released")
        raise _Gone
    if request.fence:
        return await _fence(site, await _machine(site, port, request.node, node, identities), request, note)
    if request.action is NodeAction.WIPE:  # Before its pods are listed: from now on none is added.
        await _quarantine(site, request.node, request.uid)
    busy = "" if _is_begun(request) or request.force else await _pods(site, request)
    if busy:
        return Provisioned(result=Result.WAITS, said=busy, progress=request.progress)
    machine = await _machine(site, port, request.node, node, identities)
    if request.action is NodeAction.WIPE:
        step = await wipe(machine, request.progress, note)
        if step.result is Result.DONE:
            await _let_go(site, request)
        return _provisioned(step)

    async def empty() -> tuple[Result, str] | None:
        again = "" if request.force else await _pods(site, request)
        return (Result.WAITS, again) if again else None

    on = request.action is NodeAction.BOOT
    still = None if on else empty
    return _provisioned(await switch(machine, on, request.progress, note, pxe=request.pxe, still=still))


async def _machine(
    site: Site, port: Provisioning, name: str, node: Mapping[str, Any] | None, identities: Identities
) -> Machine:
    """Return a node's machine.

    Raises:
        Refusal: if it is another node's machine, or if that cannot be known.
        ServiceError: if it cannot be read.
    """
    machine = await port.machine(name, _said(node))
    uuid, owners = await machine.uuid(), await identities.owners(site.kube)
    wrong = problem(name, node, uuid, owners, allow_absent=port.allows_unverified)
    if wrong:
        raise Refusal(wrong)
    return machine


def _is_begun(request: NodeRequest) -> bool:
    """Whether its machine may have received a request; true for any boot, which interrupts no pods."""
    return request.action is NodeAction.BOOT or bool(request.progress.sent or request.progress.ordered)


def _provisioned(step: Step) -> Provisioned:
    return Provisioned(result=step.result, said=step.said, progress=step.progress, reached=True)


# Fencing of a silent node: its power, and the proof of it.


async def _fence(site: Site, machine: Machine, request: NodeRequest, note: Note) -> Provisioned:
    """Power off a silent node, unless its lease is renewed again, and mark its object."""

    async def silent() -> tuple[Result, str] | None:
        renewed = await _renewal(site, request.node) != request.renewed
        return (Result.WITHDRAWN, "its lease is renewed again") if renewed else None

    if request.progress.sent is None and (heard := await silent()) is not None:
        return Provisioned(result=heard[0], said=heard[1], reached=True)
    step = await switch(machine, False, request.progress, note, still=silent)
    if step.result is not Result.DONE:
        return _provisioned(step)
    at = datetime.now(UTC)
    said = f"powered off at {at:%H:%M:%S} UTC, by proof of its PowerState (rule fence)"
    await _say_off(site, request, at, said, request.renewed)
    return Provisioned(result=Result.DONE, said=said, progress=step.progress, reached=True, off_since=at)


async def _by_hand(site: Site, request: NodeRequest) -> Provisioned:
    """Accept a person's statement that a node's power is off, unless its lease is renewed meanwhile."""
    lease = await site.kube.find(*_LEASE, request.node, names.NODE_LEASES)
    spec = mapping(mapping(lease).get("spec"))
    before, seconds = str(spec.get("renewTime") or ""), float(spec.get("leaseDurationSeconds") or 0)
    # A live node renews its lease four times in its duration. This compares no clocks.
    await asyncio.sleep(min(LEASE_LONGEST, seconds))
    if await _renewal(site, request.node) != before:
        raise Refusal("its lease is being renewed, so that it is on")
    at = datetime.now(UTC)
    said = f"powered off by hand: {request.why}"
    await _say_off(site, request, at, said, before)
    return Provisioned(result=Result.DONE, said=said, off_since=at, renewed=before)


async def _say_off(site: Site, request: NodeRequest, at: datetime, said: str, renewed: str) -> None:
    ours = site.installation
    await _change(site, request.node, request.uid, lambda raw: node_taints.fence(raw, ours, at, said, renewed))


async def _renewal(site: Site, node: str) -> str:
    lease = await site.kube.find(*_LEASE, node, names.NODE_LEASES)
    return str(mapping(mapping(lease).get("spec")).get("renewTime") or "")


# A node's object and its pods.


def _said(node: Mapping[str, Any] | None) -> str:
    """Return the URL in a node's annotation; empty if there is none."""
    annotations = mapping(mapping(mapping(node).get("metadata")).get("annotations"))
    return str(annotations.get(names.ANNOTATION_REDFISH) or "")


async def _pods(site: Site, request: NodeRequest) -> str:
    """Return a text that names the pods on a node whose end would stop running work; empty for none."""
    listed = await site.kube.list("v1", "Pod", fields=f"spec.nodeName={request.node}", keep=_living)
    there: list[str] = listed["items"]
    if not there:
        return ""
    more = f" and {len(there) - PODS_TOLD} more" if len(there) > PODS_TOLD else ""
    return f"{counted(len(there), 'pod is', 'pods are')} on it: {', '.join(there[:PODS_TOLD])}{more}"


def _living(pod: Mapping[str, Any]) -> str | None:
    """Return the name of a pod; None if it is a DaemonSet's, is one of the node's own, or has ended."""
    metadata = mapping(pod.get("metadata"))
    owners = {one.get("kind") for one in mappings(metadata.get("ownerReferences"))}
    ended = mapping(pod.get("status")).get("phase") in {"Succeeded", "Failed"}
    if ended or owners & {"DaemonSet", "Node"} or "kubernetes.io/config.mirror" in mapping(metadata.get("annotations")):
        return None
    return f"{metadata.get('namespace')}/{metadata.get('name')}"


async def _quarantine(site: Site, name: str, uid: str, value: str = node_taints.WIPE) -> None:
    await _change(site, name, uid, lambda raw: node_taints.quarantine(raw, site.installation, value))


async def _let_go(site: Site, request: NodeRequest) -> None:
    await _change(site, request.node, request.uid, lambda raw: node_taints.let_go(raw, site.installation))


async def _change(
    site: Site, name: str, uid: str, change: Callable[[Mapping[str, Any]], node_taints.Patch | None]
) -> None:
    """Change exactly this node's object, in the version that the change was computed from.

    Raises:
        NotNow: if it changes too fast for that.
        Forbidden, Invalid: if it may not be changed, or admission refuses the change.
        WebhookFailed: if admission cannot be asked.
    """
    for _ in range(CONFLICTS_BORNE):
        node = await site.kube.find("v1", "Node", name)
        if node is None or node["metadata"]["uid"] != uid:
            raise _Gone
        patch = change(node)
        if patch is None:
            return
        version = node["metadata"]["resourceVersion"]
        try:
            await site.kube.patch("v1", "Node", name, uid=uid, patch=patch, resource_version=version)
        except NotFound:
            raise _Gone from None
        except Conflict:
            continue
        return
    raise NotNow("the node's object changes faster than it can be marked")


# Progress that outlives a killed worker.


@asynccontextmanager
async def _beating(before: Progress) -> AsyncGenerator[tuple[Callable[[], Progress], Note]]:
    """Heartbeat with the progress for as long as the block lasts; begin with the progress of an earlier try."""
    inside = activity.in_activity()
    known = [_earlier(before) if inside else before]

    def tell() -> None:
        activity.heartbeat(known[0].model_dump(mode="json"))

    async def note(progress: Progress) -> None:
        known[0] = progress
        if inside:
            # The SDK's own heartbeat may come too late, so the client sends it too, and returns once it is stored. The
            # SDK is told first: otherwise it could send older progress right after.
            tell()
            handle = activity.client().get_async_activity_handle(task_token=activity.info().task_token)
            await handle.heartbeat(progress.model_dump(mode="json"))

    async def beat() -> None:
        while True:
            tell()
            await asyncio.sleep(BEAT_SECONDS)

    task = asyncio.create_task(beat()) if inside else None
    try:
        yield lambda: known[0], note
    finally:
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def _earlier(before: Progress) -> Progress:
    details = activity.info().heartbeat_details
    try:
        return Progress.model_validate(details[0]) if details else before
    except ValidationError:
        return before
