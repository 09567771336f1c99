"""The ways in, on the real cluster: the `holdfast` command, the `temporal` CLI, plain `temporalio`, the client."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy

from holdfast import names
from holdfast.activities.kube.client import service_account_user
from holdfast.cli.cluster.checks import lacking
from holdfast.cli.cluster.rbac import granted
from holdfast.client import Holdfast
from holdfast.workflows.entities.cluster_watch import MEMO_CLUSTER_UID
from tests.e2e.crash.scene import own_temporal
from tests.e2e.ground.site import Site, appwrapper, asked, free_port, job, open_site, until
from tests.e2e.ground.terminal import command, examined
from tests.project.compose import worker_service

pytestmark = pytest.mark.e2e


async def test_the_command_line_from_submit_to_the_end(site: Site, tmp_path: Path):
    namespace = await site.namespace()
    file = tmp_path / "train.yaml"
    file.write_text(yaml.safe_dump(appwrapper("train-llm", job())))
    name = f"{namespace}/train-llm"
    assert "train-llm" in await command(site, "validate", str(file))
    document = json.loads(await command(site, "submit", str(file), "-n", namespace, "--dry-run", "-o", "json"))
    assert document["name"] == "train-llm"
    await command(site, "submit", str(file), "-n", namespace)
    await command(site, "submit", str(file), "-n", namespace)  # the same again is the same run
    handle = site.client.get_workflow_handle(names.workflow_id(site.cluster, namespace, "train-llm"))
    await site.reach(handle, "Running")

    async def listed() -> bool:
        return "Running" in await command(site, "list")

    await until(listed, 30, "the list, which is a moment behind, says that it runs")
    assert json.loads(await command(site, "status", name, "-o", "json"))["status"]["phase"] == "Running"
    assert "2 of 2 pods run" in await command(site, "explain", name)
    await command(site, "suspend", name, "--wait", "--reason", "make room")
    assert await site.pods(namespace) == []
    assert "Suspended" in await command(site, "status", name)
    await command(site, "resume", name, "--wait")
    await site.reach(handle, "Running", attempt=2)
    await command(site, "preempt", name, "--wait", "--reason", "a larger job")
    assert "preempted: a larger job" in await command(site, "explain", name)
    await command(site, "resume", name, "--wait")
    assert "make room" in await command(site, "history", name)
    await command(site, "cancel", name, "--wait")
    await until(lambda: site.gone(namespace), 30, "all is gone")
    await command(site, "submit", str(file), "-n", namespace, expect=2)
    await command(site, "submit", str(file), "-n", namespace, "--again")
    await command(site, "cancel", name, "--wait")
    await command(site, "status", f"{namespace}/nobody", expect=2)


async def test_another_document_of_that_name_is_a_conflict_and_a_failed_workload_is_exit_code_1(
    site: Site, tmp_path: Path
):
    namespace = await site.namespace()
    file = tmp_path / "train.yaml"
    file.write_text(yaml.safe_dump(appwrapper("train-llm", job(), retryLimit="0", failureGracePeriodDuration="0s")))
    await command(site, "submit", str(file), "-n", namespace)
    file.write_text(yaml.safe_dump(appwrapper("train-llm", job(pods=3))))
    await command(site, "submit", str(file), "-n", namespace, expect=2)
    handle = site.client.get_workflow_handle(names.workflow_id(site.cluster, namespace, "train-llm"))
    await site.reach(handle, "Running")
    await site.fail_pod(namespace, exit_code=3)
    await command(site, "watch", f"{namespace}/train-llm", expect=1)


async def test_the_doctor_finds_nothing_to_mend_where_all_is_well(site: Site):
    namespace = await site.namespace()
    told = await examined(site)
    assert all(check["good"] for check in told), told
    assert f"namespace {namespace}" in {check["name"] for check in told}


async def test_the_doctor_asks_about_all_that_deploy_grants(site: Site):
    """Asked of an account that was granted nothing it names every right, those to leases, nodes and Events too."""
    namespace = await site.namespace()
    nobody = service_account_user(namespace, "default")
    found = {str(right) for right in await lacking(site.kube, granted(), nobody)}
    assert {"list leases", "patch nodes", "list events", "patch anchors/status"} <= found
    worker = service_account_user(names.WORKER_NAMESPACE, names.WORKER_SERVICE_ACCOUNT)
    assert await lacking(site.kube, granted(), worker) == []


async def test_nothing_but_temporalio_and_a_json_document(site: Site, tmp_path: Path):
    """Start, signal and query without importing Holdfast: plain payloads, plain names."""
    namespace = await site.namespace()
    file = tmp_path / "train.yaml"
    file.write_text(yaml.safe_dump(appwrapper("train-llm", job())))
    document: Any = json.loads(await command(site, "submit", str(file), "-n", namespace, "--dry-run", "-o", "json"))
    client = await Client.connect(site.temporal_address, namespace=site.cluster)
    handle = await client.start_workflow(
        "Workload", document, id=f"workload/{site.cluster}/{namespace}/train-llm", task_queue="holdfast"
    )

    async def is_in(phase: str) -> bool:
        return (await asked(lambda: handle.query("status")))["phase"] == phase

    await until(lambda: is_in("Running"), 60, "running")
    await handle.signal("preempt", "a larger job needs the nodes")
    await until(lambda: is_in("Suspended"), 60, "suspended")
    assert (await asked(lambda: handle.query("explain")))["why"]
    await handle.signal("resume")
    await until(lambda: is_in("Running"), 60, "running again")
    await handle.signal("cancel", "enough")
    assert (await handle.result())["phase"] == "Cancelled"


async def test_the_temporal_cli_alone(site: Site, tmp_path: Path):
    namespace = await site.namespace()
    file = tmp_path / "train.yaml"
    file.write_text(yaml.safe_dump(appwrapper("train-llm", job())))
    document = await command(site, "submit", str(file), "-n", namespace, "--dry-run", "-o", "json")
    path = tmp_path / "train.json"
    path.write_text(document)
    identifier = f"workload/{site.cluster}/{namespace}/train-llm"

    async def temporal(*argv: str) -> str:
        argv = (*argv, "--address", site.temporal_address, "--namespace", site.cluster)
        done = await asyncio.to_thread(
            subprocess.run,
            [str(site.stack.binary("temporal")), *argv],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, f"{argv}: {done.stdout}\n{done.stderr}"
        return done.stdout

    start = ("workflow", "start", "--type", "Workload", "--task-queue", "holdfast")
    await temporal(*start, "--workflow-id", identifier, "--input-file", str(path))

    async def is_in(phase: str) -> bool:
        query = await temporal("workflow", "query", "--workflow-id", identifier, "--type", "status", "-o", "json")
        return f'"phase":"{phase}"' in query.replace(" ", "").replace("\n", "")

    await until(lambda: is_in("Running"), 60, "running")
    await temporal("workflow", "signal", "--workflow-id", identifier, "--name", "suspend", "--input", '"by hand"')
    await until(lambda: is_in("Suspended"), 60, "suspended")
    await temporal("workflow", "cancel", "--workflow-id", identifier)
    handle = site.client.get_workflow_handle(identifier)

    async def ended() -> bool:
        return (await handle.describe()).close_time is not None

    await until(ended, 60, "ended")
    await until(lambda: site.gone(namespace), 60, "all is gone")


async def test_the_typed_client(site: Site):
    namespace = await site.namespace()
    workload = site.read(appwrapper("train-llm", job(complete="2s"), successTTLDuration="1h"), namespace)
    async with Holdfast.connect(site.temporal_address, namespace=site.cluster, cluster=site.cluster) as holdfast:
        run = await holdfast.submit(workload)
        result = await asyncio.wait_for(run.result(), 60)
        assert result.phase == "Succeeded"
        second = await holdfast.submit(workload, again=True)
        assert second.uid != run.uid, "what the first run still held has made way"
        assert (await asyncio.wait_for(second.result(), 60)).phase == "Succeeded"
        await second.cancel(wait=True)
    await until(lambda: site.gone(namespace), 30, "all is gone")


async def test_the_workers_exact_command_line_from_the_compose_file(stack: Any, tmp_path: Path):
    async with open_site(stack, tmp_path) as site:
        service = worker_service({"HOLDFAST_CLUSTER": site.cluster, "KUBECONFIG": str(site.kubeconfig)})
        health = f"127.0.0.1:{free_port()}"
        inside = {
            "TEMPORAL_ADDRESS": site.temporal_address,
            "TEMPORAL_NAMESPACE": site.cluster,
            "KUBECONFIG": str(site.kubeconfig),
            "HOLDFAST_HEALTH_ADDRESS": health,
            "HOLDFAST_METRICS_ADDRESS": "127.0.0.1:0",
            "HOLDFAST_INSTALLATION": site.cluster,
        }
        assert service.command[0] == "holdfast"
        environment = service.environment | inside
        worker = site.launch(*service.command[2:], kubeconfig=None, **environment)
        worker.health = health
        await site.ready(worker)
        namespace = await site.namespace()
        handle = await site.submit(site.read(appwrapper("train-llm", job(complete="500ms")), namespace))
        assert (await asyncio.wait_for(handle.result(), 60)).phase == "Succeeded"
        assert worker.stop() == 0


async def test_a_versioned_worker_runs_workloads_once_its_version_is_current(stack: Any, tmp_path: Path):
    # Deployments are kept by Temporal's own workers, which the shared server goes without.
    async with own_temporal(stack, tmp_path) as own, open_site(stack, tmp_path, temporal_address=own.address) as site:
        await site.start_worker("--deployment-name", "holdfast", "--build-id", "one")

        async def current() -> bool:
            argv = [str(stack.binary("temporal")), "worker", "deployment", "set-current-version", "--yes"]
            argv += ["--deployment-name", "holdfast", "--build-id", "one"]
            argv += ["--address", site.temporal_address, "--namespace", site.cluster]
            done = await asyncio.to_thread(subprocess.run, argv, capture_output=True, check=False)
            return done.returncode == 0

        await until(current, 60, "the version is current")
        namespace = await site.namespace()
        handle = await site.submit(site.read(appwrapper("train-llm", job(complete="500ms")), namespace))
        assert (await asyncio.wait_for(handle.result(), 60)).phase == "Succeeded"


@pytest.mark.row("D51", level="e2e")
async def test_D51_the_doctor_says_that_a_name_stands_for_another_cluster(site: Site):
    told = await examined(site)
    assert [check["good"] for check in told if check["name"] == "cluster"] == [True]
    await site.client.start_workflow(
        "ClusterWatch",
        id=names.watch_workflow_id(site.cluster),
        task_queue=f"{names.queue_watch(site.cluster)}/nobody",
        memo={MEMO_CLUSTER_UID: "0000"},
        id_conflict_policy=WorkflowIDConflictPolicy.TERMINATE_EXISTING,
    )
    (found,) = [check for check in await examined(site) if check["name"] == "cluster"]
    assert not found["good"]
    assert f"{site.cluster} stands for the cluster of uid 0000" in found["found"]
