"""What each workflow carries over and answers at its documented maximum: under 1 MiB (D7).

Measured as Temporal is given it. Histories: `test_entities_under_load.py`.
"""

from __future__ import annotations

import json
import random
import secrets
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from temporalio.contrib.pydantic import pydantic_data_converter

from holdfast.model import NodeBook, NodeMarked, NodeSight, NodesSeen, NodeState, NodeTimings, Status, Workload
from holdfast.model.calls.broker import WeighInput
from holdfast.model.calls.gang import Attached, RendezvousInput, RendezvousMemory
from holdfast.model.entities.broker import REFUSED_MAXIMUM, Broker, BrokerState, Candidate
from holdfast.model.entities.graph import EDGES_MAXIMUM, ITEMS_MAXIMUM, Graph, GraphNews
from holdfast.model.entities.provisioner import NodeAction, NodeRequest, Progress, ProvisionerState
from holdfast.model.entities.queue import Queue, QueueNews, Standing
from holdfast.model.gang.state import Gang, GangEvent, Reported, Said
from holdfast.model.gang.wire import Join, MemberState, Report, WorkerFailure
from holdfast.policy.entities import broker as broker_policy
from holdfast.policy.entities import graph as graph_policy
from holdfast.policy.entities import queue as queue_policy
from holdfast.policy.loop.fold import fold
from holdfast.policy.loop.submission import submitted
from holdfast.policy.nodes import monitor, provisioner_status
from holdfast.policy.rendezvous import outcome
from holdfast.policy.rendezvous.orders import holders, orders
from holdfast.policy.rendezvous.step import begun, step
from holdfast.policy.status.explain import explain_of, status_of
from holdfast.policy.values import events
from holdfast.policy.values.edit import edit
from holdfast.workflows.entities.cluster_watch import ClusterWatchInput
from holdfast.workflows.entities.node_monitor import NodeMonitorInput, NodeMonitorStatus
from holdfast.workflows.entities.provisioner import ProvisionerInput
from tests.policy.lives.life import START, workload

MIB = 1024 * 1024
NOW = datetime(2026, 11, 24, 9, 30, 17, 123456, tzinfo=UTC)
_LUCK = random.Random(7)


def uid() -> str:
    return str(UUID(int=_LUCK.getrandbits(128), version=4))


def label(*parts: str) -> str:
    """A name as controllers make them up."""
    return "-".join((*parts, "".join(_LUCK.choices("bcdfghjklmnpqrstvwxz2456789", k=5))))


def moment(spread: float = 30) -> datetime:
    return NOW + timedelta(seconds=_LUCK.uniform(0, spread))


class Kept:
    """What a workflow leaves to its next run, and what it answers and asks at its largest."""

    def __init__(self, carried: Sequence[Any], *answers: Any) -> None:
        self.carried, self.answers = carried, answers


def size(values: Sequence[Any]) -> int:
    return sum(len(one.data) for one in pydantic_data_converter.payload_converter.to_payloads(values))


def nodes() -> Kept:
    """10,000 nodes of 18,500 lost, each marked."""
    timings, count = NodeTimings(), 10_000
    sights = tuple(
        NodeSight(
            name=label("gke", "train", "pool", f"{_LUCK.getrandbits(32):08x}"),
            uid=uid(),
            renewed=moment().strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            heard=moment(),
            silent=True,
        )
        for _ in range(count)
    )
    book = monitor.on_node_news(NodeBook(), NodesSeen(at=NOW + timedelta(minutes=1), nodes=sights, total=18_500))
    later = NOW + timedelta(minutes=10)
    book = monitor.looked(book, sights, later, ())
    book = monitor.settle(book, timings, later)
    done = [NodeMarked(name=one.name, word=one.word, ours=True) for one in book.nodes.values()]
    book = monitor.settle(monitor.marked(book, done, later), timings, later)
    assert sum(one.state is NodeState.DOWN for one in book.nodes.values()) == count
    given = {"cluster": "c", "cluster_uid": uid(), "timings": timings}
    return Kept(
        [NodeMonitorInput(**given, book=book)],
        NodeMonitorStatus(**given, book=book),
    )


def provisioner() -> Kept:
    """400 nodes that are wiped, each with 36 drives whose erasure is under way."""
    drive = "/redfish/v1/Systems/System.Embedded.1/Storage/RAID.Integrated.1-1/Drives/Disk.Bay.{}:Enclosure.Internal.0"

    def order() -> str:
        return f"/redfish/v1/TaskService/Tasks/JID_{_LUCK.randrange(10**12):012}"

    def request(number: int) -> NodeRequest:
        drives = [drive.format(bay) for bay in range(36)]
        tasks = {one: order() for one in drives}
        ordered = {one: tuple(order() for _ in range(2)) for one in drives}
        return NodeRequest(
            number=number,
            node=label("gke", "train", "pool"),
            action=NodeAction.WIPE,
            at=moment(),
            why="its hardware goes back to the pool",
            by="operator@example.com",
            uid=uid(),
            service=f"https://10.1.{number % 256}.17:8443",
            enlisted=True,
            said="0 of 36 drives are erased",
            again=moment(),
            progress=Progress(sent=moment(), ordered=ordered, tasks=tasks),
        )

    state = ProvisionerState(cluster="c", cluster_uid=uid(), pending=tuple(request(one) for one in range(400)))
    return Kept(
        [ProvisionerInput(cluster="c", cluster_uid=uid(), state=state)],
        provisioner_status.status(state, set(), NOW),
    )


def rendezvous() -> Kept:
    """4,096 members that have failed one by one, each with all that it may say of it."""
    gang, count = Gang(min=1, max=4096, max_restarts=3), 4096
    joins = [
        Join(
            member=f"llama-pretraining-workers-{number}",
            pod_uid=uid(),
            attempt=1,
            incarnation=uid(),
            started_at=moment(),
            node=label("gke", "train", "pool"),
            address=f"10.{number % 256}.{number // 256}.17",
            port=29500,
        )
        for number in range(count)
    ]
    said: list[GangEvent] = [Said(join=one, report=Report(state=MemberState.INIT, since=NOW)) for one in joins]
    state = step(begun(gang, f"{uid()}-1", 1, NOW), said, NOW).state
    assert state.round == 1

    def failed(join: Join) -> Reported:
        errors = tuple(
            WorkerFailure(local_rank=rank, exit_code=1, error=secrets.token_hex(512), at=moment()) for rank in range(4)
        )
        report = Report(state=MemberState.FAILED, round=1, failures=errors, since=NOW)
        return Reported(member=join.member, incarnation=join.incarnation, report=report)

    for first in range(0, count, 256):
        state = step(state, [failed(one) for one in joins[first : first + 256]], NOW + timedelta(seconds=first)).state
    told = orders(state, 0)
    given = {"cluster": "c", "namespace": "team", "workload": "llama", "workload_uid": uid(), "workflow_id": "w"}
    begin = {**given, "submitted_at": NOW, "attempt": 1, "gang": gang}
    return Kept(
        [RendezvousInput(**begin, memory=RendezvousMemory(state=state, generation=9))],
        outcome.status(state, uid(), NOW, 9),
        told,
        Attached(generation=9, workload_uid=uid(), gang=gang, orders=told, holders=holders(state)),
    )


def broker() -> Kept:
    """100,000 workloads that save their state, all of them due, and more of them than it remembers took no request."""
    given = Broker(cluster="c")
    found = [
        Candidate(workload=f"workload/c/team-{number % 300}/{label('train')}", pods=1, since=NOW - timedelta(days=1))
        for number in range(100_000)
    ]
    seen = broker_policy.weighed(given, found, 0, 0, NOW)
    state, asked = broker_policy.looked(BrokerState(broker=given), seen, NOW)
    for one in found[: REFUSED_MAXIMUM + 10]:
        state = broker_policy.refused(state, edit(asked[0], workload=one.workload), NOW)
    assert len(state.refused) == REFUSED_MAXIMUM
    return Kept([given, state], broker_policy.status(state), WeighInput(broker=given, refused=state.refused), seen)


def queue() -> Kept:
    """As many workloads as a queue remembers, which request many kinds of things, and 10,000 of whom it is to hear."""
    kinds = [f"example.com/accelerator-of-generation-{number}" for number in range(8)]
    state = queue_policy.begun(Queue(name="q", cluster="c", quota=dict.fromkeys(kinds, "1000000")))
    there = tuple(f"workload/c/team-{number % 300}/{label('train')}" for number in range(10_000))
    state, _ = queue_policy.on_look(state, queue_policy.Seen(False, there, ()), NOW)
    for number in range(3100):
        news = QueueNews(
            workload=f"workload/c/team-{number % 300}/{label('train')}",
            uid=uid(),
            turn=1,
            standing=Standing.HOLDS if number % 2 else Standing.ASKS,
            demand={kind: _LUCK.randrange(10**6) for kind in kinds},
            submitted_at=moment(),
        )
        state, _ = queue_policy.on_workload_news(state, news, NOW)
    assert state.full
    return Kept([state.queue, state], queue_policy.status(state))


def graph() -> Kept:
    """1,000 workloads with 10,000 dependencies, all heard of, half of them waiting."""
    from holdfast.model.packed import packed

    named = [label("a-stage-of-a-pipeline-that-its-author-has-described", f"{one:04}") for one in range(ITEMS_MAXIMUM)]
    wide = EDGES_MAXIMUM // ITEMS_MAXIMUM
    nodes_ = [
        {"name": name, "after": [{"node": other, "on": "Any"} for other in named[max(0, at - wide) : at]]}
        for at, name in enumerate(named)
    ]
    given = Graph.model_validate({"name": "g", "cluster": "c", "nodes": nodes_})
    state = graph_policy.begun(given)
    for name in named:
        state = graph_policy.on_workload_news(given, state, GraphNews(item=name, workload_uid=uid()))
    state, _ = graph_policy.step(given, state)
    document = packed(given.model_dump(mode="json", by_alias=True))
    return Kept([document, state], graph_policy.status(given, state))


def cluster_watch() -> Kept:
    """All 256 shards apart."""
    return Kept([ClusterWatchInput(cluster="c", cluster_uid=uid(), shard_sets=tuple((n, n) for n in range(256)))])


def one_workload() -> Kept:
    """A workload whose template is as large as one may be, after a hundred words of a thousand characters each."""
    wire = workload().model_dump(mode="json", by_alias=True)
    wire["components"][0]["template"]["metadata"]["annotations"] = {"example.com/notes": "x" * (500 * 1024)}
    spec = Workload.model_validate(wire)
    state = submitted(spec, START)
    for number in range(100):
        word = f"{number} {secrets.token_hex(512)}"
        event = events.Suspended(word) if number % 2 else events.Resumed(word)
        state = fold(state, event, START + timedelta(seconds=number))
    status: Status = status_of(spec, state, START, uid())
    return Kept([json.loads(spec.model_dump_json(by_alias=True)), state], status, explain_of(spec, state, START))


KINDS: list[Callable[[], Kept]] = [
    nodes,
    provisioner,
    rendezvous,
    broker,
    queue,
    graph,
    cluster_watch,
    one_workload,
]


@pytest.mark.row("D7", level="pure")
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_what_is_carried_over_and_answered_at_the_maximum_is_below_one_MiB(kind: Callable[[], Kept]) -> None:
    kept = kind()
    sizes = {"carried": size(kept.carried)} | {type(one).__name__: size([one]) for one in kept.answers}
    assert max(sizes.values()) < MIB, sizes
    # What is written is read again as it was.
    for one in (*kept.carried, *kept.answers):
        payloads = pydantic_data_converter.payload_converter.to_payloads([one])
        (back,) = pydantic_data_converter.payload_converter.from_payloads(payloads, [type(one)])
        again = pydantic_data_converter.payload_converter.to_payloads([back])
        assert again == payloads
