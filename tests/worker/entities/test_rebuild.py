"""A graph that is begun anew hears of all ends, whatever Temporal does meanwhile (row D2)."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest
from temporalio.client import WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from holdfast import names
from holdfast.model import Phase, Status
from holdfast.model.entities.graph import Graph, GraphNews
from holdfast.worker.entities import rebuild
from tests.policy.entities.test_broker import status

GRAPH = Graph.model_validate({"name": "etl", "cluster": "dev", "nodes": [{"name": "a"}, {"name": "b"}]})
WORKLOADS = {names.workflow_id("dev", GRAPH.namespace, GRAPH.workload(item)): item for item in GRAPH.items}


@dataclass
class Temporal:
    """Temporal with a graph's workloads, which run until the graph has begun, and have ended then."""

    begun: bool = False
    errors: list[Exception] = field(default_factory=list[Exception])
    """What is raised, one after the other, once the graph has begun."""
    told: list[GraphNews] = field(default_factory=list[GraphNews])
    refusal: RPCError | None = None

    async def start_workflow(self, *_: Any, **__: Any) -> None:
        self.begun = True

    def get_workflow_handle(self, workflow_id: str) -> Any:
        now = status()

        async def describe(**_: Any) -> Any:
            if self.begun and self.errors:
                raise self.errors.pop()
            state = WorkflowExecutionStatus.COMPLETED if self.begun else WorkflowExecutionStatus.RUNNING
            return SimpleNamespace(status=state, memo=memo, start_time=datetime.now(UTC), typed_search_attributes={})

        async def memo() -> dict[str, Any]:
            ended = now.model_copy(update={"phase": Phase.SUCCEEDED, "conditions": ()})
            return {names.MEMO_UID: now.uid, names.MEMO_STATUS: ended.model_dump(mode="json", by_alias=True)}

        async def query(*_: Any, **__: Any) -> Status:
            return now

        async def signal(name: str, news: GraphNews) -> None:
            assert (workflow_id, name) == (GRAPH.workflow_id, names.SIGNAL_NEWS)
            if self.refusal is not None:
                raise self.refusal
            self.told.append(news)

        return SimpleNamespace(describe=describe, query=query, signal=signal)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def document(*_: Any) -> Any:
        return GRAPH, None, "", {}

    monkeypatch.setattr(rebuild, "graph_document", document)
    monkeypatch.setattr(rebuild, "_PAUSE", 0.0)


async def begun(temporal: Temporal) -> set[tuple[str, Phase | None]]:
    start = await rebuild.prepare_graph(cast(Any, temporal), GRAPH.workflow_id)
    assert start is not None
    await start()
    return {(one.item, one.outcome) for one in temporal.told}


@pytest.mark.row("D2", level="pure")
@pytest.mark.parametrize(
    "error", [RPCError("away", RPCStatusCode.UNAVAILABLE, b""), RuntimeError("the codec's server does not answer")]
)
async def test_D2_a_graph_begun_anew_is_told_of_an_end_that_temporal_does_not_tell_at_once(error: Exception) -> None:
    assert await begun(Temporal(errors=[error] * 3)) == {("a", Phase.SUCCEEDED), ("b", Phase.SUCCEEDED)}


@pytest.mark.row("D2", level="pure")
async def test_D2_what_never_answers_and_a_graph_that_has_ended_hold_up_nothing() -> None:
    broken = Temporal(errors=[RuntimeError("it cannot be read")] * 1000)
    assert await begun(broken) == set()
    over = Temporal(refusal=RPCError("it has ended", RPCStatusCode.NOT_FOUND, b""))
    assert await begun(over) == set()
