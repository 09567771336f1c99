"""AppWrapper's contract rows on a real API server with its real controllers, and a real Temporal."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import names
from tests.e2e.ground.site import Site, appwrapper, job, until

pytestmark = pytest.mark.e2e
ROW = pytest.mark.row


@ROW("A1", level="e2e")
@ROW("A2", level="e2e")
async def test_A1_A2_a_job_is_created_runs_and_succeeds(site: Site):
    namespace = await site.namespace()
    workload = site.read(appwrapper("train-llm", job()), namespace)
    handle = await site.submit(workload)
    status = await site.reach(handle, "Running")
    assert (status.attempt, status.restarts) == (1, 0)
    (found,) = await site.objects("batch/v1", "Job", namespace)
    assert found["metadata"]["labels"]["workload.codeflare.dev/appwrapper"] == "train-llm"
    for pod in await site.pods(namespace):
        labels = pod["metadata"]["labels"]
        assert labels["workload.codeflare.dev/appwrapper"] == "train-llm"
        assert labels[names.LABEL_ATTEMPT] == "1"
        await site.annotate("Pod", pod["metadata"]["name"], namespace, kwok_complete="0s")
    result = await asyncio.wait_for(handle.result(), 60)
    assert result.phase == "Succeeded"
    await until(lambda: site.gone(namespace), 60, "all is gone")


@ROW("A3", level="e2e")
async def test_A3_a_failed_pod_resets_after_the_failure_grace(site: Site):
    namespace = await site.namespace()
    workload = site.read(appwrapper("train-llm", job(backoffLimit=5)), namespace)
    handle = await site.submit(workload)
    await site.reach(handle, "Running")
    await site.fail_pod(namespace)
    await site.reach(handle, "Running", attempt=2)
