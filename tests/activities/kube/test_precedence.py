"""In a burst looks go before removals, and deletions before proofs; none is kept waiting for long."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.activities.kube import priority
from holdfast.activities.kube.priority import Precedence, Together


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
    precedence, heard = Precedence(), list[str]()
    precedence.deletions.listeners.append(lambda: heard.append("asked"))
    with precedence.deletions.one():
        with precedence.looks.one():
            proof = asyncio.create_task(precedence.give_way_to_deletions())
            await settled()
        await settled()
        assert not proof.done()
        assert heard == [], "a look is no deletion"
    await settled()
    assert proof.done()
    assert heard == ["asked"]


async def test_a_proof_does_not_wait_for_long_for_a_deletion_that_is_not_answered(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(priority, "GIVEN_WAY", 0.05)
    precedence = Precedence()
    with precedence.deletions.one():
        await asyncio.wait_for(precedence.give_way_to_deletions(), 10)


async def test_who_waits_together_goes_on_in_the_same_moment():
    together, order = Together(), list[str]()

    async def read(name: str, seconds: float) -> None:
        await together.wait(seconds)
        order.append(name)

    first = asyncio.create_task(read("first", 0.05))
    await settled()
    late = asyncio.create_task(read("late", 60))
    hasty = asyncio.create_task(read("hasty", 0.001))
    left = asyncio.create_task(read("left", 60))
    await settled()
    assert order == []
    left.cancel()
    await asyncio.wait_for(asyncio.gather(first, late, hasty), 10)
    assert order == ["hasty", "first", "late"], "nobody waits for longer than it would alone"
    again = asyncio.create_task(read("again", 60))
    await settled()
    assert not again.done(), "who comes later waits for another time"
    again.cancel()
