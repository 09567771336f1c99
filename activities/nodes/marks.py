"""Reads nodes and their leases live, and writes the state of a node on its object (rows L4, L5)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence, Set
from typing import Any, Final, TypeVar

from holdfast import names
from holdfast.activities.facts.node_annotations import is_marked, is_ready, patch_of, with_fault_label
from holdfast.activities.facts.node_taints import is_fenced, unfence
from holdfast.activities.facts.workload_key import WorkloadKey, own_name
from holdfast.activities.kube.client import REFUSED, Conflict, Forbidden, NotFound, WebhookFailed
from holdfast.activities.kube.errors import UnknownKind
from holdfast.activities.kube.raw import mapping
from holdfast.activities.site.site import Pulse, Site, as_retryable_errors, persist
from holdfast.model import NodeMarked, NodeSight, NodeWish, NodeWord
from holdfast.model.calls.cluster import LookedNodes, LookNodesInput, MarkedNodes, MarkNodesInput

LEASE: Final = ("coordination.k8s.io/v1", "Lease")
REQUESTS_AT_ONCE: Final = 40
"""A list of a node's pods waits until the API server's cache has caught up: a tenth of a second each."""
CONFLICTS_BORNE: Final = 8
"""Tries per change: a node's status, and with it the version that our change names, changes every few seconds."""
_WEBHOOK_SECONDS: Final = 0.2
"""The pause before a mark that a webhook did not answer is tried again."""

Sensitive = Callable[[Set[str]], Awaitable[bool]]
"""Returns whether any of some workloads, given by their workflow ids, is sensitive, or may be."""
_SILENT: Final = frozenset({NodeWord.DOWN, NodeWord.LOST, NodeWord.FENCING})
_UNREADABLE: Final = (Forbidden, NotFound, UnknownKind)
"""What a list fails with where pods or attempts cannot be read: whose the pods are is not known then."""
T = TypeVar("T")


async def look_nodes(site: Site, given: LookNodesInput) -> LookedNodes:
    """Read some nodes and their leases live.

    Raises:
        ApplicationError: of type `ClusterMismatch`.
    """
    site.check_cluster(given.cluster, given.cluster_uid)
    async with as_retryable_errors(), Pulse() as pulse:
        found = await _each(
            persist(pulse, "looking at nodes", lambda name=name: _look(site, name, given.uids.get(name, "")))
            for name in given.nodes
        )
        return LookedNodes(nodes=tuple(found), blind=site.blind(pulse.blind))


async def _look(site: Site, name: str, asked_uid: str) -> NodeSight:
    # The lease first: a node that is found after that existed when its lease was not renewed.
    lease = await site.kube.find(*LEASE, name, names.NODE_LEASES)
    node = await site.kube.find("v1", "Node", name)
    if node is None:
        return NodeSight(name=name, asked_uid=asked_uid, gone=True)
    mark = site.marks.faults.of(node)
    return NodeSight(
        name=name,
        asked_uid=asked_uid,
        uid=node["metadata"]["uid"],
        renewed=str(mapping(mapping(lease).get("spec")).get("renewTime") or ""),
        fault=mark.reason if mark is not None else "",
        message=mark.message if mark is not None else "",
        ready=is_ready(node),
    )


async def mark_nodes(site: Site, given: MarkNodesInput, sensitive: Sensitive | None = None) -> MarkedNodes:
    """Write the state of some nodes on their objects.

    Args:
        site: the cluster.
        given: the nodes, and what to write on each.
        sensitive: called with the workloads on a node that is to be fenced; without it, all count as sensitive.

    Raises:
        ApplicationError: of type `ClusterMismatch`.
    """
    site.check_cluster(given.cluster, given.cluster_uid)
    async with as_retryable_errors(), Pulse() as pulse:
        done = await _each(persist(pulse, "marking nodes", lambda wish=wish: _mark(site, wish)) for wish in given.nodes)
        done = [
            await persist(pulse, "looking at pods", lambda one=one: _whose(site, one, sensitive))
            if one.word is NodeWord.FENCING and not one.gone and not one.refused
            else one
            for one in done
        ]
        return MarkedNodes(nodes=tuple(done))


async def _whose(site: Site, done: NodeMarked, sensitive: Sensitive | None) -> NodeMarked:
    """Add whether a node has pods of ours, and of sensitive workloads, now that no new pods can come."""
    try:
        workloads = await _workloads(site, done.name)
    except _UNREADABLE:
        return done.model_copy(update={"ours": True, "sensitive": True})
    if not workloads:
        return done
    return done.model_copy(update={"ours": True, "sensitive": sensitive is None or await sensitive(workloads)})


async def _workloads(site: Site, node: str) -> set[str]:
    """Return the workflow ids of this installation's workloads with a pod on a node."""
    labels = f"{names.LABEL_INSTALLATION}={site.installation}"
    pods = (await site.kube.list("v1", "Pod", labels=labels, fields=f"spec.nodeName={node}"))["items"]
    return {one for key in {_key(pod) for pod in pods} for one in await _ids(site, key)}


def _key(pod: Mapping[str, Any]) -> WorkloadKey:
    metadata = pod["metadata"]
    return WorkloadKey(metadata["namespace"], str(mapping(metadata["labels"]).get(names.LABEL_WORKLOAD_UID) or ""))


async def _ids(site: Site, key: WorkloadKey) -> set[str]:
    """Return the workflow ids that attempts in the pods' own namespace have: labels alone can be copied (row X8).

    An id has the kind of an applied JobSet, which no label and no annotation of a pod shows.
    """
    labels = f"{names.LABEL_WORKLOAD_UID}={key.uid}"
    attempts = (await site.kube.list(names.API_VERSION, names.ATTEMPT_KIND, key.namespace, labels=labels))["items"]
    said = {str(mapping(one.get("spec")).get("workflowId")) for one in attempts}
    return {one for one in said if own_name(one, site.cluster, key.namespace)}


async def _mark(site: Site, wish: NodeWish) -> NodeMarked:
    """Write the state of one node on its object, unless it does not concern this installation."""
    done, why = NodeMarked(name=wish.name, uid=wish.uid, word=wish.word), "it changes faster than it can be marked"
    for _ in range(CONFLICTS_BORNE):
        node = await site.kube.find("v1", "Node", wish.name)
        if node is None or node["metadata"]["uid"] != wish.uid:
            return done.model_copy(update={"gone": True})
        patch, fenced = patch_of(node, wish, site.installation), is_fenced(node, site.installation)
        if wish.word not in _SILENT:
            patch = unfence(node, site.installation, patch)
        ours = fenced or is_marked(node, site.installation)
        if patch is not None and not ours and not await _has_ours(site, wish.name):
            patch = None
        patch = with_fault_label(node, wish, site.installation, patch)
        if patch is None:
            return done
        try:
            version = node["metadata"]["resourceVersion"]
            await site.kube.patch("v1", "Node", wish.name, uid=wish.uid, patch=patch, resource_version=version)
        except NotFound:
            return done.model_copy(update={"gone": True})
        except Conflict:
            continue
        except WebhookFailed as error:  # Often it answers a moment later, and a mark is not to wait for a minute.
            why = error.message[:200]
            await asyncio.sleep(_WEBHOOK_SECONDS)
            continue
        except REFUSED as error:  # Admission may refuse one node, and must stop no other.
            return done.model_copy(update={"refused": error.message[:200]})
        return done
    return done.model_copy(update={"refused": why})


async def _has_ours(site: Site, node: str) -> bool:
    """Whether a pod of a workload of this installation is on a node."""
    try:
        return bool(await _workloads(site, node))
    except _UNREADABLE:
        return True  # Where pods may be read in some namespaces only, marking one node too many is the lesser evil.


async def _each(calls: Iterable[Awaitable[T]]) -> Sequence[T]:
    """Make all calls, some at the same time, and return their results in order."""
    slots = asyncio.Semaphore(REQUESTS_AT_ONCE)

    async def one(call: Awaitable[T]) -> T:
        async with slots:
            return await call

    return await asyncio.gather(*(one(call) for call in calls))
