"""Looking at nodes and their leases live, and saying on a node's object how it stands (rows L4, L5)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Sequence
from typing import Final, TypeVar

from holdfast import names
from holdfast.activities.contract import LookedNodes, LookNodesInput, MarkedNodes, MarkNodesInput
from holdfast.activities.kube import Conflict, Forbidden, KubeError, NotFound
from holdfast.activities.node_word import is_ready, marked_by, patch_of
from holdfast.activities.raw import mapping
from holdfast.activities.site import Pulse, Site, persist, told
from holdfast.model import NodeMarked, NodeSight, NodeWish

LEASE: Final = ("coordination.k8s.io/v1", "Lease")
REQUESTS_AT_ONCE: Final = 40
"""A node's pods are listed from the API server's cache, which first catches up: a tenth of a second each."""
CONFLICTS_BORNE: Final = 8
"""A node's status changes every few seconds, and with it the version that a change of ours names."""

T = TypeVar("T")


async def look_nodes(site: Site, given: LookNodesInput) -> LookedNodes:
    """Read some nodes and their leases live.

    Raises:
        ApplicationError: of type `ClusterMismatch`.
    """
    site.check_cluster(given.cluster, given.cluster_uid)
    async with told(), Pulse() as pulse:
        found = await _each(
            persist(pulse, "looking at nodes", lambda name=name: _look(site, name)) for name in given.nodes
        )
        return LookedNodes(nodes=tuple(found), blind=site.blind(pulse.blind))


async def _look(site: Site, name: str) -> NodeSight:
    # The lease first: a node that is read after it was there when it was not renewed.
    lease = await site.kube.find(*LEASE, name, names.NODE_LEASES)
    node = await site.kube.find("v1", "Node", name)
    if node is None:
        return NodeSight(name=name, gone=True)
    mark = site.marks.faults.of(node)
    return NodeSight(
        name=name,
        uid=node["metadata"]["uid"],
        renewed=str(mapping(mapping(lease).get("spec")).get("renewTime") or ""),
        fault=mark.reason if mark is not None else "",
        message=mark.message if mark is not None else "",
        ready=is_ready(node),
    )


async def mark_nodes(site: Site, given: MarkNodesInput) -> MarkedNodes:
    """Say on some nodes how they stand.

    Raises:
        ApplicationError: of type `ClusterMismatch`.
    """
    site.check_cluster(given.cluster, given.cluster_uid)
    async with told(), Pulse() as pulse:
        done = await _each(persist(pulse, "marking nodes", lambda wish=wish: _mark(site, wish)) for wish in given.nodes)
        return MarkedNodes(nodes=tuple(done))


async def _mark(site: Site, wish: NodeWish) -> NodeMarked:
    """Say on one node how it stands, unless it is none of this installation's business."""
    done = NodeMarked(name=wish.name, word=wish.word)
    for _ in range(CONFLICTS_BORNE):
        node = await site.kube.find("v1", "Node", wish.name)
        if node is None or node["metadata"]["uid"] != wish.uid:
            return done.model_copy(update={"gone": True})
        patch = patch_of(node, wish, site.installation)
        if patch is None:
            return done
        if site.installation not in marked_by(node) and not await _has_ours(site, wish.name):
            return done
        try:
            version = node["metadata"]["resourceVersion"]
            await site.kube.patch("v1", "Node", wish.name, uid=wish.uid, patch=patch, resource_version=version)
        except NotFound:
            return done.model_copy(update={"gone": True})
        except Conflict:
            continue
        except Forbidden as error:
            return done.model_copy(update={"refused": error.message[:200]})
        return done
    return done.model_copy(update={"refused": "it changes faster than it can be marked"})


async def _has_ours(site: Site, node: str) -> bool:
    """Whether a pod of this installation is on a node."""
    labels = f"{names.LABEL_INSTALLATION}={site.installation}"
    try:
        return bool((await site.kube.list("v1", "Pod", labels=labels, fields=f"spec.nodeName={node}"))["items"])
    except KubeError as error:
        if isinstance(error, Forbidden):
            return True  # Where pods may be read in some namespaces only, marking one node too many is the lesser evil.
        raise


async def _each(calls: Iterable[Awaitable[T]]) -> Sequence[T]:
    """Make all calls, some at once, and return what each came to, in order."""
    slots = asyncio.Semaphore(REQUESTS_AT_ONCE)

    async def one(call: Awaitable[T]) -> T:
        async with slots:
            return await call

    return await asyncio.gather(*(one(call) for call in calls))
