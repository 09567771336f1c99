"""The checkpoint broker's workflow, on a Temporal server that skips time (row L11)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
import pytest_asyncio
from temporalio import activity
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import ApplicationError
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from bench import bill
from bench.actions import actions
from holdfast import names
from holdfast.client.entities.broker import BrokerRun, apply
from holdfast.errors import HoldfastError
from holdfast.model.calls.broker import AskDone, AskInput, WeighInput
from holdfast.model.entities.broker import Broker, BrokerStatus, Candidate, Weighed
from holdfast.plugin import HoldfastPlugin
from holdfast.workflows.entities.broker import CYCLES_MAXIMUM
from tests.e2e.ground.site import until
from tests.policy.lives.life import START
from tests.workflows.entities.test_queue import CLUSTER, HERE, env
from tests.workflows.workload.test_workload import replays

__all__ = ["env"]
pytestmark = [pytest.mark.temporal, pytest.mark.timeout(300), pytest.mark.asyncio(loop_scope="module")]
BROKER = Broker(cluster=CLUSTER)


@dataclass
class Cluster:
    """What looks come to, and who was asked."""

    seen: Weighed = field(default_factory=Weighed)
    looks: list[WeighInput] = field(default_factory=list[WeighInput])
    asked: list[AskInput] = field(default_factory=list[AskInput])

    @activity.defn(name=names.ACTIVITY_WEIGH)
    async def weigh(self, given: WeighInput) -> Weighed:
        self.looks.append(given)
        return self.seen

    @activity.defn(name=names.ACTIVITY_ASK)
    async def ask(self, given: AskInput) -> AskDone:
        self.asked.append(given)
        if given.workload.endswith("broken"):
            raise ApplicationError("it does not answer")
        return AskDone(number=1)


@pytest_asyncio.fixture(loop_scope="module")
async def cluster(env: WorkflowEnvironment) -> AsyncIterator[Cluster]:
    given = Cluster()
    client = await plugged(env)
    acts = Worker(env.client, task_queue=names.queue_cluster(CLUSTER), activities=[given.weigh, given.ask])
    async with Worker(client, task_queue=names.QUEUE_WORKFLOWS), acts:
        yield given


async def plugged(env: WorkflowEnvironment) -> Client:
    return await Client.connect(
        env.client.service_client.config.target_host, plugins=[HoldfastPlugin(roles=["workflows"])]
    )


async def begun(env: WorkflowEnvironment) -> tuple[BrokerRun, WorkflowHandle[Any, Any]]:
    run = await apply(await plugged(env), HERE, BROKER)
    return run, run.client.get_workflow_handle(run.workflow_id, result_type=dict)


def due(*given: str) -> Weighed:
    found = tuple(Candidate(workload=f"workload/local/team/{name}", pods=1, since=START) for name in given)
    return Weighed(running=len(found), due=len(found), candidates=found)


async def test_each_cycle_it_looks_and_asks_as_many_as_storage_bears(env: WorkflowEnvironment, cluster: Cluster):
    cluster.seen = due("a", "b", "c")
    run, handle = await begun(env)

    async def asked() -> bool:
        return len(cluster.asked) == BROKER.at_once

    await until(asked, 30, "two are asked")
    assert {one.workload.rpartition("/")[2] for one in cluster.asked} == {"a", "b"}
    assert cluster.asked[0].note.startswith("the broker: ")
    cluster.seen = due()
    await env.sleep(timedelta(minutes=2))
    status = await run.status()
    assert (status.asked_total, status.due) == (2, 0)
    await run.cancel("not wanted")
    assert BrokerStatus.model_validate(await handle.result()).asked_total == 2
    await replays(handle)


async def test_L11_an_idle_cycle_costs_two_actions_and_the_same_history_however_many_run(
    env: WorkflowEnvironment, cluster: Cluster
):
    cluster.seen = Weighed(running=90_000)
    run, handle = await begun(env)
    await env.sleep(timedelta(minutes=10))
    await run.cancel()
    await handle.result()
    events = (await handle.fetch_history()).events
    found, cycles = actions(events), len(cluster.looks)
    assert cycles >= 10
    assert found == {"starts": 1, "activities": cycles, "timers": cycles, "signals": 1}
    assert found["activities"] + found["timers"] == cycles * bill.BROKER.actions / 60
    done = [one.ByteSize() for one in events if one.HasField("activity_task_completed_event_attributes")]
    asked = [one.ByteSize() for one in events if one.HasField("activity_task_scheduled_event_attributes")]
    assert max(done) < 300
    assert max(asked) < 800
    assert max(done) - min(done) <= 8, "ids grow by a byte, and nothing else does"
    await replays(handle)


async def test_other_numbers_have_all_weighed_anew_at_once(env: WorkflowEnvironment, cluster: Cluster):
    run, handle = await begun(env)

    async def looked() -> bool:
        return len(cluster.looks) == 1

    await until(looked, 30, "it has looked")
    again = await apply(run.client, HERE, BROKER.model_copy(update={"at_once": 7}))

    async def anew() -> bool:
        return [one.broker.at_once for one in cluster.looks[1:]] == [7]

    await until(anew, 30, "it looks at once")
    assert (await again.status()).broker.at_once == 7
    with pytest.raises(HoldfastError, match="expected checkpoint-broker/local"):
        await run.configure(BROKER.model_copy(update={"cluster": "another"}))
    await run.cancel()
    await handle.result()


async def test_one_that_cannot_be_asked_stops_nobody_and_memory_outlives_runs(
    env: WorkflowEnvironment, cluster: Cluster
):
    cluster.seen = due("broken", "b")
    run, handle = await begun(env)
    first = (await handle.describe()).run_id

    async def asked() -> bool:
        return len(cluster.looks) >= 2

    skipping = asyncio.create_task(env.sleep(BROKER.every * 2))
    await until(asked, 30, "the next cycle comes")
    await skipping
    assert list(cluster.looks[-1].refused) == ["workload/local/team/broken"]
    cluster.seen = due()
    for _ in range(CYCLES_MAXIMUM // 10 + 1):
        await env.sleep(BROKER.every * 10)  # One call may take half a minute, which a busy machine needs for them all.
    assert (await handle.describe()).run_id != first
    status = await run.status()
    assert status.cycle > CYCLES_MAXIMUM
    assert status.asked_total >= 2
    await run.cancel()
    await handle.result()


async def test_a_document_that_is_no_broker_ends_it_before_anybody_is_asked(env: WorkflowEnvironment, cluster: Cluster):
    handle = await env.client.start_workflow(
        names.BROKER_WORKFLOW,
        {"cluster": CLUSTER, "atOnce": 0},
        id=BROKER.workflow_id,
        task_queue=names.QUEUE_WORKFLOWS,
    )
    with pytest.raises(WorkflowFailureError) as refused:
        await handle.result()
    assert isinstance(refused.value.cause, ApplicationError)
    assert refused.value.cause.type == names.ERROR_INVALID_BROKER
    assert "atOnce: Input should be greater than or equal to 1" in refused.value.cause.message
    run = BrokerRun(env.client, HERE, BROKER.workflow_id)
    with pytest.raises(HoldfastError, match="there is no checkpoint-broker local: holdfast broker start makes one"):
        await run.status()
