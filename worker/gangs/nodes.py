"""Finds out from the cluster whether the nodes of a gang's silent members are silent too (row D4)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from holdfast import names
from holdfast.activities.facts.node_annotations import marked_by, word_on
from holdfast.activities.kube.client import Kube, KubeError
from holdfast.activities.kube.raw import mapping, mappings
from holdfast.model import NodeWord

AT_ONCE: Final = 16
"""Nodes that are read at the same time."""
NODES_MAXIMUM: Final = 256
"""Nodes that are read in one look: further silent ones are read once some of these are settled."""
LEASE_SECONDS: Final = 40.0
"""Duration of a lease that does not state its own: the kubelet's default."""
_DOWN: Final = frozenset({NodeWord.DOWN, NodeWord.LOST})


class _Renewal(NamedTuple):
    text: str
    since: float
    """When this renewal was first seen, by the loop's clock: clocks of other hosts are not compared."""


class GangNodes:
    """Reads nodes and their leases live, and tracks since when a lease has not been renewed."""

    def __init__(self, kube: Kube) -> None:
        """Start with no lease seen."""
        self._kube = kube
        self._renewals: dict[str, _Renewal] = {}

    async def look(self, nodes: Iterable[str], at: float) -> dict[str, str]:
        """Return the nodes that are silent or gone, each with the reason; a node that cannot be read is neither.

        Args:
            nodes: the names of the nodes to check.
            at: now, by a monotonic clock in seconds.
        """
        wanted = list(dict.fromkeys(nodes))[:NODES_MAXIMUM]
        self._renewals = {name: one for name, one in self._renewals.items() if name in wanted}
        turns = asyncio.Semaphore(AT_ONCE)

        async def read(name: str) -> str:
            async with turns:
                try:
                    return await self._read(name, at)
                except KubeError:
                    return ""

        return {name: why for name, why in zip(wanted, await asyncio.gather(*map(read, wanted)), strict=True) if why}

    async def _read(self, name: str, at: float) -> str:
        node = await self._kube.find("v1", "Node", name)
        if node is None:
            return f"its node {name} is gone"
        said = verdict(node)
        if said:
            return said
        lease = await self._kube.find("coordination.k8s.io/v1", "Lease", name, names.NODE_LEASES)
        return self._unrenewed(name, mapping(mapping(lease).get("spec")), at)

    def _unrenewed(self, name: str, spec: Mapping[str, Any], at: float) -> str:
        renewed = str(spec.get("renewTime") or "")
        if not renewed:
            return ""
        known = self._renewals.get(name)
        if known is None or known.text != renewed:
            self._renewals[name] = _Renewal(renewed, at)
            return ""
        given: Any = spec.get("leaseDurationSeconds")
        lasts = float(given) if isinstance(given, int) and given > 0 else LEASE_SECONDS
        return f"its node {name} has not renewed its lease for {lasts:g} s" if at - known.since >= lasts else ""


def verdict(node: Mapping[str, Any]) -> str:
    """Return why a raw node is known to be silent, by a node monitor or by Kubernetes; empty if it is not."""
    name = mapping(node.get("metadata")).get("name", "")
    for installation in sorted(marked_by(node)):
        word, why, _ = word_on(node, installation)
        if word in _DOWN:
            return f"its node {name} is Down: {why}"
    for one in mappings(mapping(node.get("status")).get("conditions")):
        if one.get("type") == "Ready" and one.get("status") == "Unknown":
            return f"its node {name} is silent: {one.get('reason') or 'Ready is Unknown'}"
    return ""
