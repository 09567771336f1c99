"""Fixtures for the tests of the watch on the local stack."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.local import Stack
from tests.worker.ground import Ground, opened


@pytest.fixture(scope="session")
def stack() -> Stack:
    return Stack.up(os.environ.get("HOLDFAST_TEST_STACK", "test"))


@pytest.fixture
async def ground(stack: Stack, tmp_path: Path) -> AsyncIterator[Ground]:
    async with opened(stack, tmp_path) as ground:
        yield ground
