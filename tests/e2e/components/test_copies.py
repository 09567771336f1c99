"""Copies of a component end to end: one component of n Jobs, made, failed, lost and removed as one."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from holdfast import names
from holdfast.model import OperationKind
from tests.e2e.ground.site import job, until
from tests.e2e.ground.space import Handle, Space

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
SHARED = pytest.mark.asyncio(loop_scope="session")
TIMINGS = {
    "failureGracePeriod": "1s",
    "admissionGracePeriod": "60s",
    "warmupGracePeriod": "120s",
    "forcefulDeletionGracePeriod": "5s",
}
LABELS = {
    "example.com/index": {"word": "Index"},
    "example.com/global-index": {"word": "Index", "offset": 4},
    "example.com/name": {"word": "Name"},
    "example.com/uid": {"word": "WorkloadUid"},
    "example.com/attempt": {"word": "Attempt"},
}
ALONE = {"name": "alone", "match": {"components": ["workers"]}, "action": {"unit": "Component", "grace": False}}


def document(copies: int = 3, *rules: dict[str, Any], pods: int = 1) -> str:
    """Return our own document: so many Jobs of one template, and one Job beside them."""
    return yaml.safe_dump(
        {
            "apiVersion": names.API_VERSION,
            "kind": "Workload",
            "metadata": {"name": "train"},
            "spec": {
                "components": [
                    {"name": "workers", **job("workers", pods), "copies": copies, "copyLabels": LABELS},
                    {"name": "driver", **job("driver", 1)},
                ],
                "policy": {
                    "timings": {**TIMINGS, "retryPausePeriod": "0s", "successTtl": "1s"},
                    "rules": list(rules),
                    "budgets": [{"name": "restart", "limit": 3}],
                    "default": {"charge": "restart", "grace": False},
                },
            },
        }
    )


async def jobs(space: Space) -> dict[str, dict[str, Any]]:
    labels = f"{names.LABEL_COMPONENT}=workers"
    return {
        one["metadata"]["name"]: one for one in await space.site.objects("batch/v1", "Job", space.namespace, labels)
    }


async def uids(space: Space) -> dict[str, str]:
    return {name: one["metadata"]["uid"] for name, one in (await jobs(space)).items()}


async def fail(space: Space, index: int) -> None:
    """Make a pod of one copy fail, and with it its Job."""
    labels = f"{names.LABEL_COMPONENT}=workers,{names.LABEL_COPY}={index}"
    (pod,) = await space.site.objects("v1", "Pod", space.namespace, labels)
    await space.site.annotate("Pod", pod["metadata"]["name"], space.namespace, kwok_exit_code="3", kwok_fail="0s")


async def all_of(space: Space, label: str, value: str, count: int) -> None:
    """Wait until there are so many Jobs, all with this label."""

    async def are() -> bool:
        found = await jobs(space)
        return [one["metadata"]["labels"].get(label) for one in found.values()] == [value] * count

    await until(are, 120, f"{count} Jobs whose {label} is {value}")


async def causes(space: Space, handle: Handle) -> str:
    return "\n".join(f"{one.reason}: {one.message}" for one in (await space.site.status(handle)).causes)


def assert_named(found: dict[str, dict[str, Any]], copies: int, attempt: int) -> None:
    assert sorted(found) == sorted(f"workers-{index}" for index in range(copies))
    for index in range(copies):
        made = found[f"workers-{index}"]
        values = {
            "example.com/index": str(index),
            "example.com/global-index": str(index + 4),
            "example.com/name": f"workers-{index}",
            "example.com/uid": made["metadata"]["labels"][names.LABEL_WORKLOAD_UID],
            "example.com/attempt": str(attempt),
        }
        for metadata in (made["metadata"], made["spec"]["template"]["metadata"]):
            assert values.items() <= metadata["labels"].items()
            assert values.items() <= metadata["annotations"].items()


@SHARED
async def test_each_copy_has_its_name_and_labels_and_all_together_succeed(space: Space):
    handle = await space.submit(document(3, pods=2))
    status = await space.reach(handle, "Running", 1)
    assert_named(await jobs(space), 3, 0)
    assert status.pods.expected == 7
    for pod in await space.pods("train"):
        labels = pod["metadata"]["labels"]
        if labels[names.LABEL_COMPONENT] == "workers":
            assert labels["example.com/name"] == labels["batch.kubernetes.io/job-name"]
    await space.complete("train")
    status = await space.ended(handle)
    assert (status.phase, status.restarts) == ("Succeeded", 0)
    await until(lambda: space.site.gone(space.namespace), 60, "all is gone")
    space.truth.assert_one_attempt_at_a_time("train")


@SHARED
async def test_one_copys_failure_resets_all(space: Space):
    handle = await space.submit(document())
    await space.reach(handle, "Running", 1)
    before = await uids(space)
    await fail(space, 1)
    status = await space.reach(handle, "Running", 2)
    assert_named(await jobs(space), 3, 1)
    assert not set(before.values()) & set((await uids(space)).values())
    assert status.restarts == 1
    assert "workers-1" in await causes(space, handle)
    await space.truth.settle()
    space.truth.assert_one_attempt_at_a_time("train")


@SHARED
async def test_one_copys_failure_restarts_its_component_alone(space: Space):
    handle = await space.submit(document(3, ALONE))
    await space.reach(handle, "Running", 1)
    before = await uids(space)
    driver = (await space.site.kube.get("batch/v1", "Job", "driver", space.namespace))["metadata"]["uid"]
    await fail(space, 2)
    await all_of(space, "example.com/attempt", "1", 3)
    assert_named(await jobs(space), 3, 1)
    assert not set(before.values()) & set((await uids(space)).values())
    assert (await space.site.kube.get("batch/v1", "Job", "driver", space.namespace))["metadata"]["uid"] == driver

    async def well() -> bool:
        status = await space.site.status(handle)
        return (status.phase, status.reason, status.attempt) == ("Running", "SufficientPodsReady", 1)

    await until(well, 120, "all run again, of the same attempt")
    assert "workers-2" in await causes(space, handle)
    acts = [act.name for act in await space.acts(handle)]
    assert (acts.count(OperationKind.REPLACE), acts.count(OperationKind.REMOVE)) == (1, 0)


@SHARED
async def test_a_copy_that_another_hand_deleted_is_missing_by_its_name(space: Space):
    handle = await space.submit(document())
    await space.reach(handle, "Running", 1)
    await space.delete("batch/v1", "Job", "workers-0", propagation="Background")
    await space.reach(handle, "Running", 2)
    assert_named(await jobs(space), 3, 1)
    assert "Job workers-0 is gone" in await causes(space, handle)


@SHARED
async def test_removal_waits_for_every_copy(space: Space):
    handle = await space.submit(document())
    await space.reach(handle, "Running", 1)
    await space.finalize("batch/v1", "Job", "workers-1", "example.com/hold")
    await handle.signal(names.SIGNAL_SUSPEND, "making room")

    async def told() -> bool:
        explained = await space.explain(handle)
        return "workers-1" in str(explained.model_dump()) and (await uids(space)).keys() == {"workers-1"}

    await until(told, 90, "explain names the copy that is left")
    assert (await space.site.status(handle)).phase == "Suspending"
    await space.finalize("batch/v1", "Job", "workers-1")
    await space.reach(handle, "Suspended")
    assert await uids(space) == {}
    await handle.signal(names.SIGNAL_RESUME)
    await space.reach(handle, "Running", 2)
    assert_named(await jobs(space), 3, 0)  # A resumption is no restart.
