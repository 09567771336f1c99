"""What an entity was begun with, read from its histories, also where that is packed (row D2)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from holdfast import names
from holdfast.activities.entities import last_documents
from holdfast.activities.entities.executions import PastRun, Word
from holdfast.model import packed as packing
from holdfast.model.calls.gang import GangBegin, RendezvousInput, RendezvousMemory
from holdfast.model.entities.broker import Broker
from holdfast.model.entities.graph import Graph, GraphNode
from holdfast.model.entities.queue import Queue
from holdfast.model.gang.state import Gang
from holdfast.model.packed import packed
from holdfast.policy.entities import queue as policy
from holdfast.policy.rendezvous.step import begun
from holdfast.policy.values.edit import edit

NOW = datetime(2026, 1, 31, 2, 15, tzinfo=UTC)

ROW = pytest.mark.row("D2", level="pure")
DAMAGED = {"zlib": "x"}
BEGIN = {
    "cluster": "local",
    "namespace": "team",
    "workload": "w",
    "workload_uid": "uid",
    "workflow_id": names.workflow_id("local", "team", "w"),
    "submitted_at": NOW,
    "attempt": 1,
    "gang": Gang(min=1, max=2),
}


@pytest.fixture
def history(monkeypatch: pytest.MonkeyPatch) -> list[PastRun]:
    """Runs that Temporal still has; whatever is written down is packed, as it is above 256 KiB."""
    runs = list[PastRun]()

    async def past_runs(_client: Any, _workflow_id: str) -> AsyncIterator[PastRun]:
        for run in runs:
            yield run

    monkeypatch.setattr(last_documents, "past_runs", past_runs)
    monkeypatch.setattr(packing, "PLAIN_MAXIMUM", 0)
    return runs


def run_of(*arguments: Any) -> PastRun:
    return PastRun("run", arguments, {})


async def configured(workflow_id: str, model: type[Any]) -> tuple[Any, str | None]:
    return (await last_documents.configured(cast("Any", None), workflow_id, model))[:2]


@ROW
async def test_D2_a_queue_whose_memory_is_packed_goes_by_its_last_quota_and_goes_on_to_end(history: list[PastRun]):
    first = Queue(name="gpus", cluster="local", quota={"pods": "5000"})
    last = edit(first, quota={"pods": "5"})
    state = edit(policy.begun(last), closing="we move").model_dump(mode="json")
    assert set(state) == {"zlib"}
    history.append(run_of(packed(first.model_dump(mode="json")), state))
    assert await configured(first.workflow_id, Queue) == (last, "we move")
    history[0] = run_of(packed(first.model_dump(mode="json")), DAMAGED)
    assert await configured(first.workflow_id, Queue) == (first, None), "of what is damaged nothing is known"


@ROW
async def test_D2_a_broker_and_a_graph_are_read_where_they_are_packed(history: list[PastRun]):
    broker, graph = Broker(cluster="local"), Graph(name="g", cluster="local", nodes=(GraphNode(name="a"),))
    history[:] = [run_of(packed(broker.model_dump(mode="json")))]
    assert (await configured(broker.workflow_id, Broker))[0] == broker
    history[:] = [run_of(DAMAGED), run_of(packed(graph.model_dump(mode="json")))]
    found, *_ = await last_documents.graph_document(cast("Any", None), graph.workflow_id)
    assert found == graph


@ROW
@pytest.mark.usefixtures("history")
def test_D2_the_memory_of_a_rendezvous_is_read_where_it_is_packed():
    begin = GangBegin.model_validate(BEGIN)
    memory = RendezvousMemory(state=begun(begin.gang, "uid-1", 1, NOW), generation=41)
    wire = {**begin.model_dump(mode="json"), "memory": memory.model_dump(mode="json")}
    for each in (wire, {**wire, "memory": packed(wire["memory"])}, packed(wire)):
        found, sure = last_documents.rendezvous_memory(run_of(each))
        assert (found is not None and found.generation, sure) == (41, True)
        assert last_documents.latest_begin(run_of(each)) == begin
    assert last_documents.rendezvous_memory(run_of({**wire, "memory": DAMAGED})) == (None, False)


def wire(begin: GangBegin, gang: Gang | None = None) -> dict[str, Any]:
    """Return the input of a run that serves an attempt, whose gang had been resized if a size is given."""
    memory = RendezvousMemory(state=begun(gang, begin.run_id, begin.attempt, NOW)) if gang is not None else None
    return RendezvousInput(**dict(begin), memory=memory).model_dump(mode="json")


def served(begin: GangBegin) -> Word:
    return Word(names.SIGNAL_ATTEMPT, (begin.model_dump(mode="json"),))


def resized(least: int, most: int) -> Word:
    return Word(names.UPDATE_RESIZE, ({"min": least, "max": most},))


FIRST = GangBegin.model_validate({**BEGIN, "gang": Gang(min=4, max=4)})
SECOND = edit(FIRST, attempt=2)


@ROW
@pytest.mark.row("T6", level="pure")
@pytest.mark.parametrize(
    ("begin", "runs", "size"),
    [
        pytest.param(FIRST, [PastRun("a", (wire(FIRST),), {})], (4, 4), id="as it began"),
        pytest.param(FIRST, [PastRun("a", (wire(FIRST),), {}, (served(FIRST), resized(2, 3)))], (2, 3), id="resized"),
        pytest.param(
            FIRST,
            [PastRun("a", (wire(FIRST),), {}, (served(FIRST), resized(2, 3), served(FIRST)))],
            (2, 3),
            id="resized, and announced again",
        ),
        pytest.param(FIRST, [PastRun("b", (wire(FIRST, Gang(min=2, max=2)),), {})], (2, 2), id="continued as new"),
        pytest.param(
            FIRST,
            [PastRun("b", (wire(FIRST, Gang(min=2, max=2)),), {}, (resized(1, 3),))],
            (1, 3),
            id="continued as new, and resized again",
        ),
        pytest.param(
            FIRST,
            [
                PastRun("b", ({**wire(FIRST), "memory": DAMAGED},), {}),
                PastRun("a", (wire(FIRST),), {}, (served(FIRST), resized(2, 2))),
            ],
            (2, 2),
            id="resized in the run before a damaged one",
        ),
        pytest.param(
            SECOND,
            [PastRun("a", (wire(FIRST),), {}, (served(FIRST), resized(6, 8), served(SECOND)))],
            (4, 4),
            id="an earlier attempt was resized",
        ),
        pytest.param(
            SECOND,
            [PastRun("b", (wire(FIRST, Gang(min=6, max=8)),), {}, (served(SECOND),))],
            (4, 4),
            id="an earlier attempt was resized in an earlier run",
        ),
    ],
)
def test_D2_T6_a_gang_begun_anew_has_the_last_size_of_its_attempt(
    begin: GangBegin, runs: list[PastRun], size: tuple[int, int]
):
    found = last_documents.sized(begin, runs).gang
    assert (found.min, found.max) == size
