"""Holdfast is taken off a cluster of its own: what runs is left alone, or removed; nothing hangs (row F15)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from temporalio.client import WorkflowExecutionStatus

from holdfast import names
from holdfast.activities.kube.client import Kube
from holdfast.activities.kube.errors import UnknownKind
from holdfast.local import Stack
from holdfast.local.system.cluster import Kubectl, apply_deploy
from holdfast.model import Workload
from holdfast.policy.entities.front_door import IN_FORCE
from holdfast.worker.cleanup.namespace import enable
from tests.e2e.door.front_door import KIND, applied, appwrapper, job, read, runs
from tests.e2e.ground.site import Site, executable, open_site, until
from tests.e2e.ground.site import appwrapper as wrapped
from tests.e2e.ground.space import Space, open_space, pod
from tests.shared_stack import own_stack

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]
KINDS = ("anchors.holdfast.dev", "attempts.holdfast.dev")
CRD = ("apiextensions.k8s.io/v1", "CustomResourceDefinition")
RBAC = "rbac.authorization.k8s.io/v1"
ADMISSION = "admissionregistration.k8s.io/v1"


@pytest.fixture(scope="module")
def taken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    # A worker that goes on polls again within seconds: by default within a minute.
    polls = {"matching.longPollExpirationInterval": '"5s"'}
    with own_stack("off", tmp_path_factory.mktemp("stack"), nodes=2, dynamic_config=polls) as made:
        yield made


@asynccontextmanager
async def opened(stack: Stack, directory: Path) -> AsyncIterator[tuple[Site, Space]]:
    """Install Holdfast, and open a site on it with a worker and a namespace."""
    await asyncio.to_thread(apply_deploy, Kubectl(stack.binary("kubectl"), stack.kubeconfig))
    async with open_site(stack, directory, prefix="u") as site:
        await site.start_worker()
        await until(lambda: is_in_force(site.kube), 90, "what is created from now on is checked (record 0101)")
        async with open_space(site) as space:
            yield site, space


async def is_in_force(kube: Kube) -> bool:
    """Whether a resource that is created now counts as checked: an earlier test may have taken the policies off."""
    binding = await kube.get(ADMISSION, "ValidatingAdmissionPolicyBinding", "appwrapper-components.holdfast.dev")
    made = datetime.fromisoformat(binding["metadata"]["creationTimestamp"])
    return datetime.now(UTC) - made > IN_FORCE + timedelta(seconds=1)


def lonely(space: Space) -> Workload:
    """Return a workload that is handed in to Temporal."""
    return space.site.read(wrapped("lonely", pod("lonely")), space.namespace)


async def uninstall(site: Site, *argv: str, expect: int = 0, managed_by: str = "") -> str:
    env = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")} | {
        "HOLDFAST_CLUSTER": site.cluster,
        "HOLDFAST_MANAGED_BY": managed_by or site.managed_by,
        "TEMPORAL_ADDRESS": site.temporal_address,
        "TEMPORAL_NAMESPACE": site.cluster,
        "KUBECONFIG": str(site.stack.kubeconfig),
    }
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *executable(), "uninstall", *argv, env=env, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe
    )
    async with asyncio.timeout(400):
        out, err = await process.communicate()
    told = out.decode() + err.decode()
    assert process.returncode == expect, told
    return told


async def is_off(kube: Kube) -> bool:
    """Whether nothing of Holdfast is on a cluster, of what `deploy/` and `namespace enable` put there."""
    if any([await kube.find(*CRD, name) for name in KINDS]):
        return False
    kinds = [(RBAC, kind) for kind in ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")]
    kinds += [
        (ADMISSION, f"{which}AdmissionPolicy{what}") for which in ("Validating", "Mutating") for what in ("", "Binding")
    ]
    for kind in kinds:
        assert not (await kube.list(*kind, labels="app.kubernetes.io/part-of=holdfast"))["items"], kind
    enabled = await kube.list("v1", "Namespace", labels=f"{names.LABEL_NAMESPACE_ENABLED}=true")
    assert not enabled["items"]
    return await kube.find("v1", "Namespace", names.WORKER_NAMESPACE) is None


async def namespace_goes(space: Space) -> None:
    """Delete the namespace: it does not hang on anything."""
    kube = space.site.kube
    found = await kube.get("v1", "Namespace", space.namespace)
    await kube.delete("v1", "Namespace", space.namespace, uid=found["metadata"]["uid"])

    async def is_gone() -> bool:
        return await kube.find("v1", "Namespace", space.namespace) is None

    await until(is_gone, 60, "the namespace is gone")


@pytest.mark.row("F15", level="e2e")
async def test_F15_what_runs_is_left_alone_or_removed_and_nothing_hangs(taken: Stack, tmp_path: Path):
    async with opened(taken, tmp_path) as (site, space):
        await applied(space, appwrapper(space, job(pods=2)))
        await runs(space)
        handle = await space.submit(lonely(space))
        await space.reach(handle, "Running")
        before = {one["metadata"]["uid"] for one in await space.pods()}
        assert len(before) == 3

        assert "no watch of this cluster is known as" in await uninstall(site, "--yes", "--cluster=other", expect=2)
        theirs = appwrapper(space, job(), name="theirs")
        theirs["spec"]["managedBy"] = "holdfast.dev/theirs"
        theirs["metadata"]["finalizers"] = [names.FINALIZER]
        made = await site.kube.create(theirs)
        told = await uninstall(site, "--yes", "--workloads", "leave", expect=2)
        assert "the one that runs what is managedBy holdfast.dev/theirs also has workloads" in told
        key, uid = (*KIND, "theirs", space.namespace), made["metadata"]["uid"]
        await site.kube.patch(*key, uid=uid, patch={"metadata": {"finalizers": None}})
        await site.kube.delete(*key, uid=uid)
        told = await uninstall(site, "--dry-run")
        assert "under way: 2 graphs and workloads; 4 objects" in told
        told = await uninstall(site, "--yes", expect=2)
        assert "--workloads remove, or --workloads leave" in told
        told = await uninstall(site, "--yes", "--workloads", "leave", expect=2)
        assert "a worker is running" in told
        assert await read(space) is not None
        site.workers[-1].kill()

        told = await uninstall(site, "--yes", "--workloads", "leave")
        assert "waiting until workers that were stopped are known to be gone" in told
        assert "CustomResourceDefinition appwrappers.workload.codeflare.dev stays: there are still appwrappers" in told
        await until(lambda: is_off(site.kube), 90, "nothing of Holdfast is there")
        after = await space.pods()
        assert {one["metadata"]["uid"] for one in after} == before
        assert not [one for one in after if one["metadata"].get("deletionTimestamp")]
        work = await site.kube.get("batch/v1", "Job", "work", space.namespace)
        assert not work["metadata"].get("ownerReferences")
        left = await read(space)
        assert left is not None
        assert names.FINALIZER not in left["metadata"].get("finalizers", ())
        assert (await space.handles[-1].describe()).status is WorkflowExecutionStatus.TERMINATED
        assert await site.kube.find("v1", "ServiceAccount", names.RUN_AS_DEFAULT, space.namespace) is not None
        told = await uninstall(site, "--yes")
        assert "under way: 0 graphs and workloads" in told, "it may be repeated"
        await namespace_goes(space)

    async with opened(taken, tmp_path) as (site, space):
        await applied(space, appwrapper(space, job(pods=2)))
        handle = await space.submit(lonely(space))
        await runs(space)
        await space.reach(handle, "Running")
        account = {"name": "trainer", "namespace": space.namespace, "annotations": {"example.com/role": "trainer"}}
        await site.kube.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})
        await enable(site.kube, space.namespace, service_account="trainer")
        told = await uninstall(site, "--yes", "--workloads", "remove", expect=2)
        assert "being removed" in told
        assert "a worker is running" in told
        assert not await space.pods()
        assert await site.kube.find(*CRD, KINDS[0]) is not None
        site.workers[-1].kill()
        await uninstall(site, "--yes", "--workloads", "remove")
        assert await site.kube.find("v1", "ServiceAccount", names.RUN_AS_DEFAULT, space.namespace) is None
        theirs = await site.kube.get("v1", "ServiceAccount", "trainer", space.namespace)
        assert theirs["metadata"]["annotations"] == {"example.com/role": "trainer"}, "it was there before"
        await until(lambda: is_off(site.kube), 90, "nothing of Holdfast is there")
        with pytest.raises(UnknownKind):
            await site.kube.list(*KIND, space.namespace)
        assert (await handle.describe()).status is not None
        assert str((await handle.result()).phase) == "Cancelled"
        await namespace_goes(space)
