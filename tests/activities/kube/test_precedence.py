"""Looks go before removals in a burst, but none is kept waiting for long."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.activities.kube.priority import Precedence


async def settled() -> None:
    """Let all go on that can go on now."""
    for _ in range(50):
        await asyncio.sleep(0)


async def test_a_removal_waits_for_the_last_look_that_is_under_way():
    precedence, order = Precedence(), list[str]()

    async def remove() -> None:
        await precedence.give_way(60)
        order.append("removed")

    with precedence.looking():
        with precedence.looking():
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
    with precedence.looking():
        pass
    with precedence.looking():
        removal = asyncio.create_task(precedence.give_way(60))
        await settled()
        assert not removal.done()
    await settled()
    assert removal.done()


async def test_a_look_that_fails_is_over_too():
    precedence = Precedence()
    with pytest.raises(RuntimeError), precedence.looking():
        raise RuntimeError
    removal = asyncio.create_task(precedence.give_way(60))
    await settled()
    assert removal.done()


async def test_it_does_not_wait_where_nobody_looks_nor_for_long_for_a_look_without_an_answer():
    precedence = Precedence()
    at_once = asyncio.create_task(precedence.give_way(60))
    await settled()
    assert at_once.done(), "nobody looks"
    with precedence.looking():
        patient, impatient = (asyncio.create_task(precedence.give_way(seconds)) for seconds in (60, 0.05))
        await settled()
        assert not impatient.done(), "for a little it does wait"
        await asyncio.wait_for(impatient, 10)
        assert not patient.done()
    await asyncio.wait_for(patient, 10)
