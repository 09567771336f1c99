"""`-o json` of large answers: Temporal is given them compressed (D7), a program reads them as they are."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from holdfast.cli.app import app
from holdfast.cli.entities import node_text
from holdfast.model import Phase
from holdfast.model.entities.graph import Graph, GraphNode, GraphStatus
from holdfast.model.entities.provisioner import NodeAction, NodeRequest, ProvisionerStatus
from holdfast.model.entities.queue import Queue, QueueLine, QueueStatus
from holdfast.model.packed import PLAIN_MAXIMUM

NOW = datetime(2026, 1, 31, 2, 14, 50, tzinfo=UTC)


def a_queue() -> QueueStatus:
    """1,000 workloads that wait, and 1,000 that were let in."""
    lines = tuple(
        QueueLine(
            namespace="research",
            name=f"train-{number}",
            uid=f"00000000-0000-0000-0000-{number:012}",
            admitted=number >= 1000,
            position=number + 1 if number < 1000 else 0,
            priority=0,
            since=NOW,
            demand={"nvidia.com/gpu": "8"},
            why="8 of nvidia.com/gpu are needed, and none is free",
        )
        for number in range(2000)
    )
    queue = Queue(name="gpus", cluster="dev")
    return QueueStatus(queue=queue, message="full", cycle=1, used={}, admitted=1000, waiting=1000, lines=lines)


def a_graph() -> GraphStatus:
    """1,000 workloads that have a long wait, and 1,000 dependencies."""
    names = [f"stage-{number}" for number in range(1000)]
    nodes = [
        {"name": name, "after": [{"node": one} for one in names[max(0, at - 1) : at]]} for at, name in enumerate(names)
    ]
    graph = Graph(name="g", cluster="dev", nodes=tuple(GraphNode.model_validate(one) for one in nodes))
    waits = {name: f"it waits for {name} to succeed: {'x' * 300}" for name in names}
    return GraphStatus(
        name="g",
        namespace="research",
        cluster="dev",
        phase=Phase.PENDING,
        message="",
        counts={},
        graph=graph,
        items={},
        waits=waits,
    )


def a_provisioner() -> ProvisionerStatus:
    pending = tuple(
        NodeRequest(number=number, node=f"node-{number}", action=NodeAction.BOOT, at=NOW, why="w" * 200)
        for number in range(1000)
    )
    waits = {one.number: "its turn has not come" for one in pending}
    return ProvisionerStatus(cluster="dev", message="", at_once=8, pending=pending, waits=waits)


class Session:
    """A session whose queue and graph answer."""

    def __init__(self) -> None:
        self.asked = SimpleNamespace(status=_answers(a_queue))

    def queue(self, _name: str) -> Any:
        return self.asked

    async def queues(self) -> list[Any]:
        return [self.asked]

    def graph(self, _name: str, _namespace: str) -> Any:
        return SimpleNamespace(status=_answers(a_graph))


def _answers(make: Callable[[], Any]) -> Any:
    async def status() -> Any:
        return make()

    return status


@asynccontextmanager
async def session(*_: Any) -> AsyncGenerator[Session]:
    yield Session()


def printed(monkeypatch: pytest.MonkeyPatch, *argv: str) -> str:
    for module in ("queue", "graph"):
        monkeypatch.setattr(f"holdfast.cli.entities.{module}.session", session)
    result = CliRunner().invoke(app, list(argv))
    assert result.exit_code == 0, result.output
    assert len(result.stdout) > PLAIN_MAXIMUM
    return result.stdout


@pytest.mark.row("D7", level="pure")
def test_D7_a_large_queue_is_printed_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(a_queue().model_dump(mode="json")) == {"zlib"}, "it is large enough to be compressed"
    found = json.loads(printed(monkeypatch, "queue", "show", "gpus", "-o", "json"))
    assert (found["waiting"], found["admitted"], len(found["lines"])) == (1000, 1000, 2000)
    (found,) = json.loads(printed(monkeypatch, "queue", "list", "-o", "json"))
    assert len(found["lines"]) == 2000


@pytest.mark.row("D7", level="pure")
def test_D7_a_large_graph_is_printed_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    found = json.loads(printed(monkeypatch, "graph", "research/g", "-o", "json"))
    assert len(found["graph"]["nodes"]) == len(found["waits"]) == 1000


@pytest.mark.row("D7", level="pure")
def test_D7_what_is_pending_at_machines_is_printed_as_it_is() -> None:
    found = node_text.document(None, a_provisioner())
    assert len(found["provisioner"]["pending"]) == 1000
