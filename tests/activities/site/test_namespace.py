"""`holdfast namespace enable`: what it makes, what it leaves, and that it may be said twice."""

from __future__ import annotations

import pytest

from holdfast import names
from holdfast.activities.kube.client import Kube, service_account_user
from holdfast.errors import HoldfastError
from holdfast.worker.cleanup.namespace import enable, manifests


def test_the_worker_may_act_as_exactly_this_account():
    (role,) = [one for one in manifests("ns", "runner") if one["metadata"]["name"] == "holdfast-impersonate-runner"][:1]
    assert role["rules"] == [
        {"apiGroups": [""], "resources": ["serviceaccounts"], "resourceNames": ["runner"], "verbs": ["impersonate"]}
    ]


def test_where_the_cluster_can_bound_it_the_worker_acts_on_the_kinds_of_workloads_alone():
    objects = manifests("ns", "runner", ["jobset.x-k8s.io"], constrain=True)
    (role,) = [one for one in objects if one["metadata"]["name"] == "holdfast-impersonate-runner"][:1]
    (account, *kinds) = role["rules"]
    assert account == {
        "apiGroups": ["authentication.k8s.io"],
        "resources": ["serviceaccounts"],
        "resourceNames": ["runner"],
        "verbs": ["impersonate:serviceaccount"],
    }
    assert [rule["apiGroups"] for rule in kinds] == [[""], ["batch"], ["apps"], ["jobset.x-k8s.io"]]
    assert all(verb.startswith("impersonate-on:serviceaccount:") for rule in kinds for verb in rule["verbs"])
    assert "secrets" not in kinds[0]["resources"]


def test_other_groups_are_given_where_asked_for():
    (role,) = [one for one in manifests("ns", extra_groups=["jobset.x-k8s.io"]) if one["kind"] == "Role"][:1]
    assert ["jobset.x-k8s.io"] in [rule["apiGroups"] for rule in role["rules"]]


@pytest.mark.e2e
class TestOnACluster:
    async def test_a_dry_run_changes_nothing(self, admin: Kube, bare_namespace: str):
        assert await enable(admin, bare_namespace, dry_run=True) == manifests(bare_namespace, constrain=True)
        found = await admin.get("v1", "Namespace", bare_namespace)
        assert names.LABEL_NAMESPACE_ENABLED not in found["metadata"]["labels"]

    async def test_what_is_there_and_is_anothers_stays_theirs(self, admin: Kube, bare_namespace: str):
        there = {"name": "trainer", "namespace": bare_namespace}
        rbac = "rbac.authorization.k8s.io/v1"
        await admin.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": there})
        await enable(admin, bare_namespace, service_account="trainer")
        found = await admin.get("v1", "ServiceAccount", "trainer", bare_namespace)
        assert found["metadata"]["annotations"] == {names.ANNOTATION_RUN_AS: names.RUN_AS_ALLOWED}
        assert "labels" not in found["metadata"], "`holdfast uninstall` deletes what bears its label"
        role = {"apiVersion": rbac, "kind": "Role", "metadata": {**there, "name": "reader"}, "rules": []}
        await admin.create(role)
        with pytest.raises(HoldfastError, match=f"Role {bare_namespace}/reader is there, and is not Holdfast's"):
            await enable(admin, bare_namespace, service_account="reader")
        assert not (await admin.get(rbac, "Role", "reader", bare_namespace)).get("rules")
        assert await admin.find("v1", "ServiceAccount", "reader", bare_namespace) is None

    async def test_it_may_be_said_twice_and_keeps_what_was_there(self, admin: Kube, bare_namespace: str):
        found = await admin.get("v1", "Namespace", bare_namespace)
        await admin.patch(
            "v1",
            "Namespace",
            bare_namespace,
            uid=found["metadata"]["uid"],
            patch={"metadata": {"labels": {"mine": "yes"}}},
        )
        await enable(admin, bare_namespace, extra_groups=["example.com"], secrets=True)
        again = await enable(admin, bare_namespace, extra_groups=["example.org"])
        (role, *_) = [one for one in again if one["kind"] == "Role"]
        assert [rule["apiGroups"] for rule in role["rules"] if rule["resources"] == ["*"]] == [
            ["example.com"],
            ["example.org"],
        ]
        assert ["secrets"] in [rule["resources"] for rule in role["rules"]], "nothing that was granted is taken away"
        labels = (await admin.get("v1", "Namespace", bare_namespace))["metadata"]["labels"]
        assert (labels["mine"], labels[names.LABEL_NAMESPACE_ENABLED]) == ("yes", "true")
        user = service_account_user(bare_namespace, names.RUN_AS_DEFAULT)
        assert (await admin.allowed("create", await admin.resource("v1", "Pod"), bare_namespace, impersonate=user))[0]
