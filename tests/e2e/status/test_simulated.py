"""The scripts of tests/simulation on a real API server with its real controllers: they must decide what was simulated.

The policies are the documents' own defaults, all divided by the same; what happens, happens for real.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.local import Stack
from holdfast.simulation import simulate
from tests.e2e.ground.proxy import Proxy, api_proxy
from tests.e2e.ground.site import open_site
from tests.e2e.ground.space import Space, open_space
from tests.e2e.status.enacted import enacted
from tests.simulation.cases import CASES, Case, Verdict, decisions, parameters

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]
REAL = [case for case in CASES if not case.only]
BLIND = [case for case in REAL if any(event.blind is not None for event in case.script.events)]
SEEING = [case for case in REAL if case not in BLIND]
PATIENCE = 180.0
"""Seconds for a script's whole life; the longest takes 45 on an idle machine."""


async def decides_the_same(space: Space, case: Case, proxy: Proxy | None = None) -> None:
    workload = case.workload(space.site.cluster, space.namespace)
    expected = simulate(case.workload(), case.script)
    async with enacted(space, workload, case.script, case.factor, proxy) as enactment:
        status = await enactment.play(PATIENCE)
    assert decisions(status.causes) == decisions(expected.causes)
    assert Verdict.told(status) == Verdict.of(expected)


@pytest.mark.parametrize("case", parameters("e2e", SEEING))
async def test_a_real_cluster_decides_what_was_simulated(space: Space, case: Case):
    await decides_the_same(space, case)


@pytest.mark.parametrize("case", parameters("e2e", BLIND))
async def test_a_worker_that_is_blind_decides_what_was_simulated(stack: Stack, tmp_path: Path, case: Case):
    async with open_site(stack, tmp_path) as site, api_proxy(site.kubeconfig, tmp_path) as (proxy, proxied):
        await site.start_worker(kubeconfig=proxied)
        async with open_space(site) as space:
            await decides_the_same(space, case, proxy)
