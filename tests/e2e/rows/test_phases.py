"""Suspension and preemption (row A11) and deletion (row A16), obeyed in every phase on a real cluster."""

from __future__ import annotations

import asyncio

import pytest
from temporalio.client import WorkflowFailureError
from temporalio.exceptions import CancelledError

from holdfast import names
from holdfast.model import Status
from tests.e2e.ground.site import until
from tests.e2e.ground.space import PENDING, Space
from tests.e2e.lives.phases import PHASES, Held, hold

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]
ROW = pytest.mark.row


def condition(status: Status, kind: str) -> bool:
    return next(each.status for each in status.conditions if each.type == kind)


def spent(status: Status) -> dict[str, int]:
    """Return what is charged to each budget; a reset is under way until its removal is proven (record 0086)."""
    return {one.name: one.used + one.under_way for one in status.budgets}


async def suspend(space: Space, held: Held, signal: str) -> None:
    """Suspend a held workload, see it suspended, resume it, see it run with its budgets as they were."""
    before = await space.site.status(held.handle)
    await held.handle.signal(signal, "make room")
    if before.reason == "Resetting" and "forcing" in held.name:
        await space.reach(held.handle, "Suspending")
        await held.release()
    status = await space.reach(held.handle, "Suspended")
    assert status.reason == ("Preempted" if signal == names.SIGNAL_PREEMPT else "SuspendRequested")
    assert not condition(status, "QuotaReserved")
    assert not condition(status, "ResourcesDeployed")
    assert (status.attempt, status.restarts) == (1, held.restarts)
    assert spent(status) == spent(before), "a suspension charges nothing"

    async def told() -> bool:
        return (await space.anchor(held.name))["status"]["phase"] == "Suspended"

    await until(told, 90, "the anchor says so")
    await space.truth.settle()
    suspended = space.truth.shown(held.name)[-1]
    assert suspended.conditions["QuotaReserved"][0] is False
    assert not space.truth.alive(held.name, suspended.version), "quota is released only when nothing is left"

    await held.release()
    await held.handle.signal(names.SIGNAL_RESUME, "room again")
    if "starting" in held.name:
        await start(space, held.name)
    status = await space.reach(held.handle, "Running", 2)
    assert (status.executions, status.restarts) == (2, held.restarts)
    assert spent(status) == spent(before)
    await space.truth.settle()
    space.truth.assert_one_attempt_at_a_time(held.name)
    space.truth.assert_told_truly(held.name)


async def start(space: Space, name: str) -> None:
    """Let the held pods of a workload's second attempt start."""

    async def started() -> bool:
        pods = [each for each in await space.pods(name) if each["metadata"]["labels"][names.LABEL_ATTEMPT] == "2"]
        for each in pods:
            if PENDING.keys() & each["metadata"]["labels"].keys():
                gone = {"metadata": {"labels": dict.fromkeys(PENDING)}}
                await space.patch("v1", "Pod", each["metadata"]["name"], gone)
        return len(pods) == 2

    await until(started, 30, "its pods are let go")


@ROW("A11", level="e2e")
@pytest.mark.parametrize("phase", PHASES)
async def test_A11_suspend_and_preempt_are_obeyed_in_every_phase(space: Space, phase: str):
    signals = (names.SIGNAL_SUSPEND, names.SIGNAL_PREEMPT)
    held = await asyncio.gather(*(hold(space, phase, f"{phase}-{signal}") for signal in signals))
    await asyncio.gather(*(suspend(space, each, signal) for each, signal in zip(held, signals, strict=True)))


@ROW("A11", level="e2e")
async def test_A11_resume_while_suspending_comes_back_only_after_the_proof(space: Space):
    held = await hold(space, "forcing", "forcing")
    await held.handle.signal(names.SIGNAL_SUSPEND)
    await space.reach(held.handle, "Suspending", 1)
    await held.handle.signal(names.SIGNAL_RESUME)
    await held.release()
    status = await space.reach(held.handle, "Running", 2)
    assert (status.restarts, status.executions) == (1, 2)
    await space.truth.settle()
    space.truth.assert_one_attempt_at_a_time("forcing")
    space.truth.assert_told_truly("forcing")


async def by_signal(space: Space, held: Held) -> None:
    await held.handle.signal(names.SIGNAL_CANCEL, "enough")


async def by_cancellation(space: Space, held: Held) -> None:
    await held.handle.cancel()


async def by_anchor(space: Space, held: Held) -> None:
    await space.delete(names.API_VERSION, names.ANCHOR_KIND, held.name)


WAYS = {"signal": by_signal, "cancellation": by_cancellation, "anchor": by_anchor}


async def delete(space: Space, phase: str, held: Held, way: str) -> None:
    """Delete a held workload, and see its end."""
    await WAYS[way](space, held)
    if phase == "forcing":
        await space.reach(held.handle, "Terminating")
        anchor = await space.anchor(held.name)
        assert names.FINALIZER in anchor["metadata"]["finalizers"], "the anchor stays until all is proven gone"
        await held.release()
    if way == "cancellation" and phase != "succeeded":
        with pytest.raises(WorkflowFailureError) as error:
            await asyncio.wait_for(held.handle.result(), 120)
        assert isinstance(error.value.cause, CancelledError)
    else:
        status = await space.ended(held.handle)
        assert status.phase == ("Succeeded" if phase == "succeeded" else "Cancelled")
        if phase != "succeeded":
            assert status.reason == ("AnchorDeleted" if way == "anchor" else "CancelRequested")
    await space.truth.settle()
    assert all(life.died for life in space.truth.of(1, workload=held.name)), "nothing is left"
    assert space.truth.attempts(held.name) in ([], [1])
    space.truth.assert_told_truly(held.name)
    anchor = space.truth.anchor(held.name)
    if phase != "succeeded" or way == "anchor":
        last = max((life.died or 0 for life in space.truth.of(1, workload=held.name)), default=0)
        assert anchor.died is not None, "the record ends"
        assert anchor.died > last, "and ends last"
    else:
        assert names.FINALIZER not in (anchor.object["metadata"].get("finalizers") or ())


@ROW("A16", level="e2e")
@pytest.mark.parametrize("phase", [*PHASES, "suspended", "succeeded"])
async def test_A16_deleted_in_any_phase_it_is_removed_and_its_record_ends(space: Space, phase: str):
    held = await asyncio.gather(*(hold(space, phase, f"{phase}-{way}") for way in WAYS))
    await asyncio.gather(*(delete(space, phase, each, way) for each, way in zip(held, WAYS, strict=True)))
