"""Opening a system by its name, one at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from bench.ground import Ground
from bench.systems.appwrapper import AppWrapperPeer, open_appwrapper
from bench.systems.base import System
from bench.systems.holdfast import HoldfastSystem, open_holdfast
from bench.systems.plain import Plain, open_plain

ALL = (Plain.name, AppWrapperPeer.name, HoldfastSystem.name)


@asynccontextmanager
async def opened(ground: Ground, name: str) -> AsyncIterator[System]:
    """Open a system and have it live one life; it and all of its work are gone afterwards."""
    system: AbstractAsyncContextManager[System]
    if name == Plain.name:
        system = open_plain(ground)
    elif name == AppWrapperPeer.name:
        system = open_appwrapper(ground)
    else:
        system = open_holdfast(ground)
    async with system as found:
        await found.warm()
        yield found
