"""JobSet's own integration specs, unmodified, against Holdfast in place of its controller (F16, J1 to J23).

The specs play the Job controller and the garbage collector themselves: so the stack's own do not run meanwhile. How
they are connected to Holdfast is `local/build/jobset-suite/suite_test.go` (`docs/decisions/0102`).

`make test-peers` runs this: the suite is built from its Go module, 3 minutes once.
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
SPECS = 65
DEVIATIONS = {
    # The next attempt begins once the one before it is proven gone (rows J11 and A6), as with BlockingRecreate.
    "[failure policy] jobs are restarted individually with Recreate strategy.",
    # JobSet's own admission refuses this document, as Holdfast does: a coordinator's Job has completions.
    "jobset with coordinator set should have annotation and label set on all jobs",
    # A Job that the API server will never accept fails the JobSet at once, and is not tried again and again (row J6).
    "a JobSet is created with an invalid Job template should emit a warning event",
    # The gate ElasticJobSet, alpha and off by default: what was checked at the creation stays as it is (row F16).
    "dynamic horizontal pod scaling propagates parallelism and completions to child jobs",
}
"""Specs that Holdfast does not pass, by decision record 0102."""


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
@pytest.mark.row("J12", level="e2e")
@pytest.mark.row("J13", level="e2e")
@pytest.mark.row("J14", level="e2e")
@pytest.mark.row("J15", level="e2e")
async def test_F16_jobsets_own_specs(site: Site, tmp_path: Path):
    chosen = os.environ.get("HOLDFAST_SPECS", "")
    # Where the specs name no time they wait for 1 s, which a busy machine may take: 10 s, as everywhere else in them.
    environment = {"HOLDFAST": executable()[0], "GOMEGA_DEFAULT_EVENTUALLY_TIMEOUT": "10s"}
    shares = [
        suite.run(site.stack, tmp_path, f"share-{first}", choice, suite=SUITE, env=environment)
        for first, _ in SHARES
        for others in [",".join(f"{one}-{last}" for one, last in SHARES if one != first)]
        for choice in [{"skip-file": f"{FILE}:{others}"} | ({"focus": chosen} if chosen else {})]
    ]
    specs = [one for share in await asyncio.gather(*shares) for one in share]
    suite.judge(specs, DEVIATIONS)
    assert chosen or len(specs) == SPECS, "the suite has run"


def test_its_suite_file_differs_from_the_published_one_as_the_document_says():
    assert suite.difference(SUITE) in suite.document(SUITE).read_text(), f"python -m tests.e2e.peers.suite {SUITE}"
