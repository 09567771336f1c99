"""A stack of the test's own: its API server really killed and started again, and mistaken for another cluster."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import names
from holdfast.local import Stack, worker_kubeconfig
from holdfast.model import OperationKind
from tests import shared_stack
from tests.e2e.crash.scene import open_scene, pod
from tests.e2e.ground.site import Site, job, open_site, until

MANY = 8
PATIENT = {"admissionGracePeriodDuration": "120s", "warmupGracePeriodDuration": "5m"}
"""Whatever plays the kubelets, too, needs its time to come back after the API server."""

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def own_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A small stack that nobody else uses."""
    with shared_stack.own_stack("crash", tmp_path_factory.mktemp("stack"), nodes=2) as stack:
        yield stack


async def test_the_api_server_killed_and_started_again(own_stack: Stack, tmp_path: Path):
    async with open_scene(own_stack, tmp_path) as scene:
        await scene.submit(pod(), job("forced", 1, labels={"holdfast.dev/kwok-stubborn": "true"}))
        await scene.reach("Running")
        own_stack.stop_part("kube-apiserver", signal.SIGKILL)
        assert (await scene.status()).phase == "Running"
        await asyncio.to_thread(own_stack.start_part, "kube-apiserver")
        await scene.site.ready(scene.worker)
        status = await scene.reach("Running", attempt=1)
        assert (status.restarts, status.executions) == (0, 1)
        # A reset right through another kill: the stubborn pod is forced.
        solo = next(each for each in await scene.pods() if each["metadata"]["name"].startswith("solo-"))
        await scene.site.annotate("Pod", solo["metadata"]["name"], scene.namespace, kwok_exit_code="1", kwok_fail="0s")
        await scene.doing(OperationKind.REMOVE)
        own_stack.stop_part("kube-apiserver", signal.SIGKILL)
        await asyncio.to_thread(own_stack.start_part, "kube-apiserver")
        status = await scene.reach("Running", attempt=2)
        assert status.restarts == 1
        await scene.finish("Cancelled", restarts=1, executions=2)
        told = scene.audit.check_deletions()
        print(f"MEASURED {told} deletions with a uid precondition, none without")
        assert told >= 4


async def test_what_a_starting_api_server_forbids_is_no_refusal(own_stack: Stack, tmp_path: Path):
    """Until it has read all roles, an API server forbids what it will allow a second later."""
    async with open_scene(own_stack, tmp_path) as scene:
        made = await scene.site.kube.create(
            {
                "apiVersion": "v1",
                "kind": "ResourceQuota",
                "metadata": {"name": "jobs", "namespace": scene.namespace},
                "spec": {"hard": {"count/jobs.batch": "0"}},
            }
        )
        for index in range(MANY):
            await scene.submit(job(f"w{index}", 1), name=f"w{index}", **PATIENT)
        refused: set[str] = set()

        async def all_refused() -> bool:
            for each in scene.audit.requests(lambda one: one.worker and one.resource == "jobs" and one.code == 403):
                refused.add(each.name)
            return len(refused) == MANY

        await until(all_refused, 60, "each creation is held up by the quota")
        own_stack.stop_part("kube-apiserver", signal.SIGKILL)
        await asyncio.to_thread(own_stack.start_part, "kube-apiserver")
        await scene.site.ready(scene.worker)
        await scene.site.kube.delete("v1", "ResourceQuota", "jobs", scene.namespace, uid=made["metadata"]["uid"])
        for handle in scene.handles:
            status = await scene.site.reach(handle, "Running")
            assert (status.attempt, status.restarts) == (1, 0), status.model_dump_json(indent=1)
        early = scene.audit.requests(lambda one: one.worker and one.code == 403 and one.resource != "jobs")
        early += scene.audit.requests(lambda one: one.worker and one.code == 403 and "User" in one.why)
        print(f"MEASURED {len(early)} requests forbidden by an API server that was starting")
        for handle in scene.handles:
            await handle.signal(names.SIGNAL_CANCEL, "the test is over")
        await asyncio.gather(*(asyncio.wait_for(handle.result(), 90) for handle in scene.handles))
        await scene.gone()


async def test_a_worker_that_reaches_another_cluster_by_the_same_name_refuses(
    stack: Stack, own_stack: Stack, tmp_path: Path
):
    async with open_site(stack, tmp_path, prefix="c") as site:
        await site.start_worker()
        wrong = site.launch(kubeconfig=worker_kubeconfig(own_stack))

        async def ended() -> bool:
            return wrong.process.poll() is not None

        await until(ended, 30, "the worker ends by itself")
        told = wrong.log.read_text()
        assert wrong.process.returncode == 2, told
        for part in (
            await _uid(site, stack),
            await _uid(site, own_stack),
            site.cluster,
            "give this cluster another name",
        ):
            assert part in told, told
        assert "Traceback" not in told


async def _uid(site: Site, stack: Stack) -> str:
    return stack.kubectl("get", "namespace", "kube-system", "-o", "jsonpath={.metadata.uid}").strip()
