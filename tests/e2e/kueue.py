"""The published Kueue beside Holdfast: its own binary, definitions and webhooks, for one namespace of a local stack.

Its webhooks serve with the certificate of the stack's API server, and are asked for the namespace alone. Its
configuration names Attempt in `externalFrameworks`: so Kueue leaves what is under an admitted AppWrapper alone (F6).
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import yaml

from holdfast import names
from holdfast.activities.kube import Kube, KubeError, NotFound, UnknownKind, Unreachable
from holdfast.local import Stack
from holdfast.local.gobuild import source_of
from holdfast.local.lock import file_lock
from holdfast.local.resolve import resolve
from holdfast.local.tools import TOOLS
from holdfast.worker.namespace import apply
from tests.e2e.peer import launched, ready, stop
from tests.e2e.site import free_port, until

Json = dict[str, Any]
PROGRAM = "kueue"
API_VERSION = "kueue.x-k8s.io/v1beta2"
QUEUE = "team"
LABEL_QUEUE, LABEL_PRIORITY = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class"
ADMISSION = "admissionregistration.k8s.io/v1"
METRICS = "/etc/kueue/metrics/certs"
ASKED = {"appwrappers", "jobs", "workloads"}
"""What its webhooks are asked about here: the objects of the namespace."""


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
async def open_kueue(stack: Stack, directory: Path, namespace: str, **settings: Any) -> AsyncIterator[Kueue]:
    """Run Kueue for a namespace; one at a time on a stack. `settings` are those of its own configuration."""
    with file_lock(stack.directory / "kueue.lock"):
        async with _opened(stack, directory, namespace, settings) as kueue:
            yield kueue


@asynccontextmanager
async def _opened(stack: Stack, directory: Path, namespace: str, settings: Json) -> AsyncIterator[Kueue]:
    (program,) = (await asyncio.to_thread(resolve, [PROGRAM], print)).values()
    components = (await asyncio.to_thread(source_of, TOOLS[PROGRAM])) / "config" / "components"
    kube = await Kube.connect(str(stack.kubeconfig))
    port, health, log = free_port(), f"127.0.0.1:{free_port()}", directory / "kueue.log"
    pki, certificates = stack.directory / "pki", directory / "kueue-certificates"
    certificates.mkdir()
    for ours, theirs in (("apiserver.crt", "tls.crt"), ("apiserver.key", "tls.key")):
        shutil.copyfile(pki / ours, certificates / theirs)
    configuration = directory / "kueue.yaml"
    given = {**_configuration(namespace, port, certificates, health), **settings}
    configuration.write_text(yaml.safe_dump(given))
    for definition in sorted((components / "crd" / "bases").glob("*.yaml")):
        await apply(kube, _unconverted(yaml.safe_load(definition.read_text())))
    await apply(kube, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kueue-system"}})
    authority = base64.b64encode((pki / "apiserver.crt").read_bytes()).decode()
    manifests = yaml.safe_load_all((components / "webhook" / "manifests.yaml").read_text())
    hooks = [_asked(one, namespace, f"https://127.0.0.1:{port}", authority) for one in manifests]
    process: subprocess.Popen[bytes] | None = None
    try:
        await until(lambda: _serves(kube), 60, "Workloads are served")
        own = [*_with_certificates(certificates), str(program)]
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


def _with_certificates(folder: Path) -> list[str]:
    """Return what runs a program for which these certificates lie where Kueue looks for its metrics' ones, as root.

    It sees an `/etc` of its own: the machine's stays as it is.
    """
    over = f"lowerdir=/etc,upperdir={folder}/upper,workdir={folder}/work"
    script = (
        f"mkdir {folder}/upper {folder}/work && mount -t overlay overlay -o {over} /etc && "
        f'mkdir -p {METRICS} && cp {folder}/tls.* {METRICS} && exec "$@"'
    )
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh"]


def _configuration(namespace: str, port: int, certificates: Path, health: str) -> Json:
    return {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "internalCertManagement": {"enable": False},
        "leaderElection": {"leaderElect": False},
        "webhook": {"host": "127.0.0.1", "port": port, "certDir": str(certificates)},
        "metrics": {"bindAddress": "0"},
        "health": {"healthProbeBindAddress": health},
        "featureGates": {"VisibilityOnDemand": False},
        # Also Jobs that name no queue: all there are, but for those of who it knows.
        "manageJobsWithoutQueueName": True,
        "managedJobsNamespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "integrations": {
            "frameworks": ["batch/job", "workload.codeflare.dev/appwrapper"],
            "externalFrameworks": [f"{names.ATTEMPT_KIND}.{names.VERSION}.{names.GROUP}"],
        },
    }


def _unconverted(definition: Json) -> Json:
    """Return a definition without its conversion webhook: one version alone is used here."""
    definition["spec"].pop("conversion", None)
    return definition


def _asked(configuration: Json, namespace: str, url: str, authority: str) -> Json:
    """Return a published webhook configuration for the objects of one namespace, at this address."""
    hooks = [
        {
            **hook,
            "clientConfig": {"url": url + hook["clientConfig"]["service"]["path"], "caBundle": authority},
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        }
        for hook in cast("list[Json]", configuration["webhooks"])
        if ASKED & {resource for rule in hook["rules"] for resource in rule["resources"]}
    ]
    return {**configuration, "metadata": {"name": f"kueue-{namespace}"}, "webhooks": hooks}


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
