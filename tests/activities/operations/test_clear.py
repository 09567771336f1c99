"""Clearing on a real cluster: what is still active at a workload's end goes, proven, and what has ended stays."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import names
from holdfast.activities.kube.client import Object
from holdfast.activities.objects.make import OWNER_GONE
from holdfast.model import Component, PodSet
from tests.activities.bench import Bench, config, eventually, job, pod_spec
from tests.activities.operations.test_replace import changes, finalize, said

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

HOLD = "example.com/hold"


def copied(copies: int = 3) -> Component:
    return job("w", 1).model_copy(update={"copies": copies})


def solo(name: str = "solo") -> Component:
    spec = pod_spec(nodeSelector={"holdfast.dev/node": "fake"})
    template = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    return Component(name=name, template=template, pod_sets=(PodSet(path="template"),))


async def uids(bench: Bench, kind: str = "Job") -> dict[str, str]:
    labels = f"{names.LABEL_WORKLOAD_UID}={bench.target.workload_uid}"
    api_version = "batch/v1" if kind == "Job" else "v1"
    found = (await bench.admin.list(api_version, kind, bench.namespace, labels=labels))["items"]
    return {one["metadata"]["name"]: one["metadata"]["uid"] for one in found}


async def pod_of(bench: Bench, job_name: str) -> Object:
    (pod,) = [one for one in await bench.pods() if one["metadata"]["ownerReferences"][0]["name"] == job_name]
    return pod


async def end(bench: Bench, job_name: str) -> None:
    """Let a Job's pod end well, and wait until the Job says that it is complete."""
    metadata = (await pod_of(bench, job_name))["metadata"]
    patch = {"metadata": {"annotations": {"holdfast.dev/kwok-complete": "0s"}}}
    await bench.admin.patch("v1", "Pod", metadata["name"], bench.namespace, uid=metadata["uid"], patch=patch)

    async def complete() -> bool:
        found = await bench.admin.get("batch/v1", "Job", job_name, bench.namespace)
        conditions = found.get("status", {}).get("conditions") or []
        return any(one["type"] == "Complete" and one["status"] == "True" for one in conditions)

    await eventually(complete, 30)


@pytest.fixture
async def copies(bench: Bench) -> Bench:
    """Three copies of which the first has ended, a Job and a pod that run on, and a ConfigMap."""
    bench.components = (config(), copied(), job("driver", 1), solo())
    await bench.launch()
    await end(bench, "w-0")
    return bench


@pytest.mark.row("J12", level="e2e")
async def test_J12_what_has_ended_stays_and_what_is_active_goes_with_its_pods(copies: Bench):
    bench, before = copies, await uids(copies)
    settings = await uids(bench, "ConfigMap")
    kept = (await pod_of(bench, "w-0"))["metadata"]["uid"]
    made = changes(bench.kube)
    cleared = await bench.clear()
    assert cleared.done
    assert await uids(bench) == {"w-0": before["w-0"]}
    assert await uids(bench, "ConfigMap") == settings
    assert [one["metadata"]["uid"] for one in await bench.pods()] == [kept]
    deleted = {what: body for method, what, body in made if method == "DELETE"}
    assert sorted(deleted) == ["jobs/driver", "jobs/w-1", "jobs/w-2", "pods/solo"]
    assert all({"uid", "resourceVersion"} == set(body["preconditions"]) for body in deleted.values())
    seen = cleared.seen
    assert seen is not None
    assert (seen.missing, seen.failures, seen.occupies) == ((), (), False), "what was deleted is not missed"
    counts = seen.components["w"].copies
    assert counts is not None
    assert (counts.succeeded, counts.active, counts.ready) == (1, 0, 0)
    owner = await bench.owner()
    assert owner is not None
    assert owner["metadata"]["annotations"][names.ANNOTATION_ENDED] == "true"


async def test_a_second_try_finds_it_done(copies: Bench):
    assert (await copies.clear()).done
    before = await uids(copies)
    made = changes(copies.kube)
    assert (await copies.clear(tries=2)).done
    assert (await uids(copies), [what for _, what, _ in made]) == (before, [])


async def test_J12_a_foreign_finalizer_is_named_and_the_time_may_be_over_before_it_is_gone(copies: Bench):
    bench = copies
    held = (await pod_of(bench, "w-1"))["metadata"]["name"]
    await finalize(bench, held, HOLD, *(["batch.kubernetes.io/job-tracking"]))
    cleared = await bench.clear(until=datetime.now(UTC) + timedelta(seconds=3), grace=0.5)
    assert not cleared.done
    assert "w-1" in await uids(bench)
    assert any(HOLD in line for one in bench.heartbeats for line in one["remaining"])
    task = asyncio.create_task(bench.clear())
    await eventually(lambda: said(bench, "waiting for what was still active to go"))
    await finalize(bench, held)
    assert (await task).done
    assert set(await uids(bench)) == {"w-0"}


async def test_nothing_is_made_any_more_under_an_attempt_that_has_ended(copies: Bench):
    """A worker that was taken over from and goes on late."""
    bench = copies
    assert (await bench.clear()).done
    before = await uids(bench)
    made = changes(bench.kube)
    replaced = await bench.replace(launches={"driver": 1, "solo": 1})
    assert replaced.failure is not None
    assert replaced.failure.reason == OWNER_GONE
    created = await bench.create(patience=0.0)
    assert created.failure is not None
    assert created.failure.reason == OWNER_GONE
    assert (await uids(bench), [what for _, what, _ in made]) == (before, [])


async def test_another_ones_object_under_a_planned_name_is_left_alone(copies: Bench):
    bench = copies
    metadata = (await bench.admin.get("batch/v1", "Job", "driver", bench.namespace))["metadata"]
    patch: dict[str, Any] = {"metadata": {"ownerReferences": None}}
    await bench.admin.patch("batch/v1", "Job", "driver", bench.namespace, uid=metadata["uid"], patch=patch)
    made = changes(bench.kube)
    cleared = await bench.clear(until=datetime.now(UTC) + timedelta(seconds=4))
    assert cleared.done, "its pod bears our labels, and is another's all the same (row D26)"
    assert cleared.seen is not None
    assert cleared.seen.foreign == ("1 pod of Job driver",)
    assert "jobs/driver" not in [what for _, what, _ in made]
