"""Who may have the real node: any number of tests that run containers on it, or one that takes its agent away."""

from __future__ import annotations

import asyncio
import fcntl
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from holdfast.local import Stack
from tests.e2e.ground.site import Site, until
from tests.e2e.ground.space import Space, open_space

TAKEN: Counter[str] = Counter()
"""How often this process has taken the real node of each stack."""


@asynccontextmanager
async def real_node(stack: Stack, *, alone: bool = False) -> AsyncIterator[None]:
    """Hold the stack's real node for as long as the block lasts; processes of other tests wait for it."""
    with (stack.directory / "real-node.lock").open("w") as lock:
        await asyncio.to_thread(fcntl.flock, lock, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        TAKEN[stack.name] += 1
        try:
            yield
        finally:
            fcntl.flock(lock, fcntl.LOCK_UN)


@asynccontextmanager
async def open_real(site: Site, *kinds: tuple[str, str]) -> AsyncIterator[Space]:
    """Open a namespace that the kubelet can run pods of, and hold the real node meanwhile."""
    await require_real(site)
    async with real_node(site.stack), open_space(site, *kinds) as space:
        await admits_pods(site, space.namespace)
        yield space


async def require_real(site: Site) -> None:
    """Skip the test where the stack has no real node."""
    if await site.kube.find("v1", "Node", "real") is None:
        pytest.skip("this stack has no real node: holdfast dev up --real-node, as root")


async def admits_pods(site: Site, namespace: str) -> None:
    """Wait for a namespace's service account, as the kubelet needs it."""

    async def there() -> bool:
        return await site.kube.find("v1", "ServiceAccount", "default", namespace) is not None

    await until(there, 60, "the default service account is there")
