"""End-to-end fixtures: the local stack, and sites on it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from holdfast.local import Stack
from tests.e2e.ground import held
from tests.e2e.ground.site import Site, open_site
from tests.e2e.ground.space import Space, open_space

CALL = pytest.StashKey[pytest.TestReport]()


@pytest.fixture(autouse=True)
def _the_real_node_is_held(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that ran on the real node without holding it: another one may take its agent away meanwhile."""
    before = held.TAKEN.total()
    yield
    report = request.node.stash.get(CALL, None)
    if report is not None and report.passed and request.node.get_closest_marker("real_node"):
        assert held.TAKEN.total() > before, "it holds the real node: tests/e2e/ground/held.py"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remember how a test went, for its fixtures."""
    report = yield
    if report.when == "call":
        item.stash[CALL] = report
    return report


@pytest.fixture
async def site(stack: Stack, tmp_path: Path) -> AsyncIterator[Site]:
    """A site with one worker."""
    async with open_site(stack, tmp_path) as opened:
        await opened.start_worker()
        yield opened


@pytest.fixture
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all processes of this test run share."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def shared_site(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    """A site with one worker, for all tests of this process that only need a namespace of their own."""
    async with open_site(stack, tmp_path_factory.mktemp("site"), prefix="s") as opened:
        await opened.start_worker()
        yield opened


@pytest_asyncio.fixture(loop_scope="session")
async def space(shared_site: Site) -> AsyncIterator[Space]:
    """A namespace on the shared site; tests that use it run on the session's event loop."""
    async with open_space(shared_site) as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="session")
async def alone(stack: Stack, tmp_path: Path) -> AsyncIterator[Space]:
    """A namespace on a site whose one worker a test may kill."""
    async with open_site(stack, tmp_path, prefix="m") as site:
        await site.start_worker()
        async with open_space(site) as opened:
            yield opened
