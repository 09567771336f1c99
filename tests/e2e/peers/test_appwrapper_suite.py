"""AppWrapper's own end-to-end suite, unmodified, against Holdfast in place of its controller (F1, F2, F5, F8).

`make test-peers` runs this, as root: the suite and the operators are built from their Go modules, about 5 minutes once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.activities.kube.client import Kube
from holdfast.local import Stack
from holdfast.local.extras.kueue import EXTERNAL_FRAMEWORKS, FRAMEWORKS
from holdfast.names import MANAGED_BY
from holdfast.worker.cleanup.namespace import enable
from tests.e2e.ground.held import real_node, require_real
from tests.e2e.ground.site import GROUPS, Site, open_site, until
from tests.e2e.peers import suite
from tests.e2e.peers.jobset_peer import open_peer
from tests.e2e.peers.kueue import open_kueue

pytestmark = [pytest.mark.e2e, pytest.mark.kueue, pytest.mark.real_node, pytest.mark.timeout(2400)]

DEVIATIONS = {
    # 0057: a component that is missing is made again, and the workload fails only once its retries are used up (A6).
    "Deleting a Running Component yields a failed AppWrapper",
}
"""Specs that Holdfast does not pass, by decision record 0057."""
ON_FAKE_NODES = "Autopilot Job Migration|Load Testing"
"""Specs that want GPUs, or a hundred pods at once."""
ASKED = frozenset({"appwrappers", "jobs", "workloads", "jobsets", "pytorchjobs"})


@pytest.fixture
async def site(stack: Stack, tmp_path: Path) -> AsyncIterator[Site]:
    """A site whose workers run every AppWrapper that names no controller, in the suite's namespace."""
    async with open_site(stack, tmp_path, prefix="a") as opened:
        await require_real(opened)
        kube = opened.kube
        async with real_node(stack, alone=True), suite.given_to_holdfast(kube, "appwrapper"), suite.nodes_kept(kube):
            await suite.define(kube)
            await until(lambda: _is_free(kube), 90, "the suite's namespace of an earlier test is gone")
            await enable(kube, suite.NAMESPACE, extra_groups=GROUPS)
            opened.namespaces.append(suite.NAMESPACE)
            await suite.tag_image(stack)
            async with open_peer(stack, tmp_path, suite.NAMESPACE), suite.open_operator(stack, tmp_path, kube):
                await opened.start_worker(HOLDFAST_MANAGED_BY=MANAGED_BY)
                yield opened


async def _is_free(kube: Kube) -> bool:
    return await kube.find("v1", "Namespace", suite.NAMESPACE) is None


async def passes(site: Site, directory: Path, labels: str, least: int) -> None:
    """Run the suite's specs with these labels, in two parts, and tell each that fails."""
    specs: list[suite.Spec] = []
    for real in (True, False):
        await suite.place(site.kube, real=real)
        name = f"{'real' if real else 'fake'}-{len(specs)}"
        only = {"skip": ON_FAKE_NODES} if real else {"focus": ON_FAKE_NODES}
        specs += await suite.run(site.stack, directory, name, {"label-filter": labels, **only})
    suite.judge(specs, DEVIATIONS, f"{labels}: ")
    assert len(specs) >= least, "the suite has run"


@pytest.mark.row("F2", level="e2e")
async def test_F2_its_specs_for_a_cluster_without_kueue(site: Site, tmp_path: Path):
    await passes(site, tmp_path, "Standalone", 14)


@pytest.mark.row("F5", level="e2e")
@pytest.mark.row("F8", level="e2e")
async def test_F8_its_specs_for_a_cluster_with_kueue_and_for_its_webhook(site: Site, tmp_path: Path):
    integrations = {
        "frameworks": [*FRAMEWORKS, "kubeflow.org/pytorchjob"],
        "externalFrameworks": list(EXTERNAL_FRAMEWORKS),
    }
    async with open_kueue(site.stack, tmp_path, suite.NAMESPACE, ASKED, integrations=integrations):
        await passes(site, tmp_path, "Kueue || Webhook", 28)
