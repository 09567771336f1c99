"""A node whose mark is refused, by rights or by admission, keeps no other node from being marked (row L4)."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from holdfast.activities.kube.client import Forbidden, Invalid, Kube, KubeError, WebhookFailed
from holdfast.activities.nodes.marks import look_nodes, mark_nodes
from holdfast.activities.site.site import Site
from holdfast.model import Limits, NodeWish, NodeWord
from holdfast.model.calls.cluster import LookNodesInput, MarkNodesInput
from tests.policy.lives.life import START

REFUSALS = [
    Forbidden(403, "Forbidden", "nodes is forbidden"),
    Invalid(400, "BadRequest", 'admission webhook "taints" denied the request'),
    Invalid(422, "Invalid", "spec.taints: no such taint, says a ValidatingAdmissionPolicy"),
    WebhookFailed(500, "InternalError", 'failed calling webhook "taints": connection refused'),
]


class Nodes:
    """Nodes without pods, one of which may not be changed."""

    def __init__(self, refused: str, error: KubeError) -> None:
        self.refused = refused
        self.error = error
        self.patched: list[str] = []

    async def find(self, api_version: str, kind: str, name: str, namespace: str = "") -> dict[str, Any]:
        return {"metadata": {"name": name, "uid": name, "resourceVersion": "1"}, "spec": {}}

    async def list(self, *_: Any, **__: Any) -> dict[str, Any]:
        return {"items": []}

    async def patch(self, api_version: str, kind: str, name: str, **options: Any) -> None:
        if name == self.refused:
            raise self.error
        self.patched.append(name)


@pytest.mark.row("L4", level="pure")
@pytest.mark.parametrize("error", REFUSALS, ids=lambda one: f"{type(one).__name__} {one.status}")
async def test_L4_a_refused_mark_of_one_node_keeps_no_other_from_being_marked(error: KubeError):
    nodes = Nodes("b", error)
    site = Site(cast("Kube", nodes), "c", "k", "us", Limits())
    wishes = tuple(NodeWish(name=name, uid=name, word=NodeWord.FAULTY, why="memory", since=START) for name in "abc")
    given = MarkNodesInput(cluster="c", cluster_uid="k", nodes=wishes)

    done = await asyncio.wait_for(mark_nodes(site, given), 5.0)
    assert {one.name: one.refused for one in done.nodes} == {"a": "", "b": error.message, "c": ""}
    assert nodes.patched == ["a", "c"]


@pytest.mark.row("L4", level="pure")
async def test_L4_a_mark_is_tried_again_at_once_when_a_webhook_did_not_answer():
    class Nervous(Nodes):
        async def patch(self, api_version: str, kind: str, name: str, **options: Any) -> None:
            error, self.refused = self.refused == name, ""
            if error:
                raise self.error
            self.patched.append(name)

    nodes = Nervous("b", REFUSALS[-1])
    site = Site(cast("Kube", nodes), "c", "k", "us", Limits())
    wish = NodeWish(name="b", uid="b", word=NodeWord.FAULTY, why="memory", since=START)
    done = await mark_nodes(site, MarkNodesInput(cluster="c", cluster_uid="k", nodes=(wish,)))
    assert (done.nodes[0].refused, nodes.patched) == ("", ["b"])


@pytest.mark.row("L8", level="pure")
async def test_L8_marks_and_looks_say_which_node_of_a_name_they_were_for():
    nodes = Nodes("", REFUSALS[0])
    site = Site(cast("Kube", nodes), "c", "k", "us", Limits())
    wish = NodeWish(name="b", uid="before", word=NodeWord.FAULTY, why="memory", since=START)
    (done,) = (await mark_nodes(site, MarkNodesInput(cluster="c", cluster_uid="k", nodes=(wish,)))).nodes
    assert (done.uid, done.gone, nodes.patched) == ("before", True, [])
    look = LookNodesInput(cluster="c", cluster_uid="k", nodes=("a", "b"), uids={"b": "before"})
    sights = (await look_nodes(site, look)).nodes
    assert [(one.name, one.uid, one.asked_uid) for one in sights] == [("a", "a", ""), ("b", "b", "before")]
