"""Which nodes of silent members are silent too, by what the cluster says of them (row D4)."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast import names
from holdfast.activities.facts.node_annotations import annotation_of
from holdfast.activities.kube.client import Unreachable
from holdfast.model import NodeWish, NodeWord
from holdfast.worker.gangs.nodes import LEASE_SECONDS, NODES_MAXIMUM, GangNodes

ROW = pytest.mark.row
NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


class Nodes:
    """What an API server answers of nodes and leases, as raw objects."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.away = False
        self.reads = 0

    async def find(self, api_version: str, kind: str, name: str, namespace: str | None = None) -> Any:
        self.reads += 1
        if self.away:
            raise Unreachable(503, "ServiceUnavailable", "no answer")
        assert (kind, namespace) in {("Node", None), ("Lease", names.NODE_LEASES)}
        return self.objects.get((kind, name))

    def node(self, name: str, ready: str = "True", **annotations: str) -> None:
        status = {"conditions": [{"type": "Ready", "status": ready, "reason": "NodeStatusUnknown"}]}
        self.objects["Node", name] = {"metadata": {"name": name, "annotations": annotations}, "status": status}
        self.lease(name, "1")

    def lease(self, name: str, renewed: str, **spec: Any) -> None:
        self.objects["Lease", name] = {"metadata": {"name": name}, "spec": {"renewTime": renewed, **spec}}

    def look(self, looks: GangNodes, at: float, *wanted: str) -> dict[str, str]:
        return asyncio.run(looks.look(wanted, at))


@pytest.fixture
def nodes() -> Nodes:
    return Nodes()


@pytest.fixture
def looks(nodes: Nodes) -> GangNodes:
    return GangNodes(nodes)  # type: ignore[arg-type]


@ROW("D4", level="pure")
def test_D4_the_monitors_verdict_counts_and_its_other_words_do_not(nodes: Nodes, looks: GangNodes) -> None:
    for word in (NodeWord.FAULTY, NodeWord.RETURNING, NodeWord.DOWN, NodeWord.LOST):
        wish = NodeWish(name=word.value, uid="u", word=word, since=NOW, why="nothing was heard", heard=NOW)
        said = annotation_of(wish)
        assert said is not None
        nodes.node(word.value, **{names.node_annotation("here"): said})
    found = nodes.look(looks, 0, "Faulty", "Returning", "Down", "Lost")
    assert found == {name: f"its node {name} is Down: nothing was heard" for name in ("Down", "Lost")}


@ROW("D4", level="pure")
def test_D4_a_node_that_is_gone_or_unknown_to_kubernetes_is_silent(nodes: Nodes, looks: GangNodes) -> None:
    nodes.node("unknown", ready="Unknown")
    nodes.node("unready", ready="False")
    assert nodes.look(looks, 0, "unknown", "unready", "gone") == {
        "unknown": "its node unknown is silent: NodeStatusUnknown",
        "gone": "its node gone is gone",
    }


@ROW("D4", level="pure")
def test_D4_a_lease_counts_by_how_long_it_was_seen_not_renewed(nodes: Nodes, looks: GangNodes) -> None:
    nodes.node("a")
    assert nodes.look(looks, 0, "a") == {}
    assert nodes.look(looks, LEASE_SECONDS - 1, "a") == {}
    nodes.lease("a", "2")
    assert nodes.look(looks, LEASE_SECONDS + 1, "a") == {}
    assert nodes.look(looks, 2 * LEASE_SECONDS, "a") == {}
    assert nodes.look(looks, 2 * LEASE_SECONDS + 1, "a") == {"a": "its node a has not renewed its lease for 40 s"}
    nodes.lease("a", "3", leaseDurationSeconds=10)
    assert nodes.look(looks, 100, "a") == {}
    assert nodes.look(looks, 110, "a") == {"a": "its node a has not renewed its lease for 10 s"}


@ROW("D4", level="pure")
def test_D4_a_node_that_cannot_be_read_is_not_known_to_be_silent(nodes: Nodes, looks: GangNodes) -> None:
    nodes.away = True
    assert nodes.look(looks, 0, "a") == {}
    nodes.away, nodes.reads = False, 0
    assert len(nodes.look(looks, 0, *(f"n-{index}" for index in range(2000)))) == NODES_MAXIMUM
    assert nodes.reads == NODES_MAXIMUM
