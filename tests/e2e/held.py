"""Who may have the real node: any number of tests that run containers on it, or one that takes its agent away."""

from __future__ import annotations

import asyncio
import fcntl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from holdfast.local import Stack


@asynccontextmanager
async def real_node(stack: Stack, *, alone: bool = False) -> AsyncIterator[None]:
    """Hold the stack's real node for as long as the block lasts; processes of other tests wait for it."""
    with (stack.directory / "real-node.lock").open("w") as lock:
        await asyncio.to_thread(fcntl.flock, lock, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        try:
            yield
        finally:
            fcntl.flock(lock, fcntl.LOCK_UN)
