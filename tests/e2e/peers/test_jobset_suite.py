"""JobSet's own integration specs, unmodified, against Holdfast in place of its controller (F16, J1 to J23).

The specs play the Job controller and the garbage collector themselves: so the stack's own does not run meanwhile. How
they are connected to Holdfast is `local/build/jobset-suite/suite_test.go` (`docs/decisions/0102`).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.local import Stack
from holdfast.names import MANAGED_BY
from tests.e2e.ground.site import Site, executable, open_site
from tests.e2e.peers import suite

pytestmark = [pytest.mark.e2e, pytest.mark.kueue, pytest.mark.timeout(2400)]

SUITE = "jobset-suite"
CONTROLLERS = "kube-controller-manager"
SPACES = "jobset-ns-"
"""What the names of the specs' namespaces begin with."""
FILE = "jobset_controller_test.go"
SHARES = ((1, 121), (200, 800), (801, 1200), (1201, 1900), (1901, 9999))
"""The lines of the specs, in parts that run at once: mostly, they watch that nothing happens."""


@pytest.fixture
async def site(stack: Stack, tmp_path: Path) -> AsyncIterator[Site]:
    """A site whose worker runs every JobSet that names no controller, on a stack without Kubernetes' controllers."""
    # No pod ever runs, so that there is nothing to judge a ledger by.
    async with (
        open_site(stack, tmp_path, prefix="j", judge=False) as opened,
        suite.given_to_holdfast(opened.kube, "jobset"),
    ):
        await opened.start_worker(HOLDFAST_MANAGED_BY=MANAGED_BY)
        await asyncio.to_thread(stack.stop_part, CONTROLLERS)
        try:
            yield opened
        finally:
            await asyncio.to_thread(stack.start_part, CONTROLLERS)
            spaces = [one["metadata"]["name"] for one in (await opened.kube.list("v1", "Namespace"))["items"]]
            opened.namespaces += [one for one in spaces if one.startswith(SPACES)]


@pytest.mark.row("F16", level="e2e")
async def test_F16_jobsets_own_specs(site: Site, tmp_path: Path):
    only = {"focus": focus} if (focus := os.environ.get("HOLDFAST_SPECS", "")) else {}
    environment = {"HOLDFAST": executable()[0]}
    shares = [
        suite.run(site.stack, tmp_path, f"share-{first}", choice | only, suite=SUITE, env=environment)
        for first, _ in SHARES
        for choice in [{"skip-file": f"{FILE}:" + ",".join(f"{one}-{last}" for one, last in SHARES if one != first)}]
    ]
    specs = [one for share in await asyncio.gather(*shares) for one in share]
    failed = {one.name: one.failure for one in specs if one.state != "passed"}
    print(f"MEASURED {len(specs)} specs, {len(specs) - len(failed)} passed")
    for one in specs:
        print(f"  {one.state:<8} {one.seconds:6.1f} s  {one.name}")
    assert not failed, failed
