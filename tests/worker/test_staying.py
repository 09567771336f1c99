"""Endless activities end in order: what one held is let go, however often it is told to end."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.worker.staying import while_all_last


class Held:
    """What an activity holds: let go of slowly."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.may_end = asyncio.Event()
        self.closed = False
        self.ended: list[bool] = []

    async def close(self, tasks: list[asyncio.Task[None]]) -> None:
        self.begun.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.may_end.wait()
        self.ended = [task.done() for task in tasks]
        self.closed = True


async def _ends() -> None:
    raise ValueError("the worker leaves")


async def _lasts() -> None:
    await asyncio.Event().wait()


async def test_the_first_that_ends_ends_the_others_and_says_why():
    held = Held()
    held.may_end.set()
    with pytest.raises(ValueError, match="the worker leaves"):
        await while_all_last((_ends(), _lasts()), held.close)
    assert (held.closed, held.ended) == (True, [True, True])


async def test_what_is_ending_by_itself_is_not_cut_short_by_a_cancellation():
    held = Held()
    activity = asyncio.create_task(while_all_last((_ends(), _lasts()), held.close))
    await held.begun.wait()
    for _ in range(3):
        activity.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert not activity.done()
    held.may_end.set()
    with pytest.raises(ValueError, match="the worker leaves"):
        await activity
    assert held.closed


async def test_one_that_is_cancelled_while_all_last_lets_go_of_everything():
    held = Held()
    held.may_end.set()
    activity = asyncio.create_task(while_all_last((_lasts(), _lasts()), held.close))
    await asyncio.sleep(0)
    activity.cancel()
    with pytest.raises(asyncio.CancelledError):
        await activity
    assert (held.closed, held.ended) == (True, [True, True])
