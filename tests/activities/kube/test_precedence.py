"""In a burst looks go before removals, and deletions before proofs; none is kept waiting for long."""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack

import pytest

from holdfast.activities.kube import priority
from holdfast.activities.kube.priority import TOGETHER_FROM, Precedence, Together


async def settled() -> None:
    """Let all go on that can go on now."""
    for _ in range(50):
        await asyncio.sleep(0)


async def test_a_removal_waits_for_the_last_look_that_is_under_way():
    precedence, order = Precedence(), list[str]()

    async def remove() -> None:
        await precedence.give_way(60)
        order.append("removed")

    with precedence.looks.one():
        with precedence.looks.one():
            removal = asyncio.create_task(remove())
            await settled()
            order.append("one look is over")
        await settled()
        order.append("the other is over")
    await settled()
    order.append("nobody looks")
    await removal
    assert order == ["one look is over", "the other is over", "removed", "nobody looks"]


async def test_it_waits_again_for_a_look_that_begins_later():
    precedence = Precedence()
    with precedence.looks.one():
        pass
    with precedence.looks.one():
        removal = asyncio.create_task(precedence.give_way(60))
        await settled()
        assert not removal.done()
    await settled()
    assert removal.done()


async def test_a_look_that_fails_is_over_too():
    precedence = Precedence()
    with pytest.raises(RuntimeError), precedence.looks.one():
        raise RuntimeError
    removal = asyncio.create_task(precedence.give_way(60))
    await settled()
    assert removal.done()


async def test_it_does_not_wait_where_nobody_looks_nor_for_long_for_a_look_without_an_answer():
    precedence = Precedence()
    at_once = asyncio.create_task(precedence.give_way(60))
    await settled()
    assert at_once.done(), "nobody looks"
    with precedence.looks.one():
        patient, impatient = (asyncio.create_task(precedence.give_way(seconds)) for seconds in (60, 0.05))
        await settled()
        assert not impatient.done(), "for a little it does wait"
        await asyncio.wait_for(impatient, 10)
        assert not patient.done()
    await asyncio.wait_for(patient, 10)


async def test_a_proof_waits_until_all_removals_have_asked_for_their_deletions(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(priority, "GIVEN_WAY", 60)
    precedence, heard = Precedence(), list[float]()
    precedence.deletions.listeners.append(heard.append)
    before = time.monotonic()
    with precedence.asking() as has_asked:
        with precedence.looks.one():
            proof = asyncio.create_task(precedence.give_way_to_deletions(60))
            await settled()
        await settled()
        assert not proof.done()
        assert heard == [], "a look is no deletion"
        has_asked()
        await settled()
        assert proof.done()
    (begun,) = heard
    assert before <= begun <= time.monotonic()


@pytest.mark.parametrize(("given_way", "most"), [(0.05, 60.0), (60.0, 0.05), (60.0, -1.0)])
async def test_a_proof_does_not_wait_for_long_for_a_deletion_that_is_not_answered(
    monkeypatch: pytest.MonkeyPatch, given_way: float, most: float
):
    precedence = Precedence()
    monkeypatch.setattr(priority, "GIVEN_WAY", 60)
    with precedence.asking():
        monkeypatch.setattr(priority, "GIVEN_WAY", given_way)
        await asyncio.wait_for(precedence.give_way_to_deletions(most), 10)


async def test_a_removal_that_cannot_ask_counts_no_longer_after_a_while(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(priority, "GIVEN_WAY", 0.05)
    precedence = Precedence()
    with precedence.asking():
        await asyncio.wait_for(precedence.deletions.over(60), 10)


async def test_a_removal_that_fails_counts_no_longer(monkeypatch: pytest.MonkeyPatch):
    precedence = Precedence()
    with pytest.raises(RuntimeError), precedence.asking():
        raise RuntimeError
    await asyncio.wait_for(precedence.deletions.over(60), 10)


async def many(together: Together, order: list[str], *sleepers: tuple[str, float, float]) -> list[asyncio.Task[None]]:
    async def poll(name: str, seconds: float, most: float) -> None:
        with together.member():
            await settled()
            await together.sleep(seconds, most)
            order.append(name)

    tasks = [asyncio.create_task(poll(*one)) for one in sleepers]
    for _ in range(3):
        await settled()
    return tasks


async def test_many_who_poll_go_on_in_the_same_moment_and_none_sleeps_longer_than_it_may():
    together, order = Together(), list[str]()
    first = ("first", 0.2, 0.2)
    others = [(f"late-{number}", 60.0, 60.0) for number in range(TOGETHER_FROM)]
    tasks = await many(together, order, first, *others, ("hasty", 0.001, 0.001))
    left = tasks[1]
    left.cancel()
    await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 30)
    assert order == ["hasty", "first", *(name for name, _, _ in others[1:])]
    (again,) = await many(together, order, ("again", 0.0, 60.0))
    await asyncio.wait_for(again, 10)


async def test_few_who_poll_sleep_each_as_long_as_it_would():
    together, order = Together(), list[str]()
    tasks = await many(
        together, order, *((f"{number}", number / 50, 60.0) for number in reversed(range(TOGETHER_FROM - 1)))
    )
    await asyncio.wait_for(asyncio.gather(*tasks), 10)
    assert order == ["0", "1", "2"]


@pytest.mark.parametrize(("members", "seconds"), [(2, 0.2), (15, 1.5), (30, 3.0), (300, 3.0)])
def test_the_more_there_are_the_longer_those_wait_for_each_other_for_whom_nothing_waits(members: int, seconds: float):
    together = Together.at_ends()
    with ExitStack() as there:
        for _ in range(members):
            there.enter_context(together.member())
        assert together.wait(0.1, 60.0) == seconds
        assert together.wait(0.1, 0.05) == 0.05, "no longer than it may"


async def test_two_for_whom_nothing_waits_go_on_in_the_same_moment():
    together, order = Together.at_ends(), list[str]()
    tasks = await many(together, order, ("first", 0.0, 0.2), ("second", 0.0, 60.0))
    assert order == []
    await asyncio.wait_for(asyncio.gather(*tasks), 10)
    assert order == ["first", "second"]
    (alone,) = await many(together, order, ("alone", 0.0, 60.0))
    await asyncio.wait_for(alone, 10)
