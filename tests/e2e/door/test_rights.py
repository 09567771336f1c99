"""What a worker's own token may do, and what it may not: the trust boundary in the cluster (row X5)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from holdfast import names
from holdfast.activities.kube.client import Forbidden, Kube, service_account_user
from holdfast.local import StackError
from holdfast.local.identity import worker_kubeconfig
from holdfast.local.system.cluster import Kubectl
from tests.e2e.ground.nodes import open_nodes
from tests.e2e.ground.site import Site
from tests.e2e.ground.space import Space, open_space

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180), pytest.mark.asyncio(loop_scope="session")]
ROW = pytest.mark.row
CHANGES = ("create", "update", "patch", "delete", "deletecollection")
WORKLOADS = (
    "pods",
    "pods/eviction",
    "pods/exec",
    "pods/status",
    "services",
    "configmaps",
    "secrets",
    "persistentvolumeclaims",
    "jobs.batch",
    "cronjobs.batch",
    "deployments.apps",
    "statefulsets.apps",
    "replicasets.apps",
)
CLUSTER = (
    "namespaces",
    "nodes/status",
    "serviceaccounts",
    "serviceaccounts/token",
    "roles.rbac.authorization.k8s.io",
    "rolebindings.rbac.authorization.k8s.io",
    "clusterroles.rbac.authorization.k8s.io",
    "clusterrolebindings.rbac.authorization.k8s.io",
    "leases.coordination.k8s.io",
    "validatingadmissionpolicies.admissionregistration.k8s.io",
)


@pytest_asyncio.fixture(loop_scope="session")
async def space(shared_site: Site) -> AsyncIterator[Space]:
    async with open_space(shared_site) as opened:
        yield opened


WORKER = service_account_user(names.WORKER_NAMESPACE, names.WORKER_SERVICE_ACCOUNT)
EVERYWHERE = ""


@dataclass(frozen=True)
class Right:
    """Something that an account may be able to do, as `kubectl auth can-i` asks."""

    verb: str
    resource: str
    namespace: str = EVERYWHERE
    name: str = ""


def acting_as(namespace: str, account: str) -> Right:
    """Return the right to act as a service account, on an API server that constrains impersonation."""
    return Right("impersonate:serviceaccount", "serviceaccounts.authentication.k8s.io", namespace, account)


async def allowed(space: Space, user: str, rights: Sequence[Right]) -> set[Right]:
    """Return those rights that a service account has, by the API server's own word."""
    own = user.split(":")[2]
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{own}", "system:authenticated"]

    async def has(right: Right) -> bool:
        what, _, group = right.resource.partition(".")
        what, _, part = what.partition("/")
        attributes = {"verb": right.verb, "resource": what, "subresource": part, "group": group}
        attributes |= {"namespace": right.namespace, "name": right.name}
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {"user": user, "groups": groups, "resourceAttributes": attributes},
        }
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        answer = await space.site.kube.mutate("POST", path, body=body)
        return answer["status"]["allowed"]

    answers = await asyncio.gather(*map(has, rights))
    return {right for right, answer in zip(rights, answers, strict=True) if answer}


@ROW("X5", level="e2e")
async def test_X5_a_workers_token_changes_no_workload(space: Space):
    rights = [Right(verb, what, space.namespace) for what in WORKLOADS for verb in CHANGES]
    rights += [Right(verb, what) for what in (*WORKLOADS, *CLUSTER) for verb in CHANGES]
    rights += [Right(verb, "secrets", space.namespace) for verb in ("get", "list", "watch")]
    rights += [Right(verb, "nodes") for verb in ("create", "update", "delete", "deletecollection")]
    rights += [Right("impersonate", what) for what in ("users", "groups", "serviceaccounts")]
    rights += [Right("impersonate", "serviceaccounts", "kube-system", "namespace-controller")]
    rights += [Right(verb, "roles.rbac.authorization.k8s.io", space.namespace) for verb in ("escalate", "bind")]
    assert await allowed(space, WORKER, rights) == set()


@ROW("X5", level="e2e")
async def test_X5_who_decides_has_no_rights_in_the_cluster(space: Space):
    accounts = await space.site.kube.list("v1", "ServiceAccount", names.WORKER_NAMESPACE)
    (deciding,) = (one for one in accounts["items"] if one["metadata"]["name"] == "holdfast-workflows")
    assert deciding["automountServiceAccountToken"] is False
    verbs = ("get", "list", "watch", *CHANGES)
    rights = [Right(verb, what) for what in (*WORKLOADS, *CLUSTER, "nodes", "events") for verb in verbs]
    rights += [Right(verb, f"{what}.holdfast.dev") for what in ("anchors", "attempts") for verb in verbs]
    rights += [acting_as(space.namespace, names.RUN_AS_DEFAULT)]
    deciding_user = service_account_user(names.WORKER_NAMESPACE, "holdfast-workflows")
    assert await allowed(space, deciding_user, rights) == set()


@ROW("X5", level="e2e")
async def test_X5_it_acts_as_the_account_of_an_enabled_namespace_and_no_other(space: Space):
    here = acting_as(space.namespace, names.RUN_AS_DEFAULT)
    others = [
        Right("impersonate", "serviceaccounts", space.namespace, names.RUN_AS_DEFAULT),
        acting_as(space.namespace, "default"),
        acting_as("kube-public", names.RUN_AS_DEFAULT),
    ]
    marks = Right("patch", "nodes")
    assert await allowed(space, WORKER, [here, *others, marks]) == {here, marks}
    runner = service_account_user(space.namespace, names.RUN_AS_DEFAULT)
    acting = [Right(verb, "pods", space.namespace) for verb in ("create", "patch", "delete")]
    beyond = [Right(one.verb, one.resource, there) for one in acting for there in ("kube-public", EVERYWHERE)]
    assert await allowed(space, runner, [*acting, *beyond]) == set(acting)


@ROW("X5", level="e2e")
async def test_X5_it_acts_as_that_account_on_the_kinds_of_workloads_alone(space: Space):
    stack, runner = space.site.stack, service_account_user(space.namespace, names.RUN_AS_DEFAULT)
    role = {"apiGroups": ["", "coordination.k8s.io"], "resources": ["secrets", "leases"], "verbs": ["get", "create"]}
    metadata = {"name": "more", "namespace": space.namespace}
    rbac = "rbac.authorization.k8s.io"
    await space.site.kube.create({"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": metadata, "rules": [role]})
    binding = {
        "apiVersion": f"{rbac}/v1",
        "kind": "RoleBinding",
        "metadata": metadata,
        "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "more"},
        "subjects": [{"kind": "ServiceAccount", "name": names.RUN_AS_DEFAULT, "namespace": space.namespace}],
    }
    await space.site.kube.create(binding)
    more = Right("get", "secrets", space.namespace)
    while await allowed(space, runner, [more]) != {more}:  # noqa: ASYNC110 - it is another process that knows
        await asyncio.sleep(0.05)
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {**metadata, "name": "mine"}}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {**metadata, "name": "mine"}}
    service["spec"] = {"clusterIP": "None", "selector": {"app": "x"}}
    async with await Kube.connect(str(worker_kubeconfig(stack))) as worker:
        await worker.create(service, impersonate=runner)
        for forbidden in (
            worker.get("v1", "Secret", "mine", space.namespace, impersonate=runner),
            worker.create(lease, impersonate=runner),
            worker.get("v1", "Service", "mine", "kube-public", impersonate=runner),
        ):
            with pytest.raises(Forbidden, match="impersonate"):
                await forbidden


@ROW("X5", level="e2e")
async def test_X5_of_a_node_a_worker_changes_its_own_marks_alone(space: Space):
    installation, stack = space.site.cluster, space.site.stack
    kubectl = Kubectl(stack.binary("kubectl"), worker_kubeconfig(stack))
    other = {"key": "example.com/theirs", "value": "x", "effect": "NoSchedule"}
    ours = {"key": names.node_taint(installation), "value": "x", "effect": "NoSchedule"}
    off = {"key": names.TAINT_OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute"}
    async with open_nodes(space.site.kube, 1) as nodes:
        (node,) = nodes.names
        found = await space.site.kube.get("v1", "Node", node)
        there = found["spec"].get("taints") or []
        await nodes.patch(node, {"spec": {"taints": [*there, other]}, "metadata": {"labels": {"example.com/a": "1"}}})

        async def patched(patch: dict[str, Any]) -> str:
            argv = ("patch", "node", node, "--type=merge", "-p", json.dumps(patch))
            try:
                return await asyncio.to_thread(kubectl, *argv)
            except StackError as error:
                return str(error)

        refused: dict[str, dict[str, Any]] = {
            "spec.taints: a worker": {"spec": {"taints": [*there, {**other, "value": "y"}]}},
            "spec.taints: a ": {"spec": {"taints": [ours, off]}},
            "metadata.labels: a worker": {"metadata": {"labels": {"example.com/a": "2"}}},
            "metadata.labels: a ": {"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}},
            "metadata.annotations: a worker": {"metadata": {"annotations": {"evil-holdfast.dev/x": "1"}}},
            "changes nothing of a node but": {"spec": {"unschedulable": True}},
        }
        for why, patch in refused.items():
            said = await patched(patch)
            assert why in said, (patch, said)
        own = {
            "spec": {"taints": [*there, other, ours, off]},
            "metadata": {
                "annotations": {names.node_annotation(installation): "{}", names.fenced_annotation(installation): "{}"},
                "labels": {names.fault_label(installation): "x"},
            },
        }
        assert "patched" in await patched(own)
        assert "patched" in await patched({"spec": {"taints": [*there, other]}})
