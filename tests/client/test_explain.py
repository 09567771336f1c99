"""`explain`: whom it asks, what it waits for, and which entities it calls away. Temporal's answers are given."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from temporalio.api.workflowservice.v1 import (
    DescribeTaskQueueRequest,
    DescribeTaskQueueResponse,
    DescribeWorkflowExecutionResponse,
    GetWorkflowExecutionHistoryReverseResponse,
)
from temporalio.client import WorkflowExecutionStatus, WorkflowQueryRejectedError
from temporalio.common import QueryRejectCondition
from temporalio.service import RPCError, RPCStatusCode

from holdfast import names
from holdfast.cli.cluster import checks
from holdfast.client import run as run_module
from holdfast.client.connection import Place
from holdfast.client.entities.health import of_cluster
from holdfast.client.run import Run
from holdfast.model import Explanation, Phase, Reason
from holdfast.model.entities.queue import Queue, QueueLine, QueueStatus
from holdfast.model.gang.status import GangPhase, GangStatus
from holdfast.model.life.status import GangSize, Status

NOW = datetime(2026, 1, 31, 2, 14, 50, tzinfo=UTC)
WORKLOAD = names.workflow_id("dev", "research", "train")
QUEUE = names.queue_id("dev", "gpus")
RENDEZVOUS = names.rendezvous_id("dev", "research", "train")
WATCH = names.watch_workflow_id("dev")
MONITOR, BROKER, PROVISIONER = names.node_monitor_id("dev"), names.broker_id("dev"), names.provisioner_id("dev")
UID = "0000-1"


class Temporal:
    """What Temporal says: of the workflows there are, each by its id; a query of one that `answers` lacks hangs."""

    namespace = "default"

    def __init__(self, there: dict[str, WorkflowExecutionStatus], answers: dict[tuple[str, str], Any]) -> None:
        self.there, self.answers = there, answers
        self.queries: list[str] = []
        self.together = 1
        """So many queries of entities are to be under way before any of them is answered."""
        self.continued = False
        """Whether the run that a query finds has just been followed by a new one."""
        self.saves = False
        """Whether the workload saves its state."""
        self._met = asyncio.Event()
        self.workflow_service = SimpleNamespace(describe_task_queue=self._describe_task_queue)

    async def _describe_task_queue(self, _request: DescribeTaskQueueRequest) -> DescribeTaskQueueResponse:
        return DescribeTaskQueueResponse()

    async def list_workflows(self, query: str) -> AsyncIterator[Any]:
        kinds = {names.WORKLOAD_WORKFLOW: WORKLOAD, names.BROKER_WORKFLOW: BROKER}
        for kind, workflow_id in kinds.items():
            word = _WORDS.get(self.there[workflow_id], "Running") if workflow_id in self.there else ""
            if word and f"WorkflowType = '{kind}'" in query and f"'{word}'" in query:
                yield self._description(workflow_id)

    def get_workflow_handle(self, workflow_id: str, **_: Any) -> Any:
        async def describe(**_: Any) -> Any:
            if workflow_id not in self.there:
                raise RPCError("not found", RPCStatusCode.NOT_FOUND, b"")
            return self._description(workflow_id)

        async def query(name: str, reject_condition: QueryRejectCondition | None = None, **_: Any) -> Any:
            self.queries.append(workflow_id)
            if self.continued and reject_condition is QueryRejectCondition.NOT_OPEN:
                raise WorkflowQueryRejectedError(WorkflowExecutionStatus.CONTINUED_AS_NEW)
            if (workflow_id, name) not in self.answers:
                await asyncio.Event().wait()
            entities = [one for one in self.queries if one != WORKLOAD]
            if len(entities) >= self.together:
                self._met.set()
            if workflow_id != WORKLOAD:
                await self._met.wait()
            return self.answers[workflow_id, name]

        return SimpleNamespace(describe=describe, query=query)

    def _description(self, workflow_id: str) -> Any:
        async def memo() -> dict[str, Any]:
            pending = Status(
                name="train",
                namespace="research",
                cluster="dev",
                uid=UID,
                phase=Phase.PENDING,
                reason=Reason.QUEUED,
                since=NOW,
            ).model_dump(mode="json", by_alias=True)
            return {
                names.MEMO_QUEUED: True,
                names.MEMO_UID: UID,
                names.MEMO_STATUS: pending,
                names.MEMO_SAVES: self.saves,
            }

        return SimpleNamespace(
            id=workflow_id,
            run_id="r",
            status=self.there[workflow_id],
            memo=memo,
            task_queue=names.QUEUE_WORKFLOWS,
            typed_search_attributes=SimpleNamespace(get=lambda _key: "gpus"),
            data_converter=None,
            close_time=NOW,
            raw_description=DescribeWorkflowExecutionResponse(),
        )


RUNNING = WorkflowExecutionStatus.RUNNING
_WORDS = {WorkflowExecutionStatus.FAILED: "Failed"}
"""Of statuses, as a list's filter has them."""
EXPLAINED = Explanation(
    name="train",
    phase=Phase.PENDING,
    reason=Reason.QUEUED,
    since=NOW,
    attempt=0,
    gang=GangSize(min=2, max=2),
    why="its queue has not let it in",
    now="it waits",
)
LINE = QueueLine(
    namespace="research",
    name="train",
    uid=UID,
    admitted=False,
    position=3,
    priority=0,
    since=NOW,
    demand={},
    why="2 more GPUs are needed",
)
QUEUE_STANDS = QueueStatus(
    queue=Queue(name="gpus", cluster="dev"), message="", cycle=1, used={}, admitted=0, waiting=4, lines=(LINE,)
)
GANG_STANDS = GangStatus(
    workload_uid=UID, attempt=1, phase=GangPhase.FORMING, round=0, min=2, max=2, present=1, participants=0, since=NOW
)


def answered(*of: str) -> dict[tuple[str, str], Any]:
    """The answers of those who answer."""
    every = {
        (WORKLOAD, names.QUERY_EXPLAIN): EXPLAINED,
        (QUEUE, names.QUERY_STATUS): QUEUE_STANDS,
        (RENDEZVOUS, names.QUERY_STATUS): GANG_STANDS,
    }
    return {key: one.model_dump(mode="json", by_alias=True) for key, one in every.items() if key[0] in of}


def run_of(temporal: Any) -> Run:
    return Run(temporal, Place("localhost:7233", "default"), WORKLOAD, UID)


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "ANSWER_TIMEOUT", timedelta(seconds=0.2))


@pytest.mark.row("D2", level="pure")
async def test_D2_a_gang_that_has_not_begun_is_not_told_that_its_rendezvous_is_away() -> None:
    temporal = Temporal({WORKLOAD: RUNNING, WATCH: RUNNING, QUEUE: RUNNING}, answered(WORKLOAD, QUEUE))
    view = await run_of(temporal).explain()
    assert view.entities == ()
    assert view.queue == "gpus: place 3 of 4: 2 more GPUs are needed"


@pytest.mark.row("D2", level="pure")
async def test_D2_a_queue_that_is_not_there_is_told_and_not_waited_for() -> None:
    temporal = Temporal({WORKLOAD: RUNNING, WATCH: RUNNING}, answered(WORKLOAD))
    view = await run_of(temporal).explain()
    assert [one.partition(":")[0] for one in view.entities] == ["queue gpus"]
    assert view.queue == ""
    assert QUEUE not in temporal.queries


@pytest.mark.row("D2", level="pure")
async def test_D2_another_entity_that_is_away_does_not_hide_the_place_in_the_queue() -> None:
    there = {WORKLOAD: RUNNING, WATCH: WorkflowExecutionStatus.FAILED, QUEUE: RUNNING}
    temporal = Temporal(there, answered(WORKLOAD, QUEUE))
    temporal.workflow_service.get_workflow_execution_history_reverse = _no_events
    view = await run_of(temporal).explain()
    assert [one.partition(":")[0] for one in view.entities] == ["cluster watch"]
    assert view.queue == "gpus: place 3 of 4: 2 more GPUs are needed"


@pytest.mark.row("D2", level="pure")
async def test_D2_one_that_saves_reads_that_its_broker_and_its_provisioner_are_away() -> None:
    there = dict.fromkeys((WORKLOAD, WATCH, QUEUE), RUNNING)
    away = {BROKER: WorkflowExecutionStatus.TERMINATED, PROVISIONER: WorkflowExecutionStatus.CANCELED}
    temporal = Temporal(there | away, answered(WORKLOAD, QUEUE))
    temporal.workflow_service.get_workflow_execution_history_reverse = _no_events
    temporal.saves = True
    assert [one.partition(" at ")[0] for one in (await run_of(temporal).explain()).entities] == [
        "provisioner: its workflow was cancelled",
        "checkpoint broker: its workflow was terminated",
    ]
    temporal.saves = False
    assert [one.partition(":")[0] for one in (await run_of(temporal).explain()).entities] == ["provisioner"]


@pytest.mark.row("D2", level="pure")
async def test_D2_doctor_names_a_broker_that_failed_and_that_somebody_needs() -> None:
    temporal: Any = Temporal({WATCH: RUNNING, BROKER: WorkflowExecutionStatus.FAILED}, {})
    temporal.workflow_service.get_workflow_execution_history_reverse = _no_events
    found = [(each.workflow_id, each.verdict.healthy) for each in await of_cluster(temporal, "dev")]
    assert found == [(WATCH, True)], "nobody saves"
    temporal.there[WORKLOAD], temporal.saves = RUNNING, True
    found = [(each.workflow_id, each.verdict.healthy) for each in await of_cluster(temporal, "dev")]
    assert found == [(WATCH, True), (BROKER, False)]


@pytest.mark.row("D2", level="pure")
async def test_D2_a_watch_that_was_stopped_is_told_and_a_monitor_that_nobody_may_want_warns() -> None:
    ended = dict.fromkeys((WATCH, MONITOR), WorkflowExecutionStatus.COMPLETED)
    temporal: Any = Temporal({WORKLOAD: RUNNING, QUEUE: RUNNING} | ended, answered(WORKLOAD, QUEUE))
    said = (await run_of(temporal).explain()).entities
    assert [one.partition(" at ")[0] for one in said] == ["cluster watch: its workflow was stopped"]
    watch, monitor = await checks._entities(temporal, "dev")
    assert (watch.good, monitor.good, monitor.warns) == (False, True, True)
    assert "no silent node is found Down" in monitor.found
    assert monitor.remedy.startswith("if it is wanted, restart a worker")


async def _no_events(*_: Any, **__: Any) -> Any:
    return GetWorkflowExecutionHistoryReverseResponse()


@pytest.mark.row("D36", level="pure")
async def test_D36_where_the_workload_does_not_answer_nobody_else_is_asked() -> None:
    temporal = Temporal({WORKLOAD: RUNNING, WATCH: RUNNING, QUEUE: RUNNING, RENDEZVOUS: RUNNING}, {})
    async with asyncio.timeout(2):  # An entity has 3 s to answer.
        view = await run_of(temporal).explain()
    assert set(temporal.queries) == {WORKLOAD}, "each further question would wait as long"
    assert not view.fresh
    assert view.silence is not None


@pytest.mark.row("D36", level="pure")
async def test_D36_queue_and_gang_are_asked_at_the_same_time() -> None:
    there = {WORKLOAD: RUNNING, WATCH: RUNNING, QUEUE: RUNNING, RENDEZVOUS: RUNNING}
    temporal = Temporal(there, answered(WORKLOAD, QUEUE, RENDEZVOUS))
    temporal.together = 2
    view = await run_of(temporal).explain()
    assert view.gang == GANG_STANDS
    assert view.queue == "gpus: place 3 of 4: 2 more GPUs are needed"


async def test_a_workload_that_has_just_continued_as_a_new_run_is_asked_again() -> None:
    there = {WORKLOAD: RUNNING, WATCH: RUNNING}
    temporal = Temporal(there, answered(WORKLOAD))
    temporal.continued = True
    view = await run_of(temporal).explain()
    assert (view.fresh, view.silence, view.explanation.why) == (True, None, EXPLAINED.why)
