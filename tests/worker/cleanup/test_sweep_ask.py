"""What the sweeper learns of a workload from a real Temporal server, whatever has become of its runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any
from uuid import uuid4

import pytest
from temporalio import workflow
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest, ResetWorkflowExecutionRequest
from temporalio.client import Client, WorkflowHandle
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.service import RPCError
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from holdfast import names
from holdfast.worker.cleanup.sweep import AttemptLeft, Left, Life, RunFact, Verdict, judge
from holdfast.worker.cleanup.sweep_lookup import life
from tests.client.server import temporal_server
from tests.e2e.ground.site import until

pytestmark = pytest.mark.temporal
UID = "11111111-0000-4000-8000-000000000001"
OTHER = "22222222-0000-4000-8000-000000000002"
NOBODY = "nobody-takes-this"
Handle = WorkflowHandle[Any, Any]


@workflow.defn(name=names.WORKLOAD_WORKFLOW)
class Waiting:
    """Stands for a workload: waits, continues as new when told to, and ends when told to."""

    @workflow.init
    def __init__(self, told: bool = True) -> None:
        self._told = told
        self._next = ""

    @workflow.run
    async def run(self, told: bool = True) -> str:
        await workflow.wait_condition(lambda: bool(self._next))
        if self._next == "anew":
            workflow.continue_as_new(told)
        return "done"

    @workflow.signal
    def go(self, how: str) -> None:
        self._next = how

    @workflow.query(name=names.QUERY_STATUS)
    def status(self) -> dict[str, Any]:
        return {"uid": UID, "attempt": 3} if self._told else {"nothing": "of the kind"}


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with temporal_server() as address:
        yield address


@pytest.fixture
async def client(address: str) -> AsyncIterator[Client]:
    client = await Client.connect(address, data_converter=pydantic_data_converter)
    worker = Worker(
        client,
        task_queue=names.QUEUE_WORKFLOWS,
        workflows=[Waiting],
        workflow_runner=UnsandboxedWorkflowRunner(),
    )
    async with worker:
        yield client


def left(*numbers: int, uid: str = UID) -> Left:
    attempts = tuple(AttemptLeft(f"x-a{number}", f"uid-{number}", number) for number in numbers)
    name = f"x-{uuid4().hex[:8]}"
    return Left("research", name, uid, names.workflow_id("dev", "research", name), anchor=True, attempts=attempts)


async def start(
    client: Client,
    of: Left,
    uid: str | None = UID,
    *,
    attempt: int | None = None,
    column: int | None = None,
    phase: str = "Running",
    queue: str = names.QUEUE_WORKFLOWS,
    told: bool = True,
) -> Handle:
    """Start a run under a workload's id, with a memo of this uid, and this attempt in memo and list column."""
    memo: dict[str, Any] = {names.MEMO_UID: uid} if uid else {}
    if attempt is not None:
        memo[names.MEMO_STATUS] = {"attempt": attempt, "phase": phase, "uid": uid}
    pairs = [SearchAttributePair(SearchAttributeKey.for_int(names.SA_ATTEMPT), column)] if column is not None else []
    return await client.start_workflow(
        names.WORKLOAD_WORKFLOW,
        told,
        id=of.workflow_id,
        task_queue=queue,
        memo=memo or None,
        search_attributes=TypedSearchAttributes(pairs),
    )


async def found(client: Client, of: Left, verdict: Verdict) -> Life:
    """Return what Temporal says once it leads to a verdict: its list may be a moment behind."""
    async with asyncio.timeout(120):
        while True:
            said = await life(client, of)
            if judge(of, said).verdict is verdict:
                return said
            await asyncio.sleep(0.1)


async def test_a_workload_that_never_was(client: Client) -> None:
    assert await life(client, left(1)) == Life()


async def test_a_running_one_is_at_the_highest_attempt_it_says(client: Client) -> None:
    for attempt, column in ((2, 3), (3, 2), (3, None), (None, 3)):
        of = left(2, 3)
        await start(client, of, attempt=attempt, column=column)
        said = await life(client, of)
        assert said.current is not None
        assert (said.current.uid, said.current.running, said.current.attempt) == (UID, True, 3)
        assert [one.number for one in judge(of, said).doomed] == [2]


@pytest.mark.parametrize("uid", [UID, None])
async def test_a_running_one_whose_memo_says_too_little_is_asked_itself(client: Client, uid: str | None) -> None:
    of = left(2, 3)
    await start(client, of, uid)
    found = list[RunFact]()

    async def answered() -> bool:
        found[:] = [one] if (one := (await life(client, of)).current) is not None else []
        return bool(found) and found[0].said

    await until(answered, 60, "it answers")
    assert (found[0].uid, found[0].attempt) == (UID, 3)


async def test_where_nobody_answers_or_not_so_it_stays_in_doubt(client: Client) -> None:
    for queue, told in ((NOBODY, True), (names.QUEUE_WORKFLOWS, False)):
        of = left(1)
        handle = await start(client, of, None, queue=queue, told=told)
        assert judge(of, await life(client, of)).verdict is Verdict.DOUBT
        await handle.terminate()
        # It never said who it was, and was not this workload: that is its first run's id.
        assert judge(of, await life(client, of)).verdict is Verdict.UNKNOWN
        assert handle.result_run_id is not None
        named = Left("research", of.name, handle.result_run_id, of.workflow_id, attempts=of.attempts)
        assert judge(named, await life(client, named)).verdict is Verdict.ENDED


async def test_closed_in_whatever_way(client: Client) -> None:
    of = left(1)
    handle = await start(client, of, attempt=1)
    await handle.terminate()
    said = await life(client, of)
    assert said.current is not None
    assert (said.current.word, said.current.phase, said.current.running) == ("Terminated", "Running", False)
    of = left(1)
    handle = await start(client, of, attempt=1, phase="Succeeded")
    await handle.signal("go", "end")
    await handle.result()
    assert not judge(of, await life(client, of)).deletes_anchor


async def test_one_that_was_continued_as_new_is_alive_and_then_over(client: Client) -> None:
    of = left(1)
    handle = await start(client, of, attempt=1)
    await handle.signal("go", "anew")
    for _ in range(100):
        if (await client.get_workflow_handle(of.workflow_id).describe()).run_id != handle.result_run_id:
            break
        await asyncio.sleep(0.1)
    assert judge(of, await life(client, of)).verdict is Verdict.ALIVE
    await client.get_workflow_handle(of.workflow_id).terminate()
    assert judge(of, await life(client, of)).verdict is Verdict.ENDED


async def test_a_later_run_of_the_name(client: Client) -> None:
    of = left(1)
    await (await start(client, of, attempt=1)).terminate()
    later = await start(client, of, OTHER, attempt=1)
    said = await found(client, of, Verdict.ENDED)
    assert said.current is not None
    assert said.own is not None
    assert (said.current.uid, said.own.uid, said.own.word) == (OTHER, UID, "Terminated")
    await later.terminate()
    await found(client, of, Verdict.ENDED)
    unheard = Left("research", of.name, "33333333", of.workflow_id, attempts=of.attempts)
    assert judge(unheard, await life(client, unheard)).verdict is Verdict.UNKNOWN


async def test_one_that_was_reset_is_alive_again(client: Client) -> None:
    of = left(1)
    handle = await start(client, of, attempt=1)
    await handle.query(names.QUERY_STATUS)  # Its first task is done: there is something to go back to.
    await handle.terminate()
    assert judge(of, await life(client, of)).verdict is Verdict.ENDED
    await client.workflow_service.reset_workflow_execution(
        ResetWorkflowExecutionRequest(
            namespace=client.namespace,
            workflow_execution=WorkflowExecution(workflow_id=of.workflow_id, run_id=handle.result_run_id or ""),
            workflow_task_finish_event_id=4,
            request_id=str(uuid4()),
            reason="it was ended by mistake",
        )
    )
    assert judge(of, await life(client, of)).verdict is Verdict.ALIVE


async def test_one_that_temporal_has_forgotten(client: Client) -> None:
    of = left(1)
    await (await start(client, of, attempt=1)).terminate()
    await client.workflow_service.delete_workflow_execution(
        DeleteWorkflowExecutionRequest(
            namespace=client.namespace, workflow_execution=WorkflowExecution(workflow_id=of.workflow_id)
        )
    )
    await found(client, of, Verdict.UNKNOWN)


async def test_a_namespace_that_is_not_there_is_no_answer(client: Client, address: str) -> None:
    elsewhere = await Client.connect(address, namespace="nowhere")
    of = left(1)
    with pytest.raises(RPCError, match="nowhere"):
        await life(elsewhere, of)


async def test_a_memo_in_a_code_that_is_not_known_here_is_doubt_until_its_workflow_is_over(client: Client) -> None:
    import dataclasses

    from temporalio.api.common.v1 import Payload
    from temporalio.converter import PayloadCodec

    class Sealing(PayloadCodec):
        async def encode(self, payloads: Any) -> list[Payload]:
            return [
                Payload(metadata={"encoding": b"binary/sealed"}, data=each.SerializeToString()) for each in payloads
            ]

        async def decode(self, payloads: Any) -> list[Payload]:
            return [Payload.FromString(each.data) for each in payloads]

    config = client.config()
    config["data_converter"] = dataclasses.replace(pydantic_data_converter, payload_codec=Sealing())
    of = left(1)
    handle = await start(Client(**config), of, attempt=1, queue=NOBODY)
    assert judge(of, await life(client, of)).verdict is Verdict.DOUBT
    await handle.terminate()
    assert judge(of, await life(client, of)).verdict is Verdict.UNKNOWN
