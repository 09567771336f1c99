"""Looks go before removals in a burst, but none is kept waiting for long."""

from __future__ import annotations

import asyncio

from holdfast.activities.precedence import Precedence


async def test_a_removal_waits_for_the_last_look_that_is_under_way():
    precedence, order = Precedence(), list[str]()

    async def remove() -> None:
        await precedence.give_way(60)
        order.append("removed")

    with precedence.looking():
        with precedence.looking():
            removal = asyncio.create_task(remove())
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        order.append("one look is over")
        await asyncio.sleep(0)
        order.append("the other is over")
    await removal
    assert order == ["one look is over", "the other is over", "removed"]


async def test_it_does_not_wait_where_nobody_looks_nor_for_a_look_without_an_answer():
    precedence = Precedence()
    await precedence.give_way(60)
    with precedence.looking():
        await precedence.give_way(0.01)
