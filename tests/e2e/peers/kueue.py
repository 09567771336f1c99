"""The published Kueue beside Holdfast: its own binary, definitions and webhooks, for one namespace of a local stack.

Its webhooks serve with the certificate of the stack's API server, and are asked for the namespace alone. Its
configuration names Attempt in `externalFrameworks`: so Kueue leaves what is under an admitted AppWrapper alone (F6).
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from holdfast.activities.kube.client import Kube, KubeError, NotFound, UnknownKind, Unreachable
from holdfast.local import Stack
from holdfast.local.extras import kueue as local
from holdfast.local.programs.resolve import resolve
from holdfast.local.system.lock import file_lock
from holdfast.worker.cleanup.namespace import apply
from tests.e2e.ground.site import free_port, until
from tests.e2e.ground.space import Space
from tests.e2e.peers.jobset_peer import launched, ready, stop

Json = dict[str, Any]
API_VERSION = "kueue.x-k8s.io/v1beta2"
QUEUE = "team"
LABEL_QUEUE, LABEL_PRIORITY = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class"
ADMISSION = "admissionregistration.k8s.io/v1"
ASKED = frozenset({"appwrappers", "jobsets", "jobs", "workloads"})
"""What its webhooks are asked about here: the objects of the namespace."""


_ENDED = {"Succeeded", "Failed"}
"""Phases of pods that hold nothing."""


@dataclass
class Kueue:
    """A running Kueue, and the namespace it is for."""

    kube: Kube
    namespace: str
    log: Path

    async def workloads(self) -> dict[str, Json]:
        """Return its Workloads by the kind and name of who owns them."""
        found = (await self.kube.list(API_VERSION, "Workload", self.namespace))["items"]
        owners = [one["metadata"]["ownerReferences"][0] for one in found]
        return {f"{owner['kind']} {owner['name']}": one for owner, one in zip(owners, found, strict=True)}

    async def quota(self, cpu: str, **spec: Any) -> None:
        """Give the namespace so much CPU, on fake nodes, by a queue of its own."""
        name = self.namespace
        flavor = {"nodeLabels": {"holdfast.dev/node": "fake"}}
        group = {
            "coveredResources": ["cpu"],
            "flavors": [{"name": name, "resources": [{"name": "cpu", "nominalQuota": cpu}]}],
        }
        selector = {"matchLabels": {"kubernetes.io/metadata.name": name}}
        for kind, body in (
            ("ResourceFlavor", flavor),
            ("ClusterQueue", {"namespaceSelector": selector, "resourceGroups": [group], **spec}),
            ("LocalQueue", {"clusterQueue": name}),
        ):
            own = {"name": QUEUE, "namespace": name} if kind == "LocalQueue" else {"name": name}
            await apply(self.kube, {"apiVersion": API_VERSION, "kind": kind, "metadata": own, "spec": body})

    async def priority(self, name: str, value: int) -> str:
        """Make a priority class, and return its name."""
        own = f"{self.namespace}-{name}"
        document = {"apiVersion": API_VERSION, "kind": "WorkloadPriorityClass", "metadata": {"name": own}}
        await apply(self.kube, {**document, "value": value, "description": "of a test"})
        return own


def is_reserved(workload: Json) -> bool:
    """Whether quota is reserved for a Workload."""
    conditions = workload.get("status", {}).get("conditions", ())
    return any(one["type"] == "QuotaReserved" and one["status"] == "True" for one in conditions)


@asynccontextmanager
async def sampled(space: Space, kueue: Kueue, kind: str, label: str) -> AsyncIterator[None]:
    """Read Kueue's accounting beside live pods all the time: quota is never released ahead of them (row F8).

    Args:
        space: the namespace of the pods.
        kueue: whose accounting is read.
        kind: the kind of the objects that own Kueue's workloads.
        label: the label of a pod that names its object.
    """
    ahead: list[str] = []
    samples = 0

    async def alive() -> dict[str, str]:
        """Return the object of each pod that has not ended, by the pod's uid."""
        return {
            one["metadata"]["uid"]: one["metadata"]["labels"][label]
            for one in await space.pods()
            if one["status"].get("phase") not in _ENDED
        }

    async def sample() -> None:
        nonlocal samples
        while True:
            before, workloads, after = await alive(), await kueue.workloads(), await alive()
            for uid, name in before.items():
                workload = workloads.get(f"{kind} {name}")
                if uid in after and (workload is None or not is_reserved(workload)):
                    ahead.append(f"a pod of {name} lives, and its quota is not reserved")
            samples += 1
            await asyncio.sleep(0.02)

    task = asyncio.create_task(sample())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    print(f"MEASURED {samples} samples of Kueue's accounting, {len(ahead)} ahead of live pods")
    assert samples > 20
    assert not ahead, ahead[:5]


@asynccontextmanager
async def open_kueue(
    stack: Stack, directory: Path, namespace: str, asked: frozenset[str] = ASKED, label: str = "", **settings: Any
) -> AsyncIterator[Kueue]:
    """Run Kueue for a namespace, or for those with a label; one at a time on a stack.

    `settings` are those of its own configuration.
    """
    labels = {label: "true"} if label else {"kubernetes.io/metadata.name": namespace}
    with file_lock(stack.directory / "kueue.lock"):
        async with _opened(stack, directory, namespace, asked, {"matchLabels": labels}, settings) as kueue:
            yield kueue


@asynccontextmanager
async def _opened(
    stack: Stack, directory: Path, namespace: str, asked: frozenset[str], selector: Json, settings: Json
) -> AsyncIterator[Kueue]:
    (program,) = (await asyncio.to_thread(resolve, [local.NAME], print)).values()
    folder = await asyncio.to_thread(local.components)
    # On a busy machine the API server is long about a large definition.
    kube = await Kube.connect(str(stack.kubeconfig), timeout=60)
    port, health, log = free_port(), f"127.0.0.1:{free_port()}", directory / "kueue.log"
    pki, certificates = stack.directory / "pki", directory / "kueue-certificates"
    local.certify(pki, certificates)
    configuration = directory / "kueue.yaml"
    # Also Jobs that name no queue: all there are, but for those of who it knows.
    given = {"manageJobsWithoutQueueName": True, "managedJobsNamespaceSelector": selector, **settings}
    configuration.write_text(yaml.safe_dump(local.configuration(port, certificates, health, **given)))
    for definition in local.definitions(folder):
        await apply(kube, definition)
    await apply(kube, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kueue-system"}})
    authority = (pki / "apiserver.crt").read_bytes()
    hooks = local.webhooks(folder, port, authority, asked, namespaceSelector=selector)
    process: subprocess.Popen[bytes] | None = None
    try:
        await until(lambda: _serves(kube), 60, "Workloads are served")
        own = [*local.with_certificates(certificates), str(program)]
        process = launched([*own, f"--config={configuration}", f"--kubeconfig={stack.kubeconfig}"], log)
        running = process
        await until(lambda: ready(running, log, health), 60, lambda: f"Kueue is ready: {log.read_text()[-3000:]}")
        for hook in hooks:
            await apply(kube, hook)
        yield Kueue(kube, namespace, log)
    finally:
        for hook in hooks:
            await _delete(kube, ADMISSION, hook["kind"], hook["metadata"]["name"])
        for found in (await kube.list(API_VERSION, "Workload", namespace))["items"]:
            metadata = found["metadata"]
            with contextlib.suppress(KubeError):
                key = (API_VERSION, "Workload", metadata["name"], namespace)
                await kube.patch(*key, uid=metadata["uid"], patch={"metadata": {"finalizers": None}})
        if process is not None:
            stop(process)
        for kind in ("ClusterQueue", "ResourceFlavor"):
            await _delete(kube, API_VERSION, kind, namespace)
        await kube.close()


async def _serves(kube: Kube) -> bool:
    try:
        await kube.list(API_VERSION, "Workload", "default")
    except (UnknownKind, Unreachable):
        return False
    return True


async def _delete(kube: Kube, api_version: str, kind: str, name: str) -> None:
    with contextlib.suppress(NotFound, UnknownKind):
        found = await kube.get(api_version, kind, name)
        if found["metadata"].get("finalizers"):
            await kube.patch(
                api_version, kind, name, uid=found["metadata"]["uid"], patch={"metadata": {"finalizers": None}}
            )
        await kube.delete(api_version, kind, name, uid=found["metadata"]["uid"])
