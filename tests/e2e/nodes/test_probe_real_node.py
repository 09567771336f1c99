"""Real HTTP servers in real containers are probed (rows L28, L29); a real kubelet that cannot launch (L16)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import names
from holdfast.local import Stack
from tests.e2e.crash.scene import Scene, open_scene
from tests.e2e.ground.held import real_node, require_real
from tests.e2e.ground.site import until
from tests.e2e.ground.space import Space
from tests.e2e.nodes.test_nodes import required
from tests.e2e.nodes.test_real_node import containers, real

pytestmark = [pytest.mark.e2e, pytest.mark.real_node, pytest.mark.timeout(600)]
ROW = pytest.mark.row
__all__ = ["real"]

ANSWERS = 'for a in $ANSWERS; do printf "HTTP/1.1 $a X\\r\\nContent-Length: 0\\r\\n\\r\\n" | nc -l -p 8080; done'
WELL = 'while :; do printf "HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\n\\r\\n" | nc -l -p 8080; done'


def service(answers: str, period: str = "3s") -> dict[str, Any]:
    """Return a service whose first attempt answers so, one answer a probe, and then well; later ones well at once."""
    script = f'if [ "$HOLDFAST_ATTEMPT" = 1 ]; then ANSWERS="{answers}"; {ANSWERS}; fi; {WELL}'
    spec = containers(script, terminationGracePeriodSeconds=1)
    return {
        "schemaVersion": 1,
        "name": "serve",
        "lifecycle": {"kind": "Unbounded"},
        "policy": {"profile": "lattice-service", "timings": {"retryPausePeriod": "1s"}},
        "probe": {
            "kind": "HTTP",
            "port": 8080,
            "path": "/healthz",
            "initialDelay": "1s",
            "period": period,
            "timeout": "3s",
        },
        "components": [
            {
                "name": "main",
                "template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "main"}, "spec": spec},
            }
        ],
    }


async def served(stack: Stack, namespace: str) -> int:
    """Return how many requests the pod has had."""
    logs = await asyncio.to_thread(stack.kubectl, "logs", "-n", namespace, "main")
    return logs.count("GET /healthz")


@pytest.mark.asyncio(loop_scope="session")
@ROW("L28", level="e2e")
async def test_L28_fail_fail_ok_fail_fail_survives(real: Space):
    handle = await real.submit(service("503 503 200 503 503"))
    await real.reach(handle, "Running", 1)

    async def asked() -> bool:
        return await served(real.site.stack, real.namespace) >= 7

    await until(asked, 120, "it has been asked seven times")
    status = await real.reach(handle, "Running", 1)
    assert (status.restarts, status.executions) == (0, 1)
    assert len(await real.acts(handle, names.ACTIVITY_PROBE)) == 1, "one activity, however many rounds"


@pytest.mark.asyncio(loop_scope="session")
@ROW("L28", level="e2e")
@ROW("L29", level="e2e")
async def test_L29_the_third_failure_in_a_row_requeues_the_service(real: Space):
    handle = await real.submit(service("503 503 200 503 503 503"))
    status = await real.reach(handle, "Running", 2, 180)
    assert (status.restarts, {each.name: each.used for each in status.budgets}["restart"]) == (1, 1)
    said = "main: ProbeFailed on real: GET :8080/healthz failed 3 times in a row: HTTP 503"
    assert any(said in each.message for each in status.causes)
    await real.truth.settle()
    real.truth.assert_one_attempt_at_a_time("serve")


async def counted(scene: Scene, failures: int) -> bool:
    """Whether the last heartbeat of the probe that Temporal has tells of so many failures in a row."""
    pending = (await scene.handle.describe()).raw_description.pending_activities
    details = [json.loads(one.heartbeat_details.payloads[0].data) for one in pending if one.heartbeat_details.payloads]
    return any(failures in (one.get("failing") or {}).values() for one in details)


@pytest.fixture
async def on_the_node(stack: Stack, tmp_path: Path) -> AsyncIterator[Scene]:
    async with open_scene(stack, tmp_path) as opened:
        await require_real(opened.site)
        async with real_node(stack):
            yield opened


@ROW("L28", level="e2e")
async def test_L28_a_worker_killed_with_9_keeps_the_count(on_the_node: Scene):
    """Only if the two failures before the kill are kept is the one after it the third: then it answers well again."""
    scene = on_the_node
    # The third answer is due long after the second is known to be counted, and the worker killed.
    workload = scene.site.read(service("200 503 503 503", period="10s"), scene.namespace)
    scene.handles.append(await scene.site.submit(workload))
    await scene.reach("Running")

    await until(lambda: counted(scene, 2), 120, "a heartbeat has brought the count of two failures")
    await scene.crash()
    status = await scene.reach("Running", attempt=2)
    assert (status.restarts, {each.name: each.used for each in status.budgets}) == (1, {"restart": 1, "launch": 0})
    assert any("failed 3 times in a row: HTTP 503" in each.message for each in status.causes)
    await scene.handle.signal(names.SIGNAL_CANCEL, "enough")
    assert (await scene.handle.result()).phase == "Cancelled"


@pytest.mark.asyncio(loop_scope="session")
@ROW("L16", level="e2e")
@pytest.mark.parametrize("how", ["image", "init", "mount"])
async def test_L16_what_a_real_kubelet_cannot_launch_is_tried_without_its_node(real: Space, how: str):
    spec = containers("sleep 1000")
    words = {"image": "ErrImagePull", "init": "exited 3", "mount": "FailedMount"}[how]
    match how:
        case "image":
            spec["containers"][0]["image"] = "holdfast.local/missing:1"
        case "init":
            spec["initContainers"] = [{**spec["containers"][0], "name": "fetch", "command": ["sh", "-c", "exit 3"]}]
        case _:
            spec["volumes"] = [{"name": "keys", "secret": {"secretName": "missing"}}]
            spec["containers"][0]["volumeMounts"] = [{"name": "keys", "mountPath": "/keys"}]
    job = {"backoffLimit": 0, "template": {"spec": spec}}
    document = service("")
    del document["probe"], document["lifecycle"]
    document["policy"] = {
        "profile": "lattice-batch",
        "timings": {"retryPausePeriod": "1s", "launchGracePeriod": "3s"},
    }
    template = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "main"}, "spec": job}
    document["components"] = [{"name": "main", "template": template}]
    handle = await real.submit(document)
    status = await real.reach(handle, "Resuming", 2, 240)
    assert (status.restarts, {each.name: each.used for each in status.budgets}) == (1, {"restart": 0, "launch": 1})
    (cause,) = [each.message for each in status.causes if "rule prologue" in each.message]
    assert words in cause
    assert cause.endswith("the next attempt must avoid real")
    await until(lambda: _created(real), 60, "the second Job is made")
    assert required(real, 2) == {"real"}


async def _created(space: Space) -> bool:
    jobs = await space.site.objects("batch/v1", "Job", space.namespace)
    return any(one["metadata"]["labels"].get(names.LABEL_ATTEMPT) == "2" for one in jobs)
