"""A gang's rendezvous on a Temporal server that skips time: rounds, deadlines, hubs that come and go (rows T1-T14)."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta

import pytest
import pytest_asyncio
from temporalio import activity
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from holdfast import names
from holdfast.activities.site.updates import update
from holdfast.model.calls.gang import HubInput
from holdfast.model.gang.orders import GangEnding
from holdfast.model.gang.state import Absence
from holdfast.model.gang.status import CloseReason, GangPhase
from holdfast.model.gang.wire import MemberState
from holdfast.plugin import HoldfastPlugin
from tests.e2e.ground.site import until
from tests.simulation.server import open_server
from tests.workflows.gathered import CLUSTER, Gathering, ToldWorkload

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(300), pytest.mark.asyncio(loop_scope="module")]
Opens = Callable[..., Awaitable[Gathering]]


@activity.defn(name=names.ACTIVITY_GANG_HUB)
async def no_hub(given: HubInput) -> None:
    """The test itself is the hub: time is never skipped while an activity is under way."""
    raise ApplicationError("not here", next_retry_delay=timedelta(days=1))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def env() -> AsyncIterator[WorkflowEnvironment]:
    async with open_server() as env:
        yield env


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def opens(env: WorkflowEnvironment) -> AsyncIterator[Opens]:
    """Open a rendezvous that nobody has joined yet."""
    client = await Client.connect(
        env.client.service_client.config.target_host, plugins=[HoldfastPlugin(roles=["workflows"])]
    )

    async def opened(low: int = 1, high: int = 4, **settings: object) -> Gathering:
        return await Gathering(env.client, f"g-{secrets.token_hex(3)}", low, high, **settings).open()

    hubs = Worker(env.client, task_queue=names.queue_gangs(CLUSTER), activities=[no_hub])
    async with Worker(client, task_queue=names.QUEUE_WORKFLOWS, workflows=[ToldWorkload]), hubs:
        yield opened


async def accepted(gang: Gathering) -> int:
    """Return how many updates have reached the history."""
    history = await gang.handle.fetch_history()
    return sum(1 for one in history.events if one.HasField("workflow_execution_update_accepted_event_attributes"))


async def running(opens: Opens, *members: str, **settings: object) -> Gathering:
    """Return a gang whose first round runs, begun by as many as there may be."""
    gang = await opens(1, len(members), **settings)
    return await (await gang.join(*members)).obey()


async def test_T1_all_succeed_and_the_workload_is_told(opens: Opens):
    gang = await running(opens, "a", "b", "c", "d")
    assert gang.ranks == [0, 1, 2, 3]
    await gang.succeeds("a", "b", "c")
    assert set(gang.kinds.values()) == {"Wait", "Run"}
    await gang.succeeds("d")
    assert set(gang.kinds.values()) == {"Finish"}
    outcome = await gang.outcome()
    assert (outcome.ending, outcome.reason, outcome.attempt) == (GangEnding.SUCCEEDED, CloseReason.SUCCEEDED, 1)


async def test_T1_one_of_four_fails_for_good_and_the_workload_is_told_who_and_how(opens: Opens):
    gang = await running(opens, "a", "b", "c", "d", max_restarts=0)
    await gang.fails("c", exit_code=7)
    assert gang.kinds == dict.fromkeys("abcd", "Finish")
    outcome = await gang.outcome()
    assert (outcome.ending, outcome.member, outcome.restarts) == (GangEnding.FAILED, "c", 0)
    assert outcome.failure is not None
    assert outcome.failure.exit_code == 7


async def test_T2_finishing_200_s_apart_is_success(opens: Opens, env: WorkflowEnvironment):
    gang = await running(opens, "a", "b")
    await gang.succeeds("a")
    assert gang.kinds["a"] == "Wait"
    await env.sleep(200)
    await gang.succeeds("b")
    assert (await gang.outcome()).ending is GangEnding.SUCCEEDED


async def test_T2_the_barrier_ends_after_301_s(opens: Opens, env: WorkflowEnvironment):
    gang = await running(opens, "a", "b")
    await gang.succeeds("a")
    await env.sleep(270)
    await gang.tell()
    assert gang.orders.phase is GangPhase.FINISHING
    await env.sleep(31)
    await gang.tell()
    assert gang.kinds == {"a": "Finish", "b": "Finish"}
    assert (gang.told["a"].exit_code, gang.told["b"].exit_code) == (0, 1)
    assert (await gang.outcome()).reason is CloseReason.EXIT_BARRIER_TIMEOUT


async def test_T3_a_failure_costs_its_member_one_and_the_others_nothing(opens: Opens):
    gang = await running(opens, "a", "b", "c")
    await gang.fails("a")
    assert gang.kinds["b"] == "Rejoin"
    # The one that failed joins again at its word; the last call waits for the others.
    await gang.tell(gang.says("a", MemberState.INIT))
    await gang.obey()
    status = await gang.status()
    assert (status.round, status.charged, gang.world) == (2, {"a": 1}, 3)


async def test_T4_T5_a_member_without_restarts_left_ends_the_gang(opens: Opens):
    gang = await running(opens, "a", "b", max_restarts=1)
    await gang.fails("a")
    await gang.tell(gang.says("a", MemberState.INIT))
    await gang.obey()
    assert (await gang.status()).round == 2
    await gang.fails("a")
    assert set(gang.kinds.values()) == {"Finish"}
    outcome = await gang.outcome()
    assert (outcome.reason, outcome.member, outcome.restarts) == (CloseReason.RESTARTS_EXHAUSTED, "a", 1)
    status = await gang.status()
    assert (status.ended, status.roles["default"].remaining_restarts) == ("run_failed_with_retries", 0)


async def test_T6_T11_a_newcomer_forms_another_round_with_other_ranks(opens: Opens, env: WorkflowEnvironment):
    gang = await opens(2, 4)
    await gang.join("a", "b")
    await env.sleep(31)
    await gang.runs(1)
    assert gang.world == 2
    await gang.join("c", workers=2)
    assert gang.kinds == {"a": "Rejoin", "b": "Rejoin", "c": "Wait"}
    await gang.obey()
    await env.sleep(31)
    await gang.runs(2)
    assert (gang.world, gang.ranks) == (4, [0, 1, 2])
    assert (await gang.status()).charged == {}


async def test_T7_a_newcomer_without_a_place_leaves_after_600_s(opens: Opens, env: WorkflowEnvironment):
    gang = await running(opens, "a", "b")
    await gang.join("c")
    await env.sleep(570)
    await gang.tell()
    assert gang.kinds == {"a": "Run", "b": "Run", "c": "Wait"}
    await env.sleep(31)
    await gang.tell()
    assert gang.kinds == {"a": "Run", "b": "Run", "c": "Leave"}


async def test_T7_a_newcomer_joins_when_a_place_is_free(opens: Opens, env: WorkflowEnvironment):
    gang = await running(opens, "a", "b")
    await gang.join("c")
    await env.sleep(300)
    await gang.loses("a")
    await gang.obey()
    assert gang.kinds["c"] == "Run"
    assert (await gang.status()).round == 2


async def test_T8_the_last_call_ends_after_30_s_and_at_the_maximum_at_once(opens: Opens, env: WorkflowEnvironment):
    gang = await opens(2, 3)
    await gang.join("a", "b")
    assert gang.kinds == {"a": "Wait", "b": "Wait"}
    await env.sleep(15)
    assert (await gang.ask()).phase is GangPhase.FORMING
    await env.sleep(16)
    # Its own timer ends the last call; the hub only asks.
    await gang.runs(1)
    full = await opens(2, 3)
    await full.join("a", "b", "c")
    assert full.kinds == dict.fromkeys("abc", "Run")


async def test_T8_too_few_after_601_s_fail_the_gang(opens: Opens, env: WorkflowEnvironment):
    gang = await opens(2, 4)
    await gang.join("a")
    await env.sleep(601)
    # Nothing fails by a deadline that nobody was listening to.
    await gang.tell(heard=False)
    assert gang.orders.phase is GangPhase.FORMING
    await gang.tell()
    assert gang.kinds == {"a": "Finish"}
    outcome = await gang.outcome()
    assert (outcome.ending, outcome.reason) == (GangEnding.FAILED, CloseReason.JOIN_TIMEOUT)


async def test_T9_a_loss_without_restarts_is_the_workloads(opens: Opens):
    gang = await running(opens, "a", "b", max_restarts=0)
    await gang.loses("b")
    outcome = await gang.outcome()
    assert (outcome.ending, outcome.reason, outcome.member) == (GangEnding.LOST, CloseReason.MEMBER_LOST, "b")


async def test_T9_a_loss_with_restarts_is_another_round_of_those_that_are_left(opens: Opens, env: WorkflowEnvironment):
    gang = await running(opens, "a", "b", "c")
    await gang.loses("b", Absence.SILENT)
    assert gang.kinds == {"a": "Rejoin", "b": "Run", "c": "Rejoin"} or gang.kinds["a"] == "Rejoin"
    await gang.obey()
    await env.sleep(31)
    await gang.runs(2)
    status = await gang.status()
    assert (status.participants, status.charged) == (2, {})


async def test_T10_after_a_success_there_is_no_other_round(opens: Opens):
    gang = await running(opens, "a", "b", "c")
    await gang.succeeds("a")
    await gang.join("d")
    assert gang.orders.phase is GangPhase.FINISHING
    await gang.loses("b")
    assert gang.orders.phase is GangPhase.CLOSED
    assert (await gang.outcome()).ending is GangEnding.LOST


async def test_T12_what_is_unknown_changes_nothing(opens: Opens):
    gang = await running(opens, "a", "b")
    before = gang.told.copy()
    await gang.tell(gang.says("a", MemberState.UNKNOWN))
    assert gang.told == before
    assert (await gang.status()).charged == {}


async def test_T13_an_evicted_member_leaves_and_another_one_takes_its_place(opens: Opens, env: WorkflowEnvironment):
    gang = await running(opens, "a", "b")
    await gang.evicts("a")
    await gang.ask()
    assert gang.kinds == {"a": "Leave", "b": "Rejoin"}
    await gang.join("c")
    await gang.obey()
    await env.sleep(31)
    await gang.runs(2)
    assert gang.world == 2
    with pytest.raises(WorkflowUpdateFailedError) as refused:
        await gang.evicts("nobody")
    assert isinstance(refused.value.cause, ApplicationError)
    assert refused.value.cause.type == names.ERROR_REFUSED


async def test_a_gang_is_resized(opens: Opens, env: WorkflowEnvironment):
    gang = await running(opens, "a", "b", "c")
    await gang.resizes(1, 2)
    await gang.ask()
    assert sorted(gang.kinds.values()) == ["Leave", "Rejoin", "Rejoin"]
    await gang.obey()
    assert (await gang.status()).participants == 2
    with pytest.raises(WorkflowUpdateFailedError) as refused:
        await gang.resizes(2, 1)
    assert isinstance(refused.value.cause, ApplicationError)
    assert "expected at most max, 1" in refused.value.cause.message


async def test_what_an_earlier_hub_says_is_refused_before_it_reaches_history(opens: Opens):
    gang = await running(opens, "a", "b")
    earlier = gang.generation
    await gang.attach()
    assert gang.kinds == {"a": "Run", "b": "Run"}
    assert gang.world == 2
    before = await accepted(gang)
    gang.generation = earlier
    with pytest.raises(WorkflowUpdateFailedError) as refused:
        await gang.succeeds("a")
    assert isinstance(refused.value.cause, ApplicationError)
    assert refused.value.cause.type == names.ERROR_STALE_HUB
    assert await accepted(gang) == before


async def test_the_end_of_the_attempt_ends_the_rendezvous_a_keep_alive_later(opens: Opens, env: WorkflowEnvironment):
    gang = await running(opens, "a", "b")
    await gang.ends()
    assert (await gang.ask()).ending
    assert gang.kinds == {"a": "Finish", "b": "Finish"}
    await env.sleep(31)
    await asyncio.wait_for(gang.handle.result(), 30)
    assert await gang.workload.query("told") == []


async def test_the_next_attempt_begins_anew_and_earlier_words_change_nothing(opens: Opens):
    gang = await running(opens, "a", "b", max_restarts=0)
    await gang.ends()
    await gang.signal_attempt(gang.begin(attempt=2))
    await gang.attach()
    status = await gang.status()
    assert (status.attempt, status.phase, status.present) == (2, GangPhase.FORMING, 0)
    gang.states.clear()
    await (await gang.join("a", "b")).obey()
    assert (await gang.status()).phase is GangPhase.RUNNING
    await gang.ends(attempt=1)
    await gang.signal_attempt(gang.begin(attempt=1))
    await gang.signal_attempt(gang.begin(attempt=7, uid="uid-0", later=-60))
    status = await gang.status()
    assert (status.attempt, status.phase) == (2, GangPhase.RUNNING)
    await gang.signal_attempt(gang.begin(attempt=1, uid="uid-2", later=60))
    status = await gang.status()
    assert (status.workload_uid, status.attempt, status.present) == ("uid-2", 1, 0)


async def test_a_workload_that_is_gone_keeps_its_rendezvous_from_nothing(opens: Opens, env: WorkflowEnvironment):
    gang = await running(opens, "a", max_restarts=0)
    await gang.workload.terminate()
    await gang.fails("a")
    assert gang.kinds == {"a": "Finish"}
    # Nobody ends the attempt; a day later the rendezvous ends by itself.
    await env.sleep(timedelta(days=1, minutes=1))

    async def over() -> bool:
        return (await gang.handle.describe()).status is WorkflowExecutionStatus.COMPLETED

    await until(over, 30, "the rendezvous is over")


async def test_an_update_that_is_cancelled_is_cancelled_and_one_without_an_answer_late():
    # On a server of its own: a task that nobody takes keeps time from being skipped, for all that come after.
    async with open_server() as env:
        queue = f"nobody-{secrets.token_hex(3)}"
        handle = await env.client.start_workflow("Nobody", id=queue, task_queue=queue)
        with pytest.raises(TimeoutError, match="no answer to the update ask"):
            await update(handle, "ask", None, returns=int, seconds=0.5)
        asked = asyncio.create_task(update(handle, "ask", None, returns=int, seconds=60))
        await asyncio.sleep(0.5)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
