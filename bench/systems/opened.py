"""Running systems in turn, each opened for itself: never are two of them there at a time, but in a smoke."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TypeVar

from bench.ground import Ground, every
from bench.systems.appwrapper import AppWrapperPeer, open_appwrapper
from bench.systems.base import Controller, System
from bench.systems.holdfast import HoldfastSystem, open_holdfast
from bench.systems.plain import Plain, open_plain

AnySystem = TypeVar("AnySystem", bound=System)

CONTROLLERS: Mapping[str, Callable[[Ground], AbstractAsyncContextManager[Controller]]] = {
    AppWrapperPeer.name: open_appwrapper,
    HoldfastSystem.name: open_holdfast,
}
SYSTEMS: Mapping[str, Callable[[Ground], AbstractAsyncContextManager[System]]] = {Plain.name: open_plain, **CONTROLLERS}


async def in_turn(
    ground: Ground,
    openers: Mapping[str, Callable[[Ground], AbstractAsyncContextManager[AnySystem]]],
    sizes: Iterable[int],
    run: Callable[[Ground, AnySystem, int, int], Awaitable[None]],
) -> None:
    """Run every system that is wanted at every size, in turn, as often as is asked for.

    Args:
        ground: where.
        openers: the systems; one and all of its work are gone before the next is opened, but in a smoke.
        sizes: of the work.
        run: runs a system, which has lived one life, at a size; its last argument counts the repetitions from 0.
    """

    async def one(name: str, size: int, repeat: int) -> None:
        async with openers[name](ground) as system:
            await system.warm()
            await run(ground, system, size, repeat)

    await every(
        ground.options,
        [
            partial(one, name, size, repeat)
            for size in sizes
            for repeat in range(ground.options.repeats)
            for name in openers
            if ground.wants(name)
        ],
    )
