"""A store, and a site whose workers stage from it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from holdfast.local import Stack
from tests.e2e.data.staging import PIECES, SIZE, Ground
from tests.e2e.ground.site import open_site
from tests.e2e.ground.space import open_space
from tests.store import Store, open_store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "store") as opened:
        for at in range(PIECES):
            opened.put(f"corpus/{at:02}", bytes([at]) * SIZE)
        yield opened


@pytest_asyncio.fixture(loop_scope="session")
async def ground(stack: Stack, store: Store, tmp_path: Path) -> AsyncIterator[Ground]:
    """A site without a worker yet."""
    async with open_site(stack, tmp_path, prefix="d") as site, open_space(site) as space:
        yield Ground(space, store, tmp_path / "cache")
