"""Pods that are late, or go: admission, warm-up and failure grace, each waited out in full (rows A4, A5, U13)."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

import pytest

from holdfast import names
from holdfast.activities.kube.client import NotFound
from holdfast.model import OperationKind, Status
from tests.e2e.ground.site import appwrapper, job, until
from tests.e2e.ground.space import PENDING, Handle, Space, pod_template
from tests.e2e.lives.streams import let_pods
from tests.e2e.rows.test_rows_reset import reset_at

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]
ROW = pytest.mark.row
COARSE = 1.0
"""Temporal and the API server tell their times apart by this much, in seconds."""


def deployment(name: str, pods: int = 2) -> dict[str, Any]:
    """Return an AppWrapper component that is a Deployment on fake nodes."""
    labels = {"app": name}
    template = pod_template(labels=labels)
    template["spec"]["restartPolicy"] = "Always"
    spec = {"replicas": pods, "selector": {"matchLabels": labels}, "template": template}
    return {"template": {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}}


def controlled(kind: str, name: str) -> dict[str, Any]:
    return job(name) if kind == "job" else deployment(name)


def submitted_at(space: Space, workload: str, attempt: int = 1) -> datetime:
    """When all components of an attempt existed, by the audit log."""
    return min(
        one.time
        for one in space.truth.requests()
        if (one.resource, one.subresource, one.name) == ("attempts", "status", names.attempt_name(workload, attempt))
    )


async def unhealthy_with(space: Space, handle: Handle, reason: str) -> None:
    """Wait until a workload is unhealthy for a reason, as it explains it itself."""
    words = {"PodsNotAdmitted": "were not created in time", "PodsNotRunning": "did not run in time"}

    async def check() -> bool:
        explanation = await space.explain(handle)
        return words.get(reason, "pods do not run") in explanation.why and "(rule late-pods)" in explanation.why

    await until(check, 60, f"{handle.id} is unhealthy: {reason}")


async def lift(space: Space) -> None:
    await space.delete("v1", "ResourceQuota", "pods")


def resets(status: Status) -> list[str]:
    return [each.message for each in status.causes if each.reason == "Resetting"]


@ROW("A4", level="e2e")
async def test_A4_pods_that_a_quota_blocks_get_admission_grace_then_failure_grace_then_a_reset(space: Space):
    await let_pods(space, 0)
    waits = {
        "admissionGracePeriodDuration": "5s",
        "failureGracePeriodDuration": "15s",
        "retryPausePeriodDuration": "6s",
    }

    async def live(kind: str) -> Handle:
        handle = await space.submit(appwrapper(kind, controlled(kind, kind), **waits))
        await unhealthy_with(space, handle, "PodsNotAdmitted")
        assert (await space.site.status(handle)).phase == "Resuming", "the failure grace is still to pass"
        await space.reach(handle, "Resetting", 1)
        return handle

    both = await asyncio.gather(live("job"), live("deployment"))
    assert not await space.pods()
    await lift(space)
    for kind, handle in zip(("job", "deployment"), both, strict=True):
        status = await space.reach(handle, "Running", 2)
        assert (status.restarts, [each.used for each in status.budgets]) == (1, [1])
        assert ["2 of 2 pods were not created in time" in text for text in resets(status)] == [True]
        waited = (reset_at(space, kind) - submitted_at(space, kind)).total_seconds()
        print(f"MEASURED {kind}: reset {waited:.1f} s after submission")
        assert waited >= 20 - COARSE, "both graces are waited out"
        await space.truth.settle()
        space.truth.assert_one_attempt_at_a_time(kind)
        space.truth.assert_told_truly(kind)


@ROW("A4", level="e2e")
@pytest.mark.parametrize("kind", ["job", "deployment"])
async def test_A4_a_quota_lifted_within_the_graces_disturbs_nothing(space: Space, kind: str):
    await let_pods(space, 0)
    waits = {"admissionGracePeriodDuration": "3s", "failureGracePeriodDuration": "120s"}
    handle = await space.submit(appwrapper("train", controlled(kind, "train"), **waits))
    await unhealthy_with(space, handle, "PodsNotAdmitted")
    await lift(space)
    status = await space.reach(handle, "Running", 1)
    assert (status.restarts, status.executions) == (0, 1)
    assert not any(one.status for one in status.conditions if one.type == "Unhealthy")
    assert not await space.acts(handle, OperationKind.REMOVE)
    assert space.truth.attempts("train") == [1]


@ROW("A5", level="e2e")
async def test_A5_pods_that_no_node_takes_get_warm_up_then_failure_grace_then_a_reset(space: Space):
    component = job()
    component["template"]["spec"]["template"]["spec"]["nodeSelector"] = {"example.com/nobody": space.namespace}
    waits = {"warmupGracePeriodDuration": "6s", "failureGracePeriodDuration": "15s"}
    handle = await space.submit(appwrapper("train", component, retryLimit="1", **waits))
    await unhealthy_with(space, handle, "PodsNotRunning")
    pending = await space.pods("train")
    assert [one["status"]["phase"] for one in pending] == ["Pending", "Pending"]
    assert not any(one["spec"].get("nodeName") for one in pending), "no node has taken them"
    status = await space.ended(handle)
    assert (status.phase, status.reason, status.restarts) == ("Failed", "RetryLimitExceeded", 1)
    assert ["2 of 2 pods did not run in time" in text for text in resets(status)] == [True]
    await space.truth.settle()
    for attempt in (1, 2):
        waited = (reset_at(space, "train", attempt) - submitted_at(space, "train", attempt)).total_seconds()
        print(f"MEASURED attempt {attempt}: removed {waited:.1f} s after submission")
        assert waited >= 21 - COARSE, "both graces are waited out"
    space.truth.assert_one_attempt_at_a_time("train")
    space.truth.assert_told_truly("train")


@ROW("A5", level="e2e")
async def test_A5_pods_that_start_within_the_failure_grace_are_left_undisturbed(space: Space):
    waits = {"warmupGracePeriodDuration": "3s", "failureGracePeriodDuration": "120s"}
    handle = await space.submit(appwrapper("train", job(labels=PENDING), **waits))
    await unhealthy_with(space, handle, "PodsNotRunning")
    for each in await space.pods("train"):
        gone = {"metadata": {"labels": dict.fromkeys(PENDING)}}
        await space.patch("v1", "Pod", each["metadata"]["name"], gone)
    status = await space.reach(handle, "Running", 1)
    assert (status.restarts, status.executions) == (0, 1)
    assert not await space.acts(handle, OperationKind.REMOVE)


async def evict(space: Space, workload: str) -> str:
    """Evict one of a workload's pods through the API that drains use, and return its name."""
    name = (await space.pods(workload))[0]["metadata"]["name"]
    path = f"/api/v1/namespaces/{space.namespace}/pods/{name}/eviction"
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": space.namespace}}
    await space.site.kube._request("POST", path, body=body)
    return name


async def evicted_and_not_made_again(space: Space, grace: str) -> Handle:
    """Have a workload of two replicas lose one, well after warm-up, where a quota keeps its controller from another."""
    waits = {
        "warmupGracePeriodDuration": "2s",
        "failureGracePeriodDuration": grace,
        "retryPausePeriodDuration": "10s",  # So that Resetting is seen.
    }
    handle = await space.submit(appwrapper("serve", deployment("serve"), **waits))
    await space.reach(handle, "Running", 1)
    await asyncio.sleep(2.5)  # Warm-up itself.
    await let_pods(space, 1)
    lost = await evict(space, "serve")

    async def gone() -> bool:
        try:
            await space.site.kube.get("v1", "Pod", lost, space.namespace)
        except NotFound:
            return True
        return False

    await until(gone, 30, "the pod is evicted")
    await unhealthy_with(space, handle, "InsufficientPodsReady")
    return handle


@ROW("U13", level="e2e")
async def test_U13_one_evicted_replica_gets_the_failure_grace(space: Space):
    handle = await evicted_and_not_made_again(space, "120s")
    status = await space.site.status(handle)
    assert (status.phase, status.attempt, status.pods.running) == ("Running", 1, 1)
    await lift(space)

    async def healed() -> bool:
        status = await space.site.status(handle)
        return not any(one.type == "Unhealthy" and one.status for one in status.conditions)

    await until(healed, 90, "the Deployment has made another pod")
    status = await space.site.status(handle)
    assert (status.phase, status.attempt, status.restarts) == ("Running", 1, 0)
    assert not await space.acts(handle, OperationKind.REMOVE)
    assert len(await space.pods("serve")) == 2


@ROW("U13", level="e2e")
async def test_U13_a_replica_that_does_not_come_back_resets_once_that_grace_is_over(space: Space):
    handle = await evicted_and_not_made_again(space, "20s")
    since = (await space.explain(handle)).since
    await space.reach(handle, "Resetting", 1)
    await lift(space)
    status = await space.reach(handle, "Running", 2)
    assert status.restarts == 1
    assert ["1 of 2 pods do not run" in text for text in resets(status)] == [True]
    evicted = min(one.time for one in space.truth.requests() if (one.resource, one.subresource) == ("pods", "eviction"))
    waited = (reset_at(space, "serve") - evicted).total_seconds()
    print(f"MEASURED reset {waited:.1f} s after the eviction; running since {since}")
    assert waited >= 20 - COARSE
    await space.truth.settle()
    space.truth.assert_one_attempt_at_a_time("serve")
