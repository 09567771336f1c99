"""The provisioner's workflow, on a Temporal server that skips time (row L15)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio
from temporalio import activity
from temporalio.client import WorkflowHandle
from temporalio.exceptions import ApplicationError
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from holdfast import names
from holdfast.client.entities.provisioner import NoProvisioner, ProvisionerRun
from holdfast.errors import HoldfastError
from holdfast.model.calls.provisioner import (
    CheckProvisionerInput,
    Enlisted,
    EnlistInput,
    Provisioned,
    ProvisionInput,
)
from holdfast.model.entities.provisioner import (
    Checked,
    FenceAsk,
    NodeAction,
    NodeAsk,
    NodeOutcome,
    Progress,
    ProvisionerStatus,
    Result,
)
from holdfast.workflows.entities.provisioner import SIGNAL_AT_ONCE, SIGNAL_STOP, ProvisionerInput
from tests.e2e.ground.site import until
from tests.workflows.entities.test_broker import plugged
from tests.workflows.entities.test_queue import CLUSTER, HERE, env
from tests.workflows.workload.test_workload import replays

__all__ = ["env"]
pytestmark = [pytest.mark.temporal, pytest.mark.timeout(300), pytest.mark.asyncio(loop_scope="module")]
BMC = "https://bmc"


@dataclass
class Machines:
    """A cluster with machines that do as they are told, unless their service is away."""

    away: bool = False
    mistake: bool = True
    waits: int = 0
    """How many tries come to nothing yet, first."""
    tried: list[tuple[str, NodeAction]] = field(default_factory=list[tuple[str, NodeAction]])
    given: list[ProvisionInput] = field(default_factory=list[ProvisionInput])
    enlisted: list[str] = field(default_factory=list[str])
    holds: asyncio.Event | None = None
    """What a try waits for before it ends."""

    @activity.defn(name=names.ACTIVITY_ENLIST)
    async def enlist(self, given: EnlistInput) -> Enlisted:
        request = given.request
        self.enlisted.append(request.node)
        if request.node == "nobody":
            return Enlisted(refused="there is no node nobody")
        return Enlisted(uid=f"uid-{request.node}", service=BMC if request.action.by_service else "")

    @activity.defn(name=names.ACTIVITY_PROVISION)
    async def provision(self, given: ProvisionInput) -> Provisioned:
        request = given.request
        self.given.append(given)
        self.tried.append((request.node, request.action))
        if self.holds is not None:
            await self.holds.wait()
        if request.node == "broken" and self.mistake:
            raise ApplicationError("a mistake", type=names.ERROR_REFUSED)
        if self.away and request.action.by_service:
            return Provisioned(result=Result.AWAY, said="connection refused", progress=request.progress)
        if self.waits:
            self.waits -= 1
            progress = Progress(ordered={"d1": ()})
            return Provisioned(result=Result.WAITS, said="0 of 1 drives are erased", progress=progress, reached=True)
        off = datetime.now(UTC) if request.action in {NodeAction.POWER_OFF, NodeAction.FENCED} else None
        return Provisioned(result=Result.DONE, said="done", reached=request.action.by_service, off_since=off)

    @activity.defn(name=names.ACTIVITY_CHECK_PROVISIONER)
    async def check(self, given: CheckProvisionerInput) -> Checked:
        if given.node == "broken" and self.mistake:
            raise TimeoutError("it does not answer")
        return Checked(good=not self.away, found=f"asked of {given.node or 'all'}")


@pytest_asyncio.fixture(loop_scope="module")
async def machines(env: WorkflowEnvironment) -> AsyncIterator[Machines]:
    machines = Machines()
    client = await plugged(env)
    short = Worker(env.client, task_queue=names.queue_cluster(CLUSTER), activities=[machines.enlist])
    long = Worker(env.client, task_queue=names.queue_wait(CLUSTER), activities=[machines.provision, machines.check])
    async with Worker(client, task_queue=names.QUEUE_WORKFLOWS), short, long:
        yield machines


async def begun(env: WorkflowEnvironment, at_once: int = 8) -> tuple[ProvisionerRun, WorkflowHandle[Any, Any]]:
    client = await plugged(env)
    handle = await client.start_workflow(
        names.PROVISIONER_WORKFLOW,
        ProvisionerInput(cluster=CLUSTER, cluster_uid="kube", at_once=at_once),
        id=names.provisioner_id(CLUSTER),
        task_queue=names.QUEUE_WORKFLOWS,
    )
    return ProvisionerRun(client, HERE, CLUSTER), handle


async def ask(run: ProvisionerRun, action: NodeAction, node: str, **fields: Any) -> int:
    return (await run.request(NodeAsk.model_validate({"node": node, "action": action, **fields}))).number


async def stands(run: ProvisionerRun, what: str, check: Any) -> ProvisionerStatus:
    found: list[ProvisionerStatus] = []

    async def looked() -> bool:
        found[:] = [await run.status()]
        return check(found[0])

    await until(looked, 30, what)
    return found[0]


async def test_L15_requests_wait_durably_while_the_service_is_away_and_drain_in_order(
    env: WorkflowEnvironment, machines: Machines
):
    run, handle = await begun(env, at_once=1)
    machines.away = True
    numbers = [await ask(run, NodeAction.WIPE, "a"), await ask(run, NodeAction.BOOT, "b")]
    numbers.append(await ask(run, NodeAction.BOOT, "c"))
    await stands(run, "the service is away", lambda told: told.away)
    for _ in range(6):
        await env.sleep(timedelta(hours=1))
    told = await run.status()
    assert [one.number for one in told.pending] == numbers
    assert set(machines.tried) == {("a", NodeAction.WIPE)}, "the first alone asks again"
    assert 70 < len(machines.tried) < 90, "every five minutes in the end"
    assert set(told.quarantined) == {"a"}
    assert f"{BMC} does not answer: connection refused; next try at" in told.waits[numbers[2]]
    machines.away = False
    await env.sleep(timedelta(minutes=6))
    told = await stands(run, "all is done", lambda told: not told.pending)
    assert [one.node for one in reversed(told.outcomes)] == ["a", "b", "c"]
    assert (told.away, told.quarantined) == ({}, {})
    assert await run.check("a") == Checked(good=True, found="asked of a")
    await handle.signal(SIGNAL_STOP)
    await handle.result()
    await replays(handle)
    with pytest.raises(NoProvisioner, match="cluster local has no provisioner"):
        await run.status()
    with pytest.raises(NoProvisioner):
        await ask(run, NodeAction.BOOT, "a")


async def test_L15_a_caller_gets_its_number_the_same_for_the_same_or_a_clear_refusal(
    env: WorkflowEnvironment, machines: Machines
):
    run, handle = await begun(env)
    machines.away = True
    first = await ask(run, NodeAction.BOOT, "a")
    assert await ask(run, NodeAction.BOOT, "a") == first
    with pytest.raises(HoldfastError, match="which says the opposite"):
        await ask(run, NodeAction.POWER_OFF, "a")
    with pytest.raises(HoldfastError, match="is no node's name"):
        await ask(run, NodeAction.BOOT, "A node")
    with pytest.raises(HoldfastError, match="why: missing"):
        await ask(run, NodeAction.RELEASE, "a")
    unknown: NodeOutcome = await run.ended(await ask(run, NodeAction.WIPE, "nobody"))
    assert (unknown.result, unknown.said) == (Result.REFUSED, "there is no node nobody")
    with pytest.raises(HoldfastError, match="request 99: nothing is known of it"):
        await run.ended(99)
    await handle.signal(SIGNAL_STOP)
    assert (await run.status()).pending, "it ends once nothing is left to be done"
    machines.away = False
    await env.sleep(timedelta(minutes=6))
    await handle.result()
    await replays(handle)


async def test_L15_what_takes_hours_goes_on_from_its_progress_and_memory_outlives_runs(
    env: WorkflowEnvironment, machines: Machines
):
    run, handle = await begun(env)
    first = (await handle.describe()).run_id
    machines.waits = 30
    number = await ask(run, NodeAction.WIPE, "a")
    await stands(run, "it has begun", lambda told: told.pending and told.pending[0].progress.ordered)
    await handle.signal(SIGNAL_AT_ONCE, 3)
    await env.sleep(timedelta(hours=1))
    assert (await handle.describe()).run_id != first, "other numbers begin a new run"
    assert (await run.status()).at_once == 3
    outcome = await run.ended(number)
    assert outcome.result is Result.DONE
    assert len(machines.tried) == 31
    assert all(one.request.progress.ordered for one in machines.given[1:])
    assert machines.enlisted == ["a"], "whom to ask is found once"
    await handle.signal(SIGNAL_STOP)
    await run.client.get_workflow_handle(handle.id).result()


async def test_L15_what_fences_goes_first_and_a_monitor_that_is_not_there_stops_nothing(
    env: WorkflowEnvironment, machines: Machines
):
    run, handle = await begun(env, at_once=1)
    machines.away = True
    await ask(run, NodeAction.BOOT, "a")
    await stands(run, "the service is away", lambda told: told.away)
    fence = FenceAsk(node="b", uid="uid-b", renewed="r0", why="silent")
    await handle.signal(names.SIGNAL_FENCE, fence)
    await handle.signal(names.SIGNAL_FENCE, fence)
    told = await stands(run, "it is asked", lambda told: len(told.pending) == 2)
    assert [one.node for one in told.pending] == ["b", "a"]

    async def taken_back() -> bool:  # Not while it is being tried: the monitor, too, says so again.
        await handle.signal(names.SIGNAL_WITHDRAW, args=["b", "uid-b"])
        return len((await run.status()).pending) == 1

    await until(taken_back, 30, "it is taken back")
    await handle.signal(names.SIGNAL_FENCE, fence)
    await stands(run, "it is asked again", lambda told: [one.node for one in told.pending] == ["b", "a"])
    machines.away = False
    await env.sleep(timedelta(minutes=6))
    told = await stands(run, "all is done", lambda told: not told.pending)
    assert [one.node for one in reversed(told.outcomes)] == ["b", "b", "a"]
    await handle.signal(names.SIGNAL_FENCE, "nothing that fits")
    broken = await ask(run, NodeAction.BOOT, "broken")
    told = await stands(run, "a mistake is told", lambda told: any("a mistake" in why for why in told.waits.values()))
    assert told.pending[0].number == broken
    machines.mistake = False
    await env.sleep(timedelta(minutes=2))
    await handle.signal(SIGNAL_STOP)
    await handle.result()
    await replays(handle)


async def test_L15_a_check_that_is_not_answered_ends_and_holds_no_run(env: WorkflowEnvironment, machines: Machines):
    run, handle = await begun(env)
    first = (await handle.describe()).run_id
    asked = asyncio.create_task(run.check("broken"))
    await asyncio.sleep(1)
    await handle.signal(SIGNAL_AT_ONCE, 3)
    await env.sleep(timedelta(minutes=2))
    checked = await asked
    assert not checked.good
    assert checked.found == "no answer of the provisioning service within 50 s: it does not answer"

    async def anew() -> bool:
        return (await handle.describe()).run_id != first

    await until(anew, 30, "the next run begins")
    await handle.signal(SIGNAL_STOP)
    await run.client.get_workflow_handle(handle.id).result()


async def test_L15_a_node_that_is_heard_again_during_a_try_is_not_tried_again(
    env: WorkflowEnvironment, machines: Machines
):
    run, handle = await begun(env)
    machines.away, machines.holds = True, asyncio.Event()
    await handle.signal(names.SIGNAL_FENCE, FenceAsk(node="heard", uid="uid-heard", renewed="r0"))
    await stands(run, "it is tried", lambda told: ("heard", NodeAction.POWER_OFF) in machines.tried)
    await handle.signal(names.SIGNAL_WITHDRAW, args=["heard", "uid-heard"])
    assert (await run.status()).pending, "its power may be being cut"
    machines.holds.set()
    told = await stands(run, "the try has ended", lambda told: not told.pending)
    assert (told.outcomes[0].result, told.outcomes[0].said) == (Result.WITHDRAWN, "the node is heard again")
    machines.away, machines.holds = False, None
    await handle.signal(SIGNAL_STOP)
    await handle.result()
    await replays(handle)
