"""Kinds of Kubeflow, Ray and LeaderWorkerSet under their published definitions: what their status says counts (D15).

The test is their controller: it makes the pods of their templates, and writes the status.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from holdfast import names
from holdfast.activities.kube.client import Conflict
from holdfast.formats.pods import resolve
from holdfast.local import Stack
from holdfast.worker.cleanup.namespace import apply
from tests.e2e.ground.site import appwrapper, job, open_site, until
from tests.e2e.ground.space import Handle, Space, open_space, pod_template
from tests.e2e.kinds.published import serve
from tests.formats.corpus import pytorch_job, ray

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300), pytest.mark.row("D15", level="e2e")]
RBAC = "rbac.authorization.k8s.io"


async def may_watch(space: Space, api_version: str) -> None:
    """Let the worker follow the kinds of a group in this namespace: cluster-wide rights are the operator's to give."""
    metadata = {"name": "worker-follows", "namespace": space.namespace}
    rules = [{"apiGroups": [api_version.partition("/")[0]], "resources": ["*"], "verbs": ["get", "list", "watch"]}]
    subjects = [
        {"kind": "ServiceAccount", "name": names.WORKER_SERVICE_ACCOUNT, "namespace": names.WORKER_NAMESPACE},
    ]
    reference = {"apiGroup": RBAC, "kind": "Role", "name": metadata["name"]}
    role: dict[str, Any] = {"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": metadata, "rules": rules}
    await apply(space.site.kube, role)
    await apply(
        space.site.kube, {**role, "kind": "RoleBinding", "rules": None, "roleRef": reference, "subjects": subjects}
    )


class Played:
    """One object of a published kind, and its controller."""

    def __init__(self, space: Space, key: tuple[str, str], name: str) -> None:
        self.space, self.key, self.name = space, key, name

    async def found(self, uid: str = "") -> dict[str, Any]:
        """Wait for the object, and for another than the one of this uid."""
        last: list[dict[str, Any]] = []

        async def there() -> bool:
            found = await self.space.site.kube.find(*self.key, self.name, self.space.namespace)
            last[:] = [found] if found is not None and found["metadata"]["uid"] != uid else []
            return bool(last)

        await until(there, 90, f"{self.key[1]} {self.name} is created")
        return last[0]

    async def make_pods(self, thing: dict[str, Any], counts: Mapping[str, int]) -> None:
        """Make the pods of its templates, so many each; what a template leaves open is as its runtime has it."""
        runtime = pod_template()["spec"]
        for number, (path, count) in enumerate(counts.items()):
            template = resolve(thing, path)
            for index in range(count):
                metadata = {
                    **template["metadata"],
                    "name": f"{self.name}-{number}-{index}",
                    "ownerReferences": [controlled_by(thing, self.key)],
                }
                containers = [{**runtime["containers"][0], **one} for one in template["spec"]["containers"]]
                spec = {**runtime, **template["spec"], "containers": containers}
                await self.space.make({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

    async def says(self, **status: Any) -> None:
        """Write its status, which the API server holds against the published schema."""
        while True:
            found = await self.found()
            metadata = found["metadata"]
            try:
                written = await self.space.site.kube.patch(
                    *self.key,
                    self.name,
                    self.space.namespace,
                    uid=metadata["uid"],
                    resource_version=metadata["resourceVersion"],
                    patch={"status": status},
                    subresource="status",
                )
            except Conflict:
                continue
            assert status.items() <= written["status"].items(), "the published schema has these fields"
            return

    async def gone(self) -> bool:
        return await self.space.site.kube.find(*self.key, self.name, self.space.namespace) is None


def controlled_by(thing: Mapping[str, Any], key: tuple[str, str]) -> dict[str, Any]:
    metadata = thing["metadata"]
    owner = {"apiVersion": key[0], "kind": key[1], "name": metadata["name"], "uid": metadata["uid"]}
    return {**owner, "controller": True, "blockOwnerDeletion": True}


def condition(kind: str, status: str = "True") -> dict[str, str]:
    now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    return {"type": kind, "status": status, "reason": kind, "message": "as played", "lastTransitionTime": now}


@asynccontextmanager
async def open_played(stack: Stack, directory: Path, kind: str, name: str) -> AsyncIterator[Played]:
    """Open a namespace in which the worker follows a published kind."""
    async with open_site(stack, directory, prefix="k") as site:
        key = await serve(site, kind)
        async with open_space(site, key) as space:
            await may_watch(space, key[0])
            await site.start_worker(HOLDFAST_NAMESPACES=space.namespace)
            yield Played(space, key, name)


async def fails_then_succeeds(
    played: Played, component: dict[str, Any], counts: Mapping[str, int], success: str
) -> None:
    """Have its first attempt fail and its second succeed, each by what its status says while its pods run."""
    space, pods = played.space, sum(counts.values())
    handle = await space.submit(appwrapper("train", component))
    first = await played.found()
    await played.make_pods(first, counts)
    status = await space.reach(handle, "Running", 1)
    assert (status.pods.expected, status.pods.running) == (pods, pods)
    await played.says(conditions=[condition("Failed")])
    second = await played.found(uid=first["metadata"]["uid"])
    await played.make_pods(second, counts)
    status = await space.reach(handle, "Running", 2)
    assert (status.restarts, status.pods.running) == (1, pods)
    why = f"{played.name}: Failed: as played"
    assert any(why in each.message for each in status.causes), status.causes
    await played.says(conditions=[condition("Failed", "False"), condition(success)])
    result = await space.ended(handle)
    assert (result.phase, result.attempt, result.restarts) == ("Succeeded", 2, 1)
    await space.truth.settle()
    space.truth.assert_told_truly("train")
    assert await played.gone()
    assert not await space.pods()


async def waits_for(
    played: Played, component: dict[str, Any], counts: Mapping[str, int], early: dict[str, Any], ready: dict[str, Any]
) -> Handle:
    """Have a Job wait until an object that does not end is ready, as its status says, although its pods run before."""
    space = played.space
    client = {"name": "client", **job("client", 1), "after": [{"component": "server", "status": "Ready"}]}
    policy = {"timings": {"retryPausePeriod": "1s", "successTtl": "0s"}, "success": {"components": ["client"]}}
    handle = await space.submit(
        {
            "apiVersion": names.API_VERSION,
            "kind": "Workload",
            "metadata": {"name": "train"},
            "spec": {"components": [{"name": "server", **component}, client], "policy": policy},
        }
    )
    await played.make_pods(await played.found(), counts)
    await played.says(**early)

    async def waits() -> bool:
        status = await space.site.status(handle)
        return status.pods.running == sum(counts.values())

    await until(waits, 60, "its pods run")
    assert await space.site.kube.find("batch/v1", "Job", "client", space.namespace) is None, "pods alone do not count"
    await played.says(**ready)
    status = await space.reach(handle, "Running", 1)
    assert (status.pods.running, status.restarts) == (sum(counts.values()) + 1, 0)
    return handle


async def stays(played: Played, handle: Handle, **status: Any) -> None:
    """See that it takes no harm from being unready later, and goes with its workload."""
    space = played.space
    await played.says(**status)
    (client,) = await space.site.objects("v1", "Pod", space.namespace, f"{names.LABEL_COMPONENT}=client")
    await space.site.annotate("Pod", client["metadata"]["name"], space.namespace, kwok_complete="0s")
    result = await space.ended(handle)
    assert (result.phase, result.attempt, result.restarts) == ("Succeeded", 1, 0)
    await space.truth.settle()
    space.truth.assert_told_truly("train")
    assert await played.gone()
    assert not await space.pods()


def patch_of(pods: dict[str, Any]) -> dict[str, Any]:
    """Return what adds to the pods of a TrainJob's runtime."""
    jobs = [{"name": "node", "template": {"spec": {"template": {"spec": pods}}}}]
    return {"manager": "example.com/user", "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}


async def test_D15_a_pytorch_job_fails_and_succeeds_by_its_conditions(stack: Stack, tmp_path: Path):
    template = pytorch_job()
    roles = {"Master": 1, "Worker": 3}
    counts = {f"template.spec.pytorchReplicaSpecs.{role}.template": pods for role, pods in roles.items()}
    async with open_played(stack, tmp_path, "PyTorchJob", template["metadata"]["name"]) as played:
        await fails_then_succeeds(played, {"template": template}, counts, "Succeeded")


async def test_D15_a_train_job_fails_and_succeeds_by_its_conditions(stack: Stack, tmp_path: Path):
    """Its pods are made of a runtime's template, to which its `runtimePatches` bring the labels of its workload."""
    jobs = "template.spec.runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs[0]"
    path = f"{jobs}.template.spec.template"
    template = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "trainer"},
        "spec": {
            "runtimeRef": {"name": "torch-distributed"},
            "trainer": {"numNodes": 2},
            "runtimePatches": [patch_of({"containers": [{"name": "node"}]})],
        },
    }
    component = {"template": template, "podSets": [{"path": path, "replicas": 2}]}
    async with open_played(stack, tmp_path, "TrainJob", "trainer") as played:
        await fails_then_succeeds(played, component, {path: 2}, "Complete")


async def test_D15_a_ray_cluster_is_ready_by_its_state(stack: Stack, tmp_path: Path):
    template = ray("RayCluster")
    counts = {"template.spec.headGroupSpec.template": 1, "template.spec.workerGroupSpecs[0].template": 2}
    async with open_played(stack, tmp_path, "RayCluster", template["metadata"]["name"]) as played:
        handle = await waits_for(played, {"template": template}, counts, {"state": "failed"}, {"state": "ready"})
        await stays(played, handle, state="failed")


async def test_D15_a_leader_worker_set_is_ready_by_its_condition(stack: Stack, tmp_path: Path):
    groups = "template.spec.leaderWorkerTemplate"
    template = {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "serve"},
        "spec": {
            "replicas": 2,
            "leaderWorkerTemplate": {"size": 2, "leaderTemplate": pod_template(), "workerTemplate": pod_template()},
        },
    }
    for part in ("leaderTemplate", "workerTemplate"):
        template["spec"]["leaderWorkerTemplate"][part]["spec"]["restartPolicy"] = "Always"  # type: ignore[index]
    counts = {f"{groups}.leaderTemplate": 2, f"{groups}.workerTemplate": 2}
    component = {"template": template, "podSets": [{"path": path, "replicas": 2} for path in counts]}
    async with open_played(stack, tmp_path, "LeaderWorkerSet", "serve") as played:
        late = {"conditions": [condition("Available", "False"), condition("Progressing")]}
        handle = await waits_for(played, component, counts, late, {"conditions": [condition("Available")]})
        await stays(played, handle, **late)
