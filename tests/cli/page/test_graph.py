"""The drawing of a graph: columns by depth, arrows by condition, colours by phase (row E1)."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.cli.page.graph import NODES_DRAWN, graph_of
from holdfast.model import Phase
from holdfast.model.entities.graph import Graph, GraphNode, GraphStatus, Item, ItemPhase

pytestmark = pytest.mark.row("E1", level="pure")
ETL: list[dict[str, Any]] = [
    {"name": "fetch"},
    {"name": "clean", "after": [{"node": "fetch"}]},
    {"name": "train", "tasks": 3, "after": [{"node": "clean"}]},
    {"name": "report", "after": [{"node": "train", "on": "Any"}, {"node": "fetch"}]},
    {"name": "alone", "after": [{"node": "clean", "on": "Mutex"}]},
]


def status(nodes: list[dict[str, Any]], **phases: ItemPhase) -> GraphStatus:
    """The status of a graph; an item that is not named is awaited."""
    graph = Graph(name="etl", cluster="dev", nodes=tuple(GraphNode.model_validate(one) for one in nodes))
    return GraphStatus(
        name="etl",
        namespace="research",
        cluster="dev",
        phase=Phase.RUNNING,
        message="under way",
        counts={},
        graph=graph,
        items={item: Item(phase=phases.get(item.replace("-", "_"), ItemPhase.AWAITED)) for item in graph.items},
        waits={"report": "train to end"},
    )


def test_each_node_stands_in_the_column_of_its_depth():
    drawn = graph_of(status(ETL))
    columns = sorted({one.x for one in drawn.boxes})
    assert {one.label: columns.index(one.x) for one in drawn.boxes} == {
        "fetch": 0,
        "alone": 0,
        "clean": 1,
        "train [3]": 2,
        "report": 3,
    }
    assert len({(one.x, one.y) for one in drawn.boxes}) == len(ETL)
    width, height = drawn.box
    assert max(one.x for one in drawn.boxes) + width == drawn.width
    assert max(one.y for one in drawn.boxes) + height < drawn.height


def test_each_condition_has_an_arrow_and_what_never_runs_together_is_dashed():
    drawn = graph_of(status(ETL))
    assert {one.title: one.apart for one in drawn.arrows} == {
        "clean after fetch: Success": False,
        "train after clean: Success": False,
        "report after train: Any": False,
        "report after fetch: Success": False,
        "alone after clean: Mutex": True,
    }


def test_a_box_has_the_colour_of_the_worst_of_its_tasks_and_says_why():
    drawn = graph_of(status(ETL, fetch=ItemPhase.SUCCEEDED, train_0=ItemPhase.FAILED, train_1=ItemPhase.ADMITTED))
    boxes = {one.label: one for one in drawn.boxes}
    assert (boxes["fetch"].kind, boxes["train [3]"].kind, boxes["clean"].kind) == ("Succeeded", "Failed", "Pending")
    assert boxes["train [3]"].state == "1 Awaited, 1 Admitted…"
    assert boxes["report"].title == "report: Awaited: train to end"
    assert (boxes["fetch"].workload, boxes["train [3]"].workload) == ("etl-fetch", "")


def test_a_large_graph_is_text_alone():
    drawn = graph_of(status([{"name": f"n{number}"} for number in range(NODES_DRAWN + 1)]))
    assert drawn.boxes == ()
    assert f"n{NODES_DRAWN}" in drawn.text
