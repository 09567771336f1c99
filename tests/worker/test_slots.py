"""Few fresh slots at once, and those that wait hold nobody back."""

from __future__ import annotations

import asyncio
import time
import uuid
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import FixedSizeSlotSupplier, SlotPermit, UnsandboxedWorkflowRunner, Worker, WorkerTuner

from holdfast import names
from holdfast.activities.kube.priority import Precedence
from holdfast.worker.roles import shares
from holdfast.worker.runtime.settings import Role, Settings
from holdfast.worker.runtime.slots import FRESH_WAIT_SECONDS, FreshSlots
from tests.client.server import temporal_server

ANY: Any = SimpleNamespace()
SERVICES = 200


class Hand:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def used(slots: FreshSlots, permit: SlotPermit | None) -> None:
    slots.mark_slot_used(_context(permit))


def released(slots: FreshSlots, permit: SlotPermit | None) -> None:
    slots.release_slot(_context(permit))


def _context(permit: SlotPermit | None) -> Any:
    assert permit is not None
    return SimpleNamespace(permit=permit, slot_info=None)


def test_as_many_as_may_be_fresh_are_given_out_and_no_more() -> None:
    slots = FreshSlots(10, 2, 4.0)
    first, second = slots.try_reserve_slot(ANY), slots.try_reserve_slot(ANY)
    assert first is not None
    assert second is not None
    assert slots.try_reserve_slot(ANY) is None
    released(slots, first)
    assert slots.try_reserve_slot(ANY) is not None
    assert slots.try_reserve_slot(ANY) is None


@pytest.mark.row("L28", level="pure")
def test_L28_two_hundred_probes_for_ever_leave_removals_all_their_slots() -> None:
    acting: Any = SimpleNamespace(
        cluster=SimpleNamespace(all=[], probe=None, follow_progress=None, precedence=Precedence())
    )
    settings = Settings(roles=(Role.WAIT,), cluster="dev", max_concurrent_waits=1, max_fresh_waits=SERVICES)
    of: dict[str, Any] = {queue: slots for queue, _, slots in shares(settings, Role.WAIT, acting)}
    probes, waits = of[names.queue_probe("dev")], of[names.queue_wait("dev")]
    for _ in range(SERVICES):
        used(probes, probes.try_reserve_slot(ANY))
    assert probes.try_reserve_slot(ANY) is None, "as many as may be begun within a second"
    used(waits, waits.try_reserve_slot(ANY))
    assert waits.try_reserve_slot(ANY) is None, "there was one"


@pytest.mark.row("L28", level="pure")
def test_L28_two_hundred_probes_have_begun_within_seven_seconds_however_long_each_lasts() -> None:
    settings, clock = Settings(roles=(Role.WAIT,), cluster="dev"), Hand()
    slots = FreshSlots(settings.max_concurrent_probes, settings.max_fresh_waits, FRESH_WAIT_SECONDS, clock)
    begun = 0
    for _ in range(7):
        while (permit := slots.try_reserve_slot(ANY)) is not None:
            used(slots, permit)
            begun += 1
        clock.now += FRESH_WAIT_SECONDS
    assert SERVICES <= begun < settings.max_concurrent_probes


def test_one_that_waits_for_long_counts_no_more_as_fresh() -> None:
    clock = Hand()
    slots = FreshSlots(3, 1, 4.0, clock)
    used(slots, slots.try_reserve_slot(ANY))
    clock.now += 3.9
    assert slots.try_reserve_slot(ANY) is None
    clock.now += 0.2
    used(slots, slots.try_reserve_slot(ANY))
    clock.now += 5
    used(slots, slots.try_reserve_slot(ANY))
    clock.now += 5
    assert slots.try_reserve_slot(ANY) is None, "all of them are used"


def test_one_that_has_done_what_it_had_to_counts_no_more_as_fresh() -> None:
    clock = Hand()
    slots = FreshSlots(5, 2, 4.0, clock)
    slots.ease(clock.now)
    first, second = (slots.try_reserve_slot(ANY) for _ in range(2))
    used(slots, first)
    slots.ease(clock.now)
    third = slots.try_reserve_slot(ANY)
    assert third is not None
    slots.ease(clock.now)
    assert slots.try_reserve_slot(ANY) is None, "the others are held for polls, and have done nothing yet"
    clock.now += 3
    used(slots, second)
    began = clock.now
    clock.now += 0.5
    used(slots, third)
    slots.ease(began + 0.1)
    fourth = slots.try_reserve_slot(ANY)
    assert fourth is not None
    released(slots, second)
    assert slots.try_reserve_slot(ANY) is None, "it was the second that was eased: the third is as fresh as before"
    clock.now += 3.7
    slots.ease(began)
    assert slots.try_reserve_slot(ANY) is None, "what began so long ago is not fresh, and eases no other"


async def test_one_that_only_waits_wakes_another() -> None:
    slots = FreshSlots(5, 1, 1e6)
    used(slots, slots.try_reserve_slot(ANY))
    other = asyncio.create_task(slots.reserve_slot(ANY))
    await asyncio.sleep(0)
    assert not other.done()
    slots.ease(time.monotonic())
    await other


def test_a_removal_that_has_asked_for_its_deletions_leaves_its_slot_to_another() -> None:
    precedence = Precedence()
    acting: Any = SimpleNamespace(
        cluster=SimpleNamespace(all=[], probe=None, follow_progress=None, precedence=precedence)
    )
    settings = Settings(roles=(Role.WAIT,), cluster="dev", max_fresh_waits=1)
    of: dict[str, Any] = {queue: slots for queue, _, slots in shares(settings, Role.WAIT, acting)}
    waits = of[names.queue_wait("dev")]
    used(waits, waits.try_reserve_slot(ANY))
    with precedence.deletions.one():
        assert waits.try_reserve_slot(ANY) is None
    assert waits.try_reserve_slot(ANY) is not None


def test_one_held_for_a_poll_stays_fresh_until_it_is_used() -> None:
    clock = Hand()
    slots = FreshSlots(3, 1, 4.0, clock)
    held = slots.try_reserve_slot(ANY)
    clock.now += 1000
    assert slots.try_reserve_slot(ANY) is None
    used(slots, held)
    clock.now += 5
    assert slots.try_reserve_slot(ANY) is not None


async def test_what_is_given_back_wakes_one_that_waits() -> None:
    slots = FreshSlots(5, 1, 1e6)
    held = slots.try_reserve_slot(ANY)
    first, second = (asyncio.create_task(slots.reserve_slot(ANY)) for _ in range(2))
    await asyncio.sleep(0)
    released(slots, held)
    permit = await first
    assert not second.done()
    await asyncio.to_thread(released, slots, permit)
    await second


async def test_one_that_is_cancelled_as_it_is_woken_passes_it_on() -> None:
    slots = FreshSlots(5, 1, 1e6)
    held = slots.try_reserve_slot(ANY)
    first, second = (asyncio.create_task(slots.reserve_slot(ANY)) for _ in range(2))
    await asyncio.sleep(0)
    released(slots, held)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    await second


@workflow.defn
class Both:
    """Has both run at once."""

    @workflow.run
    async def run(self) -> None:
        length = timedelta(minutes=1)
        queue = workflow.info().task_queue
        first = workflow.start_activity("waits", task_queue=queue, start_to_close_timeout=length)
        await workflow.execute_activity("runs", task_queue=queue, start_to_close_timeout=length)
        await first


@pytest.mark.temporal
async def test_an_operation_that_waits_holds_no_other_back_on_a_real_worker() -> None:
    """The first ends only once the second has run, and there is but one fresh slot."""
    begun, ran = asyncio.Event(), asyncio.Event()

    @activity.defn
    async def waits() -> None:
        begun.set()
        await ran.wait()

    @activity.defn
    async def runs() -> None:
        await begun.wait()
        ran.set()

    queue = f"slots-{uuid.uuid4()}"
    with temporal_server() as address:
        client = await Client.connect(address)
        worker = Worker(
            client,
            task_queue=queue,
            workflows=[Both],
            activities=[waits, runs],
            workflow_runner=UnsandboxedWorkflowRunner(),
            tuner=WorkerTuner.create_composite(
                workflow_supplier=FixedSizeSlotSupplier(5),
                activity_supplier=FreshSlots(3, 1, 0.05),
                local_activity_supplier=FixedSizeSlotSupplier(1),
                nexus_supplier=FixedSizeSlotSupplier(1),
            ),
        )
        async with worker:
            await client.execute_workflow(Both.run, id=queue, task_queue=queue, run_timeout=timedelta(minutes=1))
