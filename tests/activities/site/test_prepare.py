"""Before an attempt, on a real cluster: who may refuse, and that anchor and owner are made once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from holdfast import names
from holdfast.activities.kube.client import Kube, Resource
from holdfast.model import StatusRule
from holdfast.worker.cleanup.namespace import manifests
from tests.activities.bench import Bench, config, eventually, job
from tests.activities.line import Line

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(60)]

ANCHOR = (names.API_VERSION, names.ANCHOR_KIND)
ATTEMPT = (names.API_VERSION, names.ATTEMPT_KIND)


async def refusal(bench: Bench, kind: str = names.ERROR_REFUSED, **changes: Any) -> str:
    with pytest.raises(ApplicationError) as caught:
        await bench.prepare(**changes)
    assert caught.value.type == kind
    assert caught.value.non_retryable is (kind in {names.ERROR_REFUSED, names.ERROR_CONFLICT})
    return caught.value.message


def component_of(api_version: str, kind: str) -> Any:
    return config().model_copy(
        update={"template": {"apiVersion": api_version, "kind": kind, "metadata": {"name": "thing"}}}
    )


class TestRefusals:
    async def test_another_clusters_name(self, bench: Bench):
        target = bench.target.model_copy(update={"cluster": "other"})
        assert "serves cluster test" in await refusal(bench, names.ERROR_CLUSTER_MISMATCH, target=target)

    async def test_another_cluster_under_the_same_name(self, bench: Bench):
        target = bench.target.model_copy(update={"cluster_uid": "before"})
        assert "another cluster" in await refusal(bench, names.ERROR_CLUSTER_MISMATCH, target=target)

    async def test_an_api_server_that_is_not_the_one_the_worker_was_started_with(
        self, kube: Kube, admin: Kube, namespace: str
    ):
        bench = Bench(kube, admin, namespace, "not-its-uid")
        assert "the API server of cluster" in await refusal(bench, names.ERROR_CLUSTER_MISMATCH)

    async def test_a_namespace_that_is_not_enabled(self, kube: Kube, admin: Kube, bare_namespace: str):
        bench = await Bench.make(kube, admin, bare_namespace)
        assert f"holdfast namespace enable {bare_namespace}" in await refusal(bench)
        assert await bench.anchor() is None

    async def test_a_namespace_that_does_not_exist(self, bench: Bench):
        target = bench.target.model_copy(update={"namespace": "no-such-namespace"})
        assert "does not exist" in await refusal(bench, target=target)

    async def test_a_service_account_that_does_not_exist(self, bench: Bench):
        target = bench.target.model_copy(update={"run_as": "nobody"})
        assert "nobody does not exist" in await refusal(bench, target=target)

    async def test_a_service_account_that_did_not_opt_in(self, bench: Bench):
        target = bench.target.model_copy(update={"run_as": "default"})
        # A controller makes it a moment after the namespace.
        await eventually(lambda: bench.admin.find("v1", "ServiceAccount", "default", bench.namespace))
        assert "does not let workloads run as it" in await refusal(bench, target=target)

    async def test_a_worker_that_may_not_act_as_the_account(self, bench: Bench):
        for manifest in manifests(bench.namespace)[1:2]:
            other = {**manifest, "metadata": {**manifest["metadata"], "name": "opted-in"}}
            await bench.admin.create(other)
        target = bench.target.model_copy(update={"run_as": "opted-in"})
        assert "the worker may not act as" in await refusal(bench, target=target)

    @pytest.mark.parametrize("verb", ["create", "get", "delete"])
    async def test_an_account_without_a_right(self, bench: Bench, verb: str):
        key = ("rbac.authorization.k8s.io/v1", "Role", names.RUN_AS_DEFAULT, bench.namespace)
        role = await bench.admin.get(*key)
        for rule in role["rules"]:
            rule["verbs"] = [one for one in rule["verbs"] if one != verb]
        await bench.admin.patch(*key, uid=role["metadata"]["uid"], patch={"rules": role["rules"]})

        async def refused() -> bool:
            return f"may not {verb} jobs of batch" in await refusal(bench)

        await eventually(refused)

    async def test_a_secret(self, bench: Bench):
        bench.components = (component_of("v1", "Secret"),)
        assert "payload encryption" in await refusal(bench)

    async def test_a_kind_the_cluster_does_not_serve(self, bench: Bench):
        bench.components = (component_of("example.com/v1", "Widget"),)
        assert "does not serve Widget" in await refusal(bench)

    async def test_a_kind_of_no_namespace(self, bench: Bench):
        bench.components = (component_of("v1", "Namespace"),)
        assert "belongs to no namespace" in await refusal(bench)

    async def test_a_kind_whose_end_the_worker_could_not_see(self, bench: Bench):
        """It may read no ConfigMaps. That matters only where a component's own status is to settle it."""
        bench.components = (config(),)
        await bench.prepare()
        ruled = bench.plan[0].model_copy(update={"status": StatusRule(complete=("Ready",))})
        message = await refusal(bench, plan=(ruled,))
        assert "the worker may not get configmaps" in message
        assert "holdfast.dev/aggregate-to-worker=true" in message

    async def test_a_kind_that_was_granted_to_the_worker(self, bench: Bench):
        name = f"reads-configmaps-{bench.namespace}"
        label = {"holdfast.dev/aggregate-to-worker": "true"}
        rule = {"apiGroups": ["example.com"], "resources": [name], "verbs": ["get", "list", "watch"]}
        role = await bench.admin.create(
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRole",
                "metadata": {"name": name, "labels": label},
                "rules": [rule],
            }
        )
        resource = Resource("example.com", "v1", "Widget", name, True, frozenset())

        async def granted() -> bool:
            return (await bench.kube.allowed("watch", resource, bench.namespace))[0]

        try:
            await eventually(granted)
        finally:
            key = ("rbac.authorization.k8s.io/v1", "ClusterRole", name)
            await bench.admin.delete(*key, uid=role["metadata"]["uid"])

    async def test_two_components_under_one_name(self, bench: Bench):
        one = job()
        bench.components = (one, one.model_copy(update={"name": "again"}))
        assert "are both Job work" in await refusal(bench)

    async def test_an_anchor_of_another_workload_that_has_not_ended(self, bench: Bench):
        await bench.prepare()
        other = bench.target.model_copy(update={"workload_uid": "another"})
        message = await refusal(bench, names.ERROR_CONFLICT, target=other)
        assert bench.target.workload_uid in message
        assert bench.target.workflow_id in message

    async def test_nothing_is_made_before_all_have_had_their_say(self, bench: Bench):
        bench.components = (job(), component_of("v1", "Secret"))
        await refusal(bench)
        assert await bench.anchor() is None
        assert await bench.owner() is None


async def test_anchor_and_owner_are_made(bench: Bench):
    prepared = await bench.prepare()
    anchor, owner = await bench.anchor(), await bench.owner()
    assert anchor is not None
    assert owner is not None
    assert (prepared.anchor_uid, prepared.owner_uid) == (anchor["metadata"]["uid"], owner["metadata"]["uid"])
    assert anchor["metadata"]["finalizers"] == [names.FINALIZER]
    assert anchor["spec"]["workflowId"] == bench.target.workflow_id
    assert anchor["status"]["phase"] == "Running"
    assert owner["spec"]["attempt"] == 1
    assert [one["objectName"] for one in owner["spec"]["plan"]] == ["work"]
    reference = owner["metadata"]["ownerReferences"][0]
    assert (reference["uid"], reference["blockOwnerDeletion"]) == (prepared.anchor_uid, True)
    for thing in (anchor, owner):
        labels = thing["metadata"]["labels"]
        assert labels[names.LABEL_WORKLOAD_UID] == bench.target.workload_uid
        assert labels[names.LABEL_SHARD] == "3"


async def test_a_second_time_finds_the_same(bench: Bench):
    first, second = await bench.prepare(), await bench.prepare()
    assert second == first.model_copy(update={"sequence": second.sequence})
    assert second.sequence > first.sequence, "reports go on above what the anchor bears"


async def test_the_next_attempt_has_another_owner_and_the_same_anchor(bench: Bench):
    first = await bench.prepare()
    bench.attempt = 2
    second = await bench.prepare()
    assert first.anchor_uid == second.anchor_uid
    assert first.owner_uid != second.owner_uid


async def test_a_settled_anchor_of_an_earlier_workload_gives_way(bench: Bench):
    first = await bench.prepare()
    await bench.remove(release_anchor=True)
    bench.target = bench.target.model_copy(update={"workload_uid": "later"})
    second = await bench.prepare()
    anchor = await bench.anchor()
    assert anchor is not None
    assert second.anchor_uid == anchor["metadata"]["uid"] != first.anchor_uid
    assert anchor["spec"]["workloadUid"] == "later"


async def test_a_released_anchor_of_ours_is_held_again(bench: Bench):
    first = await bench.prepare()
    await bench.remove(release_anchor=True)
    bench.attempt = 2
    assert (await bench.prepare()).anchor_uid == first.anchor_uid
    anchor = await bench.anchor()
    assert anchor is not None
    assert anchor["metadata"]["finalizers"] == [names.FINALIZER]


async def test_an_anchor_being_deleted_by_its_user_does_not_hold_it_up(bench: Bench):
    first = await bench.prepare()
    await bench.admin.delete(*ANCHOR, bench.target.name, bench.namespace, uid=first.anchor_uid)
    bench.attempt = 2
    assert (await bench.prepare()).anchor_uid == first.anchor_uid
    assert (await bench.observe()).anchor_deleting


async def test_a_dying_owner_is_waited_out(bench: Bench):
    first = await bench.prepare()
    name = names.attempt_name(bench.target.name, 1)
    hold = {"metadata": {"finalizers": ["example.com/hold"]}}
    await bench.admin.patch(*ATTEMPT, name, bench.namespace, uid=first.owner_uid, patch=hold)
    await bench.admin.delete(*ATTEMPT, name, bench.namespace, uid=first.owner_uid)
    again = asyncio.create_task(bench.prepare())
    await eventually(lambda: said(bench, "waiting for the old attempt train-a1 to go (finalizers example.com/hold)"))
    assert not again.done()
    await bench.admin.patch(
        *ATTEMPT, name, bench.namespace, uid=first.owner_uid, patch={"metadata": {"finalizers": []}}
    )
    assert (await again).owner_uid != first.owner_uid


async def test_an_owner_left_by_an_anchor_that_is_gone_is_waited_out(bench: Bench):
    await bench.prepare()
    name = names.attempt_name(bench.target.name, 2)
    stray = {
        "apiVersion": names.API_VERSION,
        "kind": names.ATTEMPT_KIND,
        "metadata": {
            "name": name,
            "namespace": bench.namespace,
            "ownerReferences": [
                {"apiVersion": names.API_VERSION, "kind": names.ANCHOR_KIND, "name": bench.target.name, "uid": "gone"}
            ],
        },
        "spec": {"workloadUid": "earlier", "workflowId": "w", "attempt": 2},
    }
    made = await bench.admin.create(stray)
    bench.attempt = 2
    assert (await bench.prepare()).owner_uid != made["metadata"]["uid"]


async def test_a_foreign_owner_is_named(bench: Bench):
    name = names.attempt_name(bench.target.name, 1)
    foreign = {
        "apiVersion": names.API_VERSION,
        "kind": names.ATTEMPT_KIND,
        "metadata": {"name": name, "namespace": bench.namespace},
        "spec": {"workloadUid": "someone", "workflowId": "w", "attempt": 1},
    }
    await bench.admin.create(foreign)
    assert "train-a1 belongs to workload someone" in await refusal(bench, names.ERROR_CONFLICT)
    await eventually(lambda: _no_anchor(bench))


async def test_a_refusal_of_a_workload_that_never_began_takes_its_anchor_back(bench: Bench):
    await bench.prepare()
    assert await bench.owner() is not None
    target = bench.target.model_copy(update={"run_as": "nobody"})
    await refusal(bench, target=target)
    assert await bench.anchor() is not None, "an attempt of its own stands under it"
    key = (*ATTEMPT, names.attempt_name(bench.target.name, 1), bench.namespace)
    await bench.admin.delete(*key, uid=bench.owner_uid)

    async def gone() -> bool:
        return await bench.owner() is None

    await eventually(gone)
    bench.attempt = 2
    await refusal(bench, target=target)
    assert await bench.anchor() is not None, "it had begun before"
    bench.attempt = 1
    await refusal(bench, target=target)
    await eventually(lambda: _no_anchor(bench))


async def _no_anchor(bench: Bench) -> bool:
    return await bench.anchor() is None


async def test_while_the_cluster_does_not_answer_it_says_so_and_is_retried(
    far_kube: Kube, admin: Kube, namespace: str, line: Line
):
    bench = await Bench.make(far_kube, admin, namespace)
    line.cut()
    assert "does not answer" in await refusal(bench, names.ERROR_UNREACHABLE)
    line.mend()
    await bench.prepare()


async def said(bench: Bench, words: str) -> bool:
    return any(words in one["doing"] for one in bench.heartbeats)
