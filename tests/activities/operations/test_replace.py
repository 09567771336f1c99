"""Replacement on a real cluster: some components of a living attempt go, are proven gone, and come again, once."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from holdfast import names
from holdfast.activities.kube.client import Kube, Object
from holdfast.activities.objects.make import OWNER_GONE
from holdfast.model import Component, FailureClass, PodSet, Scope
from tests.activities.bench import Bench, config, eventually, job, pod_spec
from tests.activities.line import Line
from tests.quotas import limited

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(60)]

HOLD = "example.com/hold"


def element(name: str = "pe", reads: tuple[str, ...] = (), **metadata: Any) -> Component:
    """Return a bare pod on a fake node, and what it reads."""
    spec = pod_spec(nodeSelector={"holdfast.dev/node": "fake"})
    template = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **metadata}, "spec": spec}
    return Component(name=name, template=template, pod_sets=(PodSet(path="template"),), config=reads)


async def there(bench: Bench, name: str, kind: str = "Pod") -> Object:
    return await bench.admin.get("v1", kind, name, bench.namespace)


async def finalize(bench: Bench, name: str, *finalizers: str, kind: str = "Pod") -> None:
    uid = (await there(bench, name, kind))["metadata"]["uid"]
    patch = {"metadata": {"finalizers": list(finalizers)}}
    await bench.admin.patch("v1", kind, name, bench.namespace, uid=uid, patch=patch)


def changes(kube: Kube) -> list[tuple[str, str, dict[str, Any]]]:
    """Record every change of a component that a client makes: method, resource and name, body."""
    made: list[tuple[str, str, dict[str, Any]]] = []
    before = kube.mutate

    async def mutate(method: str, path: str, **options: Any) -> Object:
        body: dict[str, Any] = options.get("body") or {}
        if options.get("impersonate") or method == "DELETE":
            tail = path.split("/namespaces/")[1].split("/", 1)[1]
            made.append((method, f"{tail}/{body['metadata']['name']}" if method == "POST" else tail, body))
        return await before(method, path, **options)

    kube.mutate = mutate  # type: ignore[method-assign]
    return made


async def said(bench: Bench, words: str) -> bool:
    return any(words in one["doing"] for one in bench.heartbeats)


async def test_S7_one_pod_is_made_again_and_nothing_else_is_touched(bench: Bench):
    bench.components = (config(), element("a"), element("b"))
    await bench.launch()
    old, other, read = await there(bench, "a"), await there(bench, "b"), await there(bench, "settings", "ConfigMap")
    made = changes(bench.kube)
    replaced = await bench.replace(launches={"a": 3})
    assert replaced.failure is None
    assert [(method, what) for method, what, _ in made] == [("DELETE", "pods/a"), ("POST", "pods/a")]
    assert made[0][2]["preconditions"] == {"uid": old["metadata"]["uid"]}
    new = await there(bench, "a")
    assert [one.uid for one in replaced.objects] == [new["metadata"]["uid"]]
    assert new["metadata"]["uid"] != old["metadata"]["uid"]
    assert new["metadata"]["labels"] == {**old["metadata"]["labels"], names.LABEL_LAUNCH: "3"}
    assert new["metadata"]["ownerReferences"] == old["metadata"]["ownerReferences"]
    assert await there(bench, "b") == other
    assert await there(bench, "settings", "ConfigMap") == read


async def test_S7_one_that_was_deleted_is_only_made(bench: Bench):
    bench.components = (element("a"),)
    await bench.launch()
    uid = (await there(bench, "a"))["metadata"]["uid"]
    await bench.admin.delete("v1", "Pod", "a", bench.namespace, uid=uid)

    async def gone() -> bool:
        return await bench.admin.find("v1", "Pod", "a", bench.namespace) is None

    await eventually(gone)
    made = changes(bench.kube)
    assert (await bench.replace()).failure is None
    assert [(method, what) for method, what, _ in made] == [("POST", "pods/a")]


async def test_what_an_earlier_try_made_is_kept(bench: Bench):
    """A second try of a replacement is no interrupted submission: the launch on the pod says whose it is."""
    bench.components = (config(), element("a"), element("b"))
    await bench.launch()
    first = await bench.replace(launches={"a": 1, "b": 1}, components=(element("a"),))
    made = changes(bench.kube)
    second = await bench.replace(launches={"a": 1, "b": 1}, tries=2)
    assert second.failure is None
    assert second.objects[0] == first.objects[0]
    assert sorted((method, what) for method, what, _ in made) == [
        ("DELETE", "pods/b"),
        ("POST", "pods/a"),
        ("POST", "pods/b"),
    ], "a is only asked for again"
    assert (await there(bench, "a"))["metadata"]["uid"] == first.objects[0].uid


async def test_S8_what_a_broken_off_replacement_made_is_of_an_earlier_launch_and_goes(bench: Bench):
    bench.components = (element("a"),)
    await bench.launch()
    first = await bench.replace(launches={"a": 1}, config_hashes={"a": "old"})
    second = await bench.replace(launches={"a": 2}, config_hashes={"a": "new"})
    assert second.failure is None
    assert first.objects[0].uid != second.objects[0].uid
    found = (await there(bench, "a"))["metadata"]
    assert (found["labels"][names.LABEL_LAUNCH], found["annotations"][names.ANNOTATION_CONFIG_HASH]) == ("2", "new")


@pytest.mark.row("D17", level="e2e")
async def test_D17_what_waits_to_go_keeps_no_other_from_being_made(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("holdfast.activities.operations.replace.STANDSTILL", timedelta(seconds=0.5))
    bench.components = (element("a", finalizers=[HOLD]), element("b"))
    await bench.launch()
    replaced = await bench.replace(parts=True)
    assert (replaced.failure, replaced.left) == (None, ("a",))
    assert [one.uid for one in replaced.objects] == [(await there(bench, "b"))["metadata"]["uid"]]
    assert (await there(bench, "b"))["metadata"]["labels"][names.LABEL_LAUNCH] == "1"
    task = asyncio.create_task(bench.replace(launches={"a": 1}, parts=True))
    await eventually(lambda: said(bench, f"waiting for Pod a (finalizers {HOLD}) to go before it is made again"))
    await asyncio.sleep(1)
    assert not task.done(), "with nothing made there is nothing to come back with"
    await finalize(bench, "a")
    assert (await task).left == ()
    await finalize(bench, "a")


async def test_D17_pods_that_wait_to_go_hold_up_nothing_that_they_do_not_read(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("holdfast.activities.operations.replace.STANDSTILL", timedelta(seconds=5))
    bench.components = (config(), element("a", finalizers=[HOLD]), element("b", ("settings",)))
    await bench.launch()
    replaced = await bench.replace(parts=True)
    assert (replaced.failure, replaced.left) == (None, ("a",))
    assert {one.name for one in replaced.objects} == {"settings", "b"}
    await finalize(bench, "a")


async def test_a_workflow_that_knows_of_no_parts_gets_all_or_a_failure(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("holdfast.activities.operations.replace.STANDSTILL", timedelta(seconds=0.1))
    bench.components = (element("a", finalizers=[HOLD]), element("b"))
    await bench.launch()
    task = asyncio.create_task(bench.replace())
    await eventually(lambda: said(bench, f"waiting for Pod a (finalizers {HOLD}) to go before it is made again"))
    await asyncio.sleep(1)
    assert not task.done()
    await finalize(bench, "a")
    assert len((await task).objects) == 2
    await finalize(bench, "a")


async def test_S8_pods_go_before_what_they_read_and_that_is_there_before_they_come(bench: Bench):
    reads = ("settings",)
    bench.components = (config(), element("a", reads, finalizers=[HOLD]), element("b", reads))
    await bench.launch()
    made = changes(bench.kube)
    hashes = {"settings": "new", "a": "new", "b": "new"}
    task = asyncio.create_task(bench.replace(config_hashes=hashes))
    await eventually(lambda: said(bench, f"waiting for Pod a (finalizers {HOLD}) to go before it is made again"))
    await asyncio.sleep(0.5)
    assert sorted(what for _, what, _ in made) == ["pods/a", "pods/b"]
    await finalize(bench, "a")
    replaced = await task
    assert replaced.failure is None
    told = [(method, what) for method, what, _ in made[2:]]
    assert told[:2] == [("DELETE", "configmaps/settings"), ("POST", "configmaps/settings")]
    assert sorted(told[2:]) == [("POST", "pods/a"), ("POST", "pods/b")]
    assert all(body["propagationPolicy"] == "Foreground" for method, _, body in made if method == "DELETE")
    for name in ("a", "b"):
        assert (await there(bench, name))["metadata"]["annotations"][names.ANNOTATION_CONFIG_HASH] == "new"
    await finalize(bench, "a")


async def test_S7_a_foreign_pod_of_the_same_name_is_left_alone_and_named(bench: Bench):
    bench.components = (element("a"), element("b"))
    await bench.launch()
    uid = (await there(bench, "a"))["metadata"]["uid"]
    await bench.admin.delete("v1", "Pod", "a", bench.namespace, uid=uid, grace_period=0)
    document = {**element("a").template, "metadata": {"name": "a", "namespace": bench.namespace}}
    foreign = await eventually(lambda: _settled(bench, document))
    made = changes(bench.kube)
    replaced = await bench.replace(launches={"a": 1})
    assert replaced.failure is not None
    assert (replaced.failure.cls, replaced.failure.scope) == (FailureClass.LAUNCH, Scope.COMPONENT)
    assert (replaced.failure.reason, replaced.failure.component) == ("AlreadyExists", "a")
    assert f"Pod {bench.namespace}/a is there already and is not ours" in replaced.failure.message
    assert [method for method, _, _ in made] == ["POST"], "it was not deleted"
    assert (await there(bench, "a"))["metadata"]["uid"] == foreign["metadata"]["uid"]


async def _settled(bench: Bench, document: dict[str, Any]) -> Object | None:
    """Return a pod once it runs. What plays the kubelet may delete it first, for that of the same name before it."""
    found = await bench.admin.find("v1", "Pod", document["metadata"]["name"], bench.namespace)
    if found is None:
        await bench.admin.create(document)
    return found if found is not None and found["status"].get("phase") == "Running" else None


@pytest.mark.parametrize("how", ["gone", "dying"])
async def test_nothing_is_removed_or_made_under_an_owner_that_is_going(bench: Bench, how: str):
    bench.components = (element("a", finalizers=[HOLD]),)
    await bench.launch()
    key = (names.API_VERSION, names.ATTEMPT_KIND, "train-a1", bench.namespace)
    propagation = "Foreground" if how == "dying" else "Orphan"
    await bench.admin.delete(*key, uid=bench.owner_uid, propagation=propagation)

    async def going() -> bool:
        owner = await bench.owner()
        return owner is None if how == "gone" else owner is not None and "deletionTimestamp" in owner["metadata"]

    await eventually(going)
    made = changes(bench.kube)
    replaced = await bench.replace()
    assert replaced.failure is not None
    assert (replaced.failure.cls, replaced.failure.reason) == (FailureClass.MISSING, OWNER_GONE)
    assert made == []
    await finalize(bench, "a")


async def test_a_pod_that_does_not_end_by_itself_is_forced_after_its_grace(bench: Bench):
    bench.components = (element("a", labels={"holdfast.dev/kwok-stubborn": "true"}),)
    await bench.launch()
    made = changes(bench.kube)
    assert (await bench.replace(grace=1.0)).failure is None
    graces = [body.get("gracePeriodSeconds") for method, _, body in made if method == "DELETE"]
    assert graces == [None, 0]
    assert made[-1][:2] == ("POST", "pods/a")


async def test_a_controller_and_its_pods_go_before_it_comes_again(bench: Bench):
    bench.components = (job(pods=2),)
    await bench.launch()
    old = {one["metadata"]["uid"] for one in await bench.pods()}
    held = (await bench.pods())[0]["metadata"]["name"]
    await finalize(bench, held, HOLD, "batch.kubernetes.io/job-tracking")
    task = asyncio.create_task(bench.replace())
    await eventually(lambda: said(bench, "waiting for Job work and 1 Pod (finalizers"))
    assert not task.done()

    async def let_go() -> bool:
        await finalize(bench, held)
        return task.done() or await bench.admin.find("v1", "Pod", held, bench.namespace) is None

    await eventually(let_go)
    assert (await task).failure is None

    async def anew() -> bool:
        pods = await bench.pods()
        return len(pods) == 2 and {one["metadata"]["labels"][names.LABEL_LAUNCH] for one in pods} == {"1"}

    await eventually(anew)
    assert not old & {one["metadata"]["uid"] for one in await bench.pods()}


async def test_pods_that_a_deleted_controller_left_behind_go_before_it_comes_again(bench: Bench):
    """Another hand deleted the Job and let its pods live on: beside the next one's they would be too many."""
    bench.components = (job(pods=2),)
    await bench.launch()
    old = {one["metadata"]["uid"] for one in await bench.pods()}
    there_before = await bench.admin.get("batch/v1", "Job", "work", bench.namespace)
    uid = there_before["metadata"]["uid"]
    await bench.admin.delete("batch/v1", "Job", "work", bench.namespace, uid=uid, propagation="Orphan")

    async def orphaned() -> bool:
        return await bench.admin.find("batch/v1", "Job", "work", bench.namespace) is None

    await eventually(orphaned)
    assert {one["metadata"]["uid"] for one in await bench.pods()} == old
    before = bench.kube.mutate
    beside: list[set[str]] = []

    async def mutate(method: str, path: str, **options: Any) -> Object:
        if (method, path.rpartition("/")[2]) == ("POST", "jobs"):
            beside.append(old & {one["metadata"]["uid"] for one in await bench.pods()})
        return await before(method, path, **options)

    bench.kube.mutate = mutate  # type: ignore[method-assign]
    assert (await bench.replace(grace=1.0)).failure is None
    assert beside == [set()]


async def test_a_quota_is_borne_for_as_long_as_patience_lasts(bench: Bench):
    bench.components = (element("a"),)
    await bench.launch()
    quota = await limited(bench.admin, bench.namespace, {"pods": "0"})
    key = ("v1", "ResourceQuota", "limit", bench.namespace)
    replaced = await bench.replace(patience=1.0)
    assert replaced.failure is not None
    assert replaced.failure.reason == "QuotaExceeded"
    bench.heartbeats.clear()
    task = asyncio.create_task(bench.replace(patience=None))
    await eventually(lambda: said(bench, "exceeded quota"))
    patch = {"spec": {"hard": {"pods": "5"}}}
    await bench.admin.patch(*key, uid=quota["metadata"]["uid"], patch=patch)
    assert (await task).failure is None


async def test_a_cluster_that_does_not_answer_costs_a_pod_none_of_its_grace(
    far_kube: Kube, admin: Kube, namespace: str, line: Line
):
    bench = await Bench.make(far_kube, admin, namespace)
    bench.components = (element("a", finalizers=[HOLD]),)
    await bench.launch()
    made = changes(bench.kube)
    task = asyncio.create_task(bench.replace(grace=8.0))
    await eventually(lambda: said(bench, "to go before it is made again"))
    line.cut()
    await eventually(lambda: said(bench, "the API server does not answer"))
    await asyncio.sleep(8.5)
    line.mend()
    await asyncio.sleep(2.0)
    assert not [body for _, _, body in made if body.get("gracePeriodSeconds") == 0], "its grace begins anew"
    await finalize(bench, "a")
    assert (await task).failure is None
    await finalize(bench, "a")
