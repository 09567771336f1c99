"""The live look on a real cluster (rows A2, A3, A6, A7, A18; U1)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from holdfast import names
from holdfast.activities.kube.client import Forbidden, Kube, KubeError, Object, Unreachable
from holdfast.model import FailureClass, Observation
from tests.activities.bench import Bench, config, deployment, eventually, job, pod
from tests.activities.line import Line

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(60)]

FAIL: dict[str, Any] = {"annotations": {"holdfast.dev/kwok-fail": "0s", "holdfast.dev/kwok-exit-code": "3"}}
COMPLETE: dict[str, Any] = {"annotations": {"holdfast.dev/kwok-complete": "0s"}}


async def until(bench: Bench, what: Any) -> Observation:
    async def probe() -> Observation | None:
        seen = await bench.observe()
        return seen if what(seen) else None

    return await eventually(probe)


async def test_a_running_attempt(bench: Bench):
    bench.components = (config(), job(), deployment(), pod())
    await bench.launch()
    seen = await bench.observe()
    assert seen.live
    assert seen.owner_found
    assert seen.owner_uid == bench.owner_uid
    assert {name: view.found for name, view in seen.components.items()} == dict.fromkeys(
        ("settings", "work", "serve", "solo"), True
    )
    assert (seen.pods.running, seen.pods.expected) == (5, 5)
    assert seen.failures == ()
    assert not seen.complete
    assert [view.uid for view in seen.components.values()] == [one.uid for one in bench.objects]


async def test_versions_only_rise(bench: Bench):
    await bench.launch()
    first = await bench.observe()
    (victim, *_) = await bench.pods()
    metadata = victim["metadata"]
    await bench.admin.delete("v1", "Pod", metadata["name"], bench.namespace, uid=metadata["uid"], grace_period=0)
    second = await bench.observe()
    assert second.newer_than(first)
    assert second.revision > first.revision


async def test_A2_a_finished_attempt(bench: Bench):
    bench.components = (config(), job(**COMPLETE), pod(**COMPLETE))
    await bench.prepare()
    await bench.create()
    seen = await until(bench, lambda seen: seen.complete)
    assert seen.pods.succeeded == 3


async def test_A3_a_failed_pod(bench: Bench):
    bench.components = (pod(**FAIL),)
    await bench.prepare()
    await bench.create()
    seen = await until(bench, lambda seen: seen.failures)
    (one,) = seen.failures
    assert (one.cls, one.exit_code, one.subject, one.component) == (FailureClass.APP, 3, "solo", "solo")
    assert one.node.startswith("fake-")


async def test_A7_a_job_that_has_failed(bench: Bench):
    work = job(pods=1, **FAIL)
    work.template["spec"]["backoffLimit"] = 0
    bench.components = (work,)
    await bench.prepare()
    await bench.create()
    seen = await until(bench, lambda seen: seen.components["work"].failed)
    assert "BackoffLimitExceeded" in {one.reason for one in seen.failures}


async def test_A18_a_failed_pod_its_job_has_replaced_does_not_count(bench: Bench):
    work = job(pods=1)
    work.template["spec"]["podReplacementPolicy"] = "Failed"
    bench.components = (work,)
    await bench.launch()
    (victim,) = await bench.pods()
    await bench.admin.patch(
        "v1",
        "Pod",
        victim["metadata"]["name"],
        bench.namespace,
        uid=victim["metadata"]["uid"],
        patch={"metadata": FAIL},
    )
    await until(bench, lambda seen: seen.pods.failed == 1)

    async def replaced() -> bool:
        return len(await bench.pods()) == 2

    await eventually(replaced, 40.0)
    seen = await until(bench, lambda seen: seen.pods.running == 1)
    assert (seen.pods.failed, seen.failures) == (0, ())


async def test_A6_a_component_that_was_deleted(bench: Bench):
    bench.components = (config(), job())
    await bench.launch()
    found = await bench.admin.get("v1", "ConfigMap", "settings", bench.namespace)
    await bench.admin.delete("v1", "ConfigMap", "settings", bench.namespace, uid=found["metadata"]["uid"])
    assert (await bench.observe()).missing == ("settings",)


async def test_A6_what_is_still_to_be_created_is_not_missing(bench: Bench):
    bench.components = (config(), job())
    await bench.prepare()
    await bench.create(components=(config(), job().model_copy(update={"template": {**job().template, "kind": "Nope"}})))
    seen = await bench.observe()
    assert (seen.missing, seen.failures, seen.complete) == ((), (), False)


async def test_an_owner_that_is_going_or_gone_is_told(bench: Bench):
    bench.components = (job(labels={"holdfast.dev/kwok-stubborn": "true"}),)
    await bench.launch()
    await bench.remove(0.5)
    seen = await bench.observe()
    assert (seen.owner_found, seen.owner_deleting, seen.missing) == (True, True, ())
    await bench.force_remove()
    assert not (await bench.observe()).owner_found


async def test_it_reads_with_its_own_eyes_what_the_account_may_no_longer_read(bench: Bench):
    await bench.launch()
    key = ("rbac.authorization.k8s.io/v1", "RoleBinding", names.RUN_AS_DEFAULT, bench.namespace)
    binding = await bench.admin.get(*key)
    await bench.admin.delete(*key, uid=binding["metadata"]["uid"])
    assert (await bench.observe()).components["work"].found


@pytest.mark.parametrize(
    ("unreadable", "error"),
    [
        ("ConfigMap", Forbidden(403, "Forbidden", "no")),
        ("ConfigMap", Unreachable(500, "", "conversion failed")),
        ("Job", Forbidden(403, "Forbidden", "no")),
    ],
)
async def test_a_kind_that_cannot_be_read_is_taken_to_be_there(bench: Bench, unreadable: str, error: KubeError):
    bench.components = (config(), job())
    await bench.launch()
    before = bench.kube.get

    async def get(api_version: str, kind: str, *where: str, **options: Any) -> Object:
        if kind == unreadable:
            raise error
        return await before(api_version, kind, *where, **options)

    bench.kube.get = get  # type: ignore[method-assign]
    seen = await asyncio.wait_for(bench.observe(), 20.0)
    assert (seen.missing, seen.failures, seen.pods.running) == ((), (), 2)


async def test_U1_while_the_cluster_does_not_answer_it_goes_on_trying_and_tells_since_when(
    far_kube: Kube, admin: Kube, namespace: str, line: Line
):
    bench = await Bench.make(far_kube, admin, namespace)
    await bench.launch()
    line.hold()
    task = asyncio.create_task(bench.observe())
    await asyncio.sleep(3.0)
    assert not task.done()
    line.mend()
    seen = await task
    assert seen.pods.running == 2
    assert seen.failures == ()
    dark = sum((one.end - one.begin).total_seconds() for one in seen.blind)
    assert 2.0 < dark < 10.0


async def test_another_cluster_is_not_looked_at(bench: Bench):
    target = bench.target.model_copy(update={"cluster_uid": "other"})
    with pytest.raises(ApplicationError) as caught:
        await bench.observe(target=target)
    assert caught.value.type == names.ERROR_CLUSTER_MISMATCH
