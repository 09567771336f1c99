"""Fixtures for the tests of the watch on the local stack."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.local import Stack
from tests.worker.ground import Ground, opened


@pytest.fixture
async def ground(stack: Stack, tmp_path: Path) -> AsyncIterator[Ground]:
    async with opened(stack, tmp_path) as ground:
        yield ground
