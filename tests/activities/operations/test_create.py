"""Creation on a real cluster: in order, once, as the run-as account, and never over what is another's (row A1)."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast import names
from holdfast.activities.kube.client import Kube, Object
from holdfast.activities.objects.make import OWNER_GONE
from holdfast.model import Component, FailureClass, PodSet, Scope
from tests.activities.bench import Bench, config, deployment, eventually, job, pod
from tests.activities.line import Line
from tests.quotas import limited

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

QUOTA = {"count/jobs.batch": "0"}


def calls(kube: Kube) -> list[tuple[str, str, str]]:
    """Record every change a client makes: method, path, as whom."""
    made: list[tuple[str, str, str]] = []
    before = kube.mutate

    async def mutate(method: str, path: str, **options: Any) -> Object:
        made.append((method, path, options.get("impersonate", "")))
        return await before(method, path, **options)

    kube.mutate = mutate  # type: ignore[method-assign]
    return made


async def test_A1_all_components_are_created_in_order_as_the_account(bench: Bench):
    bench.components = (config(), job(), deployment(), pod())
    await bench.prepare()
    made = calls(bench.kube)
    created = await bench.create()
    assert created.failure is None
    assert [(one.kind, one.name) for one in created.objects] == [
        ("ConfigMap", "settings"),
        ("Job", "work"),
        ("Deployment", "serve"),
        ("Pod", "solo"),
    ]
    account = f"system:serviceaccount:{bench.namespace}:{names.RUN_AS_DEFAULT}"
    posts = [(path.rpartition("/")[2], user) for method, path, user in made if method == "POST"]
    assert posts == [("configmaps", account), ("jobs", account), ("deployments", account), ("pods", account)]
    owner = await bench.owner()
    assert owner is not None
    assert owner["status"]["submitted"] is True
    for one in created.objects:
        found = await bench.admin.get(one.api_version, one.kind, one.name, bench.namespace)
        assert found["metadata"]["uid"] == one.uid
        assert found["metadata"]["ownerReferences"][0]["uid"] == bench.owner_uid


async def test_A1_pods_carry_what_is_needed_to_find_them(bench: Bench):
    bench.components = (job(pods=3),)
    await bench.launch()
    for one in await bench.pods():
        labels = one["metadata"]["labels"]
        assert (labels[names.LABEL_ATTEMPT], labels[names.LABEL_COMPONENT], labels["team"]) == ("1", "work", "blue")
        environment = {entry["name"]: entry["value"] for entry in one["spec"]["containers"][0]["env"]}
        assert environment == {names.ENV_ATTEMPT: "1", names.ENV_WORKLOAD_UID: bench.target.workload_uid}
    assert len(await bench.pods()) == 3


async def test_a_second_time_creates_nothing(bench: Bench):
    bench.components = (config(), job())
    await bench.prepare()
    first = await bench.create()
    assert (await bench.create()).objects == first.objects


async def test_a_half_done_creation_is_completed(bench: Bench):
    bench.components = (config(), job())
    await bench.prepare()
    half = await bench.create(components=(config(),))
    whole = await bench.create()
    assert whole.objects[:1] == half.objects
    assert len(whole.objects) == 2


async def test_nothing_more_is_created_once_the_owner_is_going(bench: Bench):
    """As a worker does that has lost its lease without knowing: another removes the attempt meanwhile."""
    bench.components = (config(), job(), pod())
    await bench.prepare()
    made: list[str] = []
    before = bench.kube.mutate

    async def mutate(method: str, path: str, **options: Any) -> Object:
        answer = await before(method, path, **options)
        if method == "POST" and not path.endswith("/events"):
            made.append(path.rpartition("/")[2])
            name = names.attempt_name(bench.target.name, 1)
            key = (names.API_VERSION, names.ATTEMPT_KIND, name, bench.namespace)
            await bench.admin.delete(*key, uid=bench.owner_uid, propagation="Foreground")
        return answer

    bench.kube.mutate = mutate  # type: ignore[method-assign]
    created = await bench.create()
    assert created.failure is not None
    assert created.failure.reason == OWNER_GONE
    assert made == ["configmaps"]


async def test_a_generated_name_is_found_again(bench: Bench):
    template = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "part-"}}
    bench.components = (Component(name="part", template=template),)
    await bench.prepare()
    first = await bench.create()
    assert (await bench.create()).objects == first.objects
    assert first.objects[0].name == bench.plan[0].object_name


async def test_a_foreign_object_of_the_same_name_is_left_alone_and_named(bench: Bench):
    foreign = await bench.admin.create(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "namespace": bench.namespace}}
    )
    bench.components = (config(), job())
    await bench.prepare()
    created = await bench.create()
    assert created.failure is not None
    assert (created.failure.cls, created.failure.scope) == (FailureClass.LAUNCH, Scope.COMPONENT)
    assert (created.failure.reason, created.failure.component) == ("AlreadyExists", "settings")
    assert f"ConfigMap {bench.namespace}/settings is there already and is not ours" in created.failure.message
    assert (await bench.admin.get("v1", "ConfigMap", "settings", bench.namespace))["metadata"] == foreign["metadata"]
    assert await bench.admin.find("batch/v1", "Job", "work", bench.namespace) is None


async def test_an_object_of_ours_that_was_sent_otherwise_is_not_taken_for_it(bench: Bench):
    bench.components = (config(),)
    await bench.prepare()
    await bench.create()
    created = await bench.create(labels={"team": "red"})
    assert created.failure is not None
    assert "created with a different spec" in created.failure.message


@pytest.mark.row("D28", level="e2e")
async def test_D28_after_an_upgrade_an_object_of_the_same_template_is_adopted(bench: Bench):
    """Its sent hash is of what an earlier release added; what its user wrote is the same."""
    bench.components = (config(), job())
    hashes: dict[str, Any] = {"config_hashes": {"settings": "digest-1", "work": "digest-2"}}
    await bench.prepare()
    first = await bench.create(**hashes)
    for one in first.objects:
        change = {"metadata": {"annotations": {names.ANNOTATION_SENT_HASH: "of-an-earlier-release"}}}
        await bench.admin.patch(one.api_version, one.kind, one.name, bench.namespace, uid=one.uid, patch=change)
    again = await bench.create(**hashes)
    assert again.failure is None
    assert again.objects == first.objects
    other = await bench.create(config_hashes={"settings": "digest-1", "work": "digest-3"})
    assert other.failure is not None
    assert "Job" in other.failure.message
    assert "created with a different spec" in other.failure.message


async def test_an_object_that_is_being_deleted_is_waited_out(bench: Bench):
    held = {"name": "settings", "namespace": bench.namespace, "finalizers": ["example.com/hold"]}
    old = await bench.admin.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": held})
    key = ("v1", "ConfigMap", "settings", bench.namespace)
    await bench.admin.delete(*key, uid=old["metadata"]["uid"])
    bench.components = (config(),)
    await bench.prepare()
    task = asyncio.create_task(bench.create(patience=30.0))
    await eventually(lambda: said(bench, "still being deleted (finalizers: example.com/hold)"))
    await bench.admin.patch(*key, uid=old["metadata"]["uid"], patch={"metadata": {"finalizers": []}})
    created = await task
    assert created.failure is None
    assert created.objects[0].uid != old["metadata"]["uid"]


async def test_an_object_of_an_attempt_that_is_being_removed_is_waited_out(bench: Bench):
    """The collector has not come to it yet: here, because nothing but its owner's name says whose it was."""
    await bench.prepare()
    stale = {
        "apiVersion": names.API_VERSION,
        "kind": names.ATTEMPT_KIND,
        "metadata": {"name": "train-a9", "namespace": bench.namespace, "finalizers": ["example.com/hold"]},
        "spec": {"workloadUid": bench.target.workload_uid, "workflowId": "w", "attempt": 9},
    }
    owner = (await bench.admin.create(stale))["metadata"]
    reference = {"apiVersion": names.API_VERSION, "kind": names.ATTEMPT_KIND, "name": "train-a9", "uid": owner["uid"]}
    metadata = {"name": "settings", "namespace": bench.namespace, "ownerReferences": [reference]}
    old = await bench.admin.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    key = (names.API_VERSION, names.ATTEMPT_KIND, "train-a9", bench.namespace)
    await bench.admin.delete(*key, uid=owner["uid"], propagation="Background")
    bench.components = (config(),)
    task = asyncio.create_task(bench.create(patience=30.0))
    await eventually(lambda: said(bench, "belongs to attempt train-a9, which is being removed"))
    await bench.admin.patch(*key, uid=owner["uid"], patch={"metadata": {"finalizers": []}})
    created = await task
    assert created.failure is None
    assert created.objects[0].uid != old["metadata"]["uid"]


async def test_an_object_of_a_living_attempt_of_another_workload_is_named(bench: Bench):
    other = Bench(bench.kube, bench.admin, bench.namespace, bench.target.cluster_uid, name="other")
    other.components = bench.components = (config(),)
    await other.prepare()
    await other.create()
    await bench.prepare()
    created = await bench.create()
    assert created.failure is not None
    assert "it belongs to Attempt other-a1, workload other" in created.failure.message


async def test_a_used_up_quota_is_borne_until_it_is_free(bench: Bench):
    quota = await limited(bench.admin, bench.namespace, QUOTA)
    await bench.prepare()
    task = asyncio.create_task(bench.create(patience=30.0))
    await eventually(lambda: said(bench, "exceeded quota"))
    key = ("v1", "ResourceQuota", "limit", bench.namespace)
    await bench.admin.patch(*key, uid=quota["metadata"]["uid"], patch={"spec": {"hard": {"count/jobs.batch": "9"}}})
    assert (await task).failure is None


async def test_a_used_up_quota_is_a_failure_when_patience_ends(bench: Bench):
    await limited(bench.admin, bench.namespace, QUOTA)
    await bench.prepare()
    created = await bench.create(patience=1.5)
    assert created.failure is not None
    assert created.failure.reason == "QuotaExceeded"
    assert any(one["borne"] > 0 for one in bench.heartbeats)


async def test_patience_is_not_renewed_by_another_try(bench: Bench):
    await limited(bench.admin, bench.namespace, QUOTA)
    await bench.prepare()
    created = await asyncio.wait_for(bench.create(patience=30.0, earlier=[{"borne": 29.9}]), 20)
    assert created.failure is not None


async def test_an_invalid_object_is_a_failure_at_once(bench: Bench):
    bench.components = (pod(labels={"x": "not a label!"}),)
    await bench.prepare()
    created = await bench.create(patience=30.0)
    assert created.failure is not None
    assert created.failure.reason == "Invalid"
    assert "not a label!" in created.failure.message


async def test_a_forbidden_object_is_a_failure_at_once(bench: Bench):
    bench.components = (config(),)
    await bench.prepare()
    template = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "n"}, "spec": {}}
    created = await bench.create(components=(Component(name="net", template=template),), patience=30.0)
    assert created.failure is not None
    assert created.failure.reason == "Forbidden"


async def test_a_template_that_contradicts_what_is_added_is_a_failure_with_its_path(bench: Bench):
    plain = job()
    sets = (PodSet(path="template.spec.template", replicas=2, node_selector={"zone": "b"}),)
    template = {**plain.template}
    template["spec"]["template"]["spec"]["nodeSelector"] = {"zone": "a"}
    bench.components = (Component(name="work", template=template, pod_sets=sets),)
    await bench.prepare()
    created = await bench.create()
    assert created.failure is not None
    assert "template.spec.template.spec.nodeSelector[zone]" in created.failure.message


@pytest.mark.parametrize("how", ["gone", "dying", "replaced"])
async def test_nothing_is_created_under_an_owner_that_is_going(bench: Bench, how: str):
    await bench.prepare()
    key = (names.API_VERSION, names.ATTEMPT_KIND, "train-a1", bench.namespace)
    if how == "dying":
        hold = {"metadata": {"finalizers": ["example.com/hold"]}}
        await bench.admin.patch(*key, uid=bench.owner_uid, patch=hold)
    await bench.admin.delete(*key, uid=bench.owner_uid)
    if how == "replaced":
        stale = bench.owner_uid
        await bench.prepare()
        bench.owner_uid = stale
    made = calls(bench.kube)
    created = await bench.create()
    assert created.failure is not None
    assert (created.failure.cls, created.failure.reason) == (FailureClass.MISSING, OWNER_GONE)
    assert made == []
    owner = await bench.owner()
    if how == "dying" and owner is not None:
        await bench.admin.patch(*key, uid=bench.owner_uid, patch={"metadata": {"finalizers": []}})


async def test_what_comes_late_under_a_dead_owner_is_collected(bench: Bench):
    """A worker that lost its lease has one request in flight: it cannot be prevented, but it is collected."""
    bench.components = (config(),)
    await bench.prepare()
    before = bench.kube.mutate

    async def mutate(method: str, path: str, **options: Any) -> Object:
        if path.endswith("/configmaps"):
            key = (names.API_VERSION, names.ATTEMPT_KIND, "train-a1", bench.namespace)
            await bench.admin.delete(*key, uid=bench.owner_uid)
        return await before(method, path, **options)

    bench.kube.mutate = mutate  # type: ignore[method-assign]
    created = await bench.create()
    assert created.failure is not None
    assert created.failure.reason == OWNER_GONE

    async def collected() -> bool:
        return await bench.admin.find("v1", "ConfigMap", "settings", bench.namespace) is None

    await eventually(collected)


async def test_cancellation_stops_before_the_next_component(bench: Bench):
    bench.components = tuple(config(f"part-{n}") for n in range(50))
    await bench.prepare()
    made = calls(bench.kube)
    task = asyncio.create_task(bench.create())
    await eventually(lambda: enough(made, 3))
    assert bench.environment is not None
    bench.environment.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    count = len(made)
    await asyncio.sleep(0.3)
    assert len(made) == count < 50
    owner = await bench.owner()
    assert owner is not None
    assert not owner.get("status", {}).get("submitted")


async def test_a_cluster_that_does_not_answer_is_waited_for_without_losing_patience(
    far_kube: Kube, admin: Kube, namespace: str, line: Line
):
    bench = await Bench.make(far_kube, admin, namespace)
    await bench.prepare()
    line.hold()
    task = asyncio.create_task(bench.create(patience=0.1))
    await eventually(lambda: said(bench, "does not answer"))
    await asyncio.sleep(1.0)
    line.mend()
    created = await task
    assert created.failure is None
    assert all(one["borne"] == 0 for one in bench.heartbeats)
    assert far_kube.sight.intervals(datetime(2020, 1, 1, tzinfo=UTC))


async def said(bench: Bench, words: str) -> bool:
    return any(words in one["doing"] for one in bench.heartbeats)


async def enough(made: list[Any], count: int) -> bool:
    return len(made) >= count
