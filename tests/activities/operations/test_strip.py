"""Finalizers taken off on a real cluster, as was asked for: off what is ours and being deleted, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import names
from holdfast.activities.kube.client import Object
from holdfast.activities.operations.remains import foreign_finalizers
from tests.activities.bench import ROLE, Bench, config, job, pod
from tests.activities.operations.test_remove import HOLD, let_go, nothing_left

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(90)]


def patches(bench: Bench) -> list[tuple[str, Object, str]]:
    """Record every patch that the worker makes of what is no object of its own: path, body, as whom."""
    made: list[tuple[str, Object, str]] = []
    before = bench.kube.mutate

    async def mutate(method: str, path: str, **options: Any) -> Object:
        if method == "PATCH" and names.GROUP not in path and "/events" not in path:
            made.append((path.rpartition("/namespaces/")[2], options["body"], options.get("impersonate", "")))
        return await before(method, path, **options)

    bench.kube.mutate = mutate  # type: ignore[method-assign]
    return made


async def test_U2_pods_and_components_as_the_account_by_uid_and_version(bench: Bench):
    bench.components = (job(pods=1, finalizers=HOLD), config(metadata={"finalizers": HOLD}), pod(finalizers=HOLD))
    await bench.launch()
    uids = {one["metadata"]["name"]: one["metadata"]["uid"] for one in await bench.pods()}
    uids["settings"] = (await bench.admin.get("v1", "ConfigMap", "settings", bench.namespace))["metadata"]["uid"]
    made = patches(bench)
    assert not (await bench.force_remove(3.0)).gone
    assert not made, "nothing is stripped unasked"
    assert (await bench.force_remove(30.0, strip_finalizers=True)).gone
    await nothing_left(bench)
    account = f"system:serviceaccount:{bench.namespace}:{names.RUN_AS_DEFAULT}"
    assert {path.rpartition("/")[2] for path, _, _ in made} == set(uids)
    for path, body, user in made:
        assert user == account
        assert body["metadata"]["uid"] == uids[path.rpartition("/")[2]]
        assert body["metadata"]["resourceVersion"]
        assert set(body["metadata"]) == {"uid", "resourceVersion", "finalizers"}


def test_the_collectors_own_finalizers_are_none_of_somebody_elses():
    assert foreign_finalizers({"finalizers": ["foregroundDeletion", *HOLD, "orphan"]}) == (*HOLD,)
    assert foreign_finalizers({}) == ()


async def test_U2_holdfasts_own_is_left_on(bench: Bench):
    bench.components = (pod(finalizers=[*HOLD, names.FINALIZER]),)
    await bench.launch()
    (name,) = [one["metadata"]["name"] for one in await bench.pods()]
    try:
        assert not (await bench.force_remove(5.0, strip_finalizers=True)).gone
        (left,) = await bench.pods()
        assert left["metadata"]["finalizers"] == [names.FINALIZER]
    finally:
        await let_go(bench, "v1", "Pod", name)
    assert (await bench.force_remove()).gone


async def test_U2_what_is_anothers_or_is_not_being_deleted_keeps_its_finalizers(bench: Bench):
    bench.components = (pod(finalizers=HOLD),)
    await bench.launch()
    metadata: dict[str, Any] = {"name": "theirs", "namespace": bench.namespace, "finalizers": HOLD}
    theirs = await bench.admin.create({**pod().template, "metadata": metadata})
    await bench.admin.delete("v1", "Pod", "theirs", bench.namespace, uid=theirs["metadata"]["uid"], grace_period=0)
    owner = await bench.owner()
    assert owner is not None
    key = (names.API_VERSION, names.ATTEMPT_KIND, owner["metadata"]["name"], bench.namespace)
    await bench.admin.patch(*key, uid=bench.owner_uid, patch={"metadata": {"finalizers": HOLD}})
    try:
        removed = await bench.force_remove(8.0, strip_finalizers=True)
        assert [(one.kind, one.finalizers) for one in removed.remnants] == [("Attempt", (*HOLD,))]
        found = await bench.admin.get("v1", "Pod", "theirs", bench.namespace)
        assert found["metadata"]["finalizers"] == HOLD
        anchor = await bench.anchor()
        assert anchor is not None
        assert anchor["metadata"]["finalizers"] == [names.FINALIZER]
    finally:
        await let_go(bench, "v1", "Pod", "theirs")
        await let_go(bench, names.API_VERSION, names.ATTEMPT_KIND, owner["metadata"]["name"])
    assert (await bench.force_remove()).gone


async def test_U2_what_the_account_may_not_patch_stays_and_is_told(bench: Bench):
    bench.components = (config(metadata={"finalizers": HOLD}),)
    await bench.launch()
    role = await bench.may_not("patch", "v1", "ConfigMap")
    made = patches(bench)
    removed = await bench.force_remove(8.0, strip_finalizers=True)
    assert made, "it was tried"
    assert removed.remnants[0].sentence() == "ConfigMap settings (finalizer example.com/hold)"
    await bench.admin.patch(*ROLE, bench.namespace, uid=role["metadata"]["uid"], patch={"rules": role["rules"]})
    assert (await bench.force_remove(30.0, strip_finalizers=True)).gone
