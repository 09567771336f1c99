"""The published JobSet controller beside ours: its own binary, CRD and admission webhooks, for one namespace.

Its webhooks are on, for their namespace alone: what they fill in and refuse is what a JobSet's user gets. They serve
with the certificate of the stack's API server, which is made for this machine. Those for pods are on only if asked
for: they place the pods of exclusive topologies, and label pods with their priority for that. The controller itself
watches all namespaces: on a stack where others have JobSets too it would run those as well.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import secrets
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from holdfast.activities.kube.client import Kube, KubeError, NotFound, UnknownKind, Unreachable
from holdfast.local import Stack
from holdfast.local.programs.gobuild import source_of
from holdfast.local.programs.resolve import resolve
from holdfast.local.programs.tools import TOOLS
from holdfast.local.system.lock import file_lock
from holdfast.worker.cleanup.namespace import apply
from tests.e2e.ground.site import free_port, until

Json = dict[str, Any]
PROGRAM = "jobset-controller"
API_VERSION = "jobset.x-k8s.io/v1alpha2"
ADMISSION = "admissionregistration.k8s.io/v1"
IN_PLACE, SINGLE_JOBS = "InPlaceRestart", "RestartJob"
"""Feature gates that are off by default: restarts in place, and restarts of single Jobs."""
DEFINITION = ("apiextensions.k8s.io/v1", "CustomResourceDefinition", "jobsets.jobset.x-k8s.io")


@dataclass
class Peer:
    """A running JobSet controller and the namespace it is for."""

    kube: Kube
    namespace: str
    log: Path
    pid: int

    async def create(self, document: Json) -> Json:
        """Create a JobSet here, as its user would; the answer is what was stored.

        Raises:
            KubeError: if it was refused.
        """
        metadata = {**document["metadata"], "namespace": self.namespace}
        return await self.kube.create({**document, "metadata": metadata})

    async def get(self, name: str) -> Json:
        """Return a JobSet as it is now."""
        return await self.kube.get(API_VERSION, "JobSet", name, self.namespace)

    async def listed(self, api_version: str, kind: str, jobset: str) -> list[Json]:
        """Return the objects that bear a JobSet's name."""
        labels = f"jobset.sigs.k8s.io/jobset-name={jobset}"
        return (await self.kube.list(api_version, kind, self.namespace, labels=labels))["items"]


@asynccontextmanager
async def open_peer(
    stack: Stack,
    directory: Path,
    namespace: str = "",
    *,
    gates: Iterable[str] = (),
    places_pods: bool = False,
    **settings: Any,
) -> AsyncIterator[Peer]:
    """Run the controller with a namespace of its own; all of it is gone afterwards but the definition of JobSets.

    That stays with the stack: a kind that ceases to be served may stand what counts quotas still for half a minute.
    One at a time on a stack, since each runs everybody's JobSets.

    Args:
        stack: where.
        directory: gets its log, configuration, and certificates.
        namespace: that it is for, which stays; empty: one of its own.
        gates: the feature gates to switch on (`IN_PLACE`, `SINGLE_JOBS`); the others keep their defaults.
        places_pods: whether its webhooks for pods are on.
        settings: of its own configuration file (`clientConnection`, ...), beside its defaults.
    """
    if gates:
        settings["featureGates"] = dict.fromkeys(gates, True)
    with file_lock(stack.directory / "jobset-peer.lock"):
        async with _opened(stack, directory, namespace, settings, places_pods=places_pods) as peer:
            yield peer


@asynccontextmanager
async def _opened(
    stack: Stack, directory: Path, given: str, settings: Json, *, places_pods: bool
) -> AsyncIterator[Peer]:
    (program,) = (await asyncio.to_thread(resolve, [PROGRAM], print)).values()
    definition = await asyncio.to_thread(_definition)
    # On a busy machine the API server is long about a large definition.
    kube = await Kube.connect(str(stack.kubeconfig), timeout=60)
    namespace, port = given or f"jobset-{secrets.token_hex(3)}", free_port()
    health, log = f"127.0.0.1:{free_port()}", directory / "jobset-controller.log"
    pki = stack.directory / "pki"
    certificates = directory / "jobset-certificates"
    certificates.mkdir()
    for ours, theirs in (("apiserver.crt", "tls.crt"), ("apiserver.key", "tls.key")):
        shutil.copyfile(pki / ours, certificates / theirs)
    configuration = directory / "jobset-controller.yaml"
    configuration.write_text(yaml.safe_dump({**_settings(port, certificates, health), **settings}))
    await until(lambda: _settled(kube), 60, "an earlier definition of JobSets is gone")
    await apply(kube, yaml.safe_load(definition.read_text()))
    if not given:
        await kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    url, authority = f"https://127.0.0.1:{port}", (pki / "apiserver.crt").read_bytes()
    hooks = _webhooks(namespace, url, authority, places_pods=places_pods)
    process: subprocess.Popen[bytes] | None = None
    try:
        await until(lambda: _serves(kube), 60, "JobSets are served")
        process = launched([str(program), f"--config={configuration}", f"--kubeconfig={stack.kubeconfig}"], log)
        running = process
        await until(lambda: ready(running, log, health), 60, "the JobSet controller is ready")
        for hook in hooks:
            await apply(kube, hook)
        await until(lambda: _defaulted(kube, namespace), 60, "the JobSet webhooks are asked")
        yield Peer(kube, namespace, log, running.pid)
    finally:
        for hook in hooks:
            await _delete(kube, ADMISSION, hook["kind"], hook["metadata"]["name"])
        with contextlib.suppress(UnknownKind, Unreachable):
            for each in (await kube.list(API_VERSION, "JobSet", namespace))["items"]:
                await _delete(kube, API_VERSION, "JobSet", each["metadata"]["name"], namespace)
        if process is not None:
            stop(process)
        if not given:
            await _delete(kube, "v1", "Namespace", namespace)
        await kube.close()


def _settings(port: int, certificates: Path, health: str) -> Json:
    return {
        "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
        "kind": "Configuration",
        "internalCertManagement": {"enable": False},
        "leaderElection": {"leaderElect": False},
        "webhook": {"host": "127.0.0.1", "port": port, "certDir": str(certificates)},
        "metrics": {"bindAddress": "0"},
        "health": {"healthProbeBindAddress": health},
    }


def _definition() -> Path:
    return source_of(TOOLS[PROGRAM]) / "config" / "components" / "crd" / "bases" / "jobset.x-k8s.io_jobsets.yaml"


def _webhooks(namespace: str, url: str, authority: bytes, *, places_pods: bool) -> list[Json]:
    """Return the published webhooks, as config/components/webhook has them, for one namespace."""

    def hook(kind: str, name: str, path: str, operations: list[str]) -> Json:
        group, version, resource = ("", "v1", "pods") if kind == "pod" else ("jobset.x-k8s.io", "v1alpha2", "jobsets")
        of_jobset = {"matchExpressions": [{"key": "jobset.sigs.k8s.io/jobset-name", "operator": "Exists"}]}
        return {
            "name": name,
            "admissionReviewVersions": ["v1"],
            "clientConfig": {"url": f"{url}{path}", "caBundle": base64.b64encode(authority).decode()},
            "failurePolicy": "Fail",
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "objectSelector": of_jobset if kind == "pod" else {},
            "rules": [
                {"apiGroups": [group], "apiVersions": [version], "operations": operations, "resources": [resource]}
            ],
            "sideEffects": "None",
        }

    mutating = [hook("jobset", "mjobset.kb.io", "/mutate-jobset-x-k8s-io-v1alpha2-jobset", ["CREATE"])]
    validating = [hook("jobset", "vjobset.kb.io", "/validate-jobset-x-k8s-io-v1alpha2-jobset", ["CREATE", "UPDATE"])]
    if places_pods:
        mutating.append(hook("pod", "mpod.kb.io", "/mutate--v1-pod", ["CREATE"]))
        validating.append(hook("pod", "vpod.kb.io", "/validate--v1-pod", ["CREATE"]))
    return [
        {"apiVersion": ADMISSION, "kind": kind, "metadata": {"name": namespace}, "webhooks": hooks}
        for kind, hooks in (("MutatingWebhookConfiguration", mutating), ("ValidatingWebhookConfiguration", validating))
    ]


async def _settled(kube: Kube) -> bool:
    """Whether JobSets are defined or not, and nobody is taking their definition away just now."""
    found = await kube.find(*DEFINITION)
    return found is None or not found["metadata"].get("deletionTimestamp")


async def _serves(kube: Kube) -> bool:
    try:
        await kube.list(API_VERSION, "JobSet", "default")
    except (UnknownKind, Unreachable):
        return False
    return True


def launched(argv: list[str], log: Path, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    """Start another's controller, its output in a file."""
    with log.open("wb") as out:
        return subprocess.Popen(argv, stdout=out, stderr=out, env=env)


def stop(process: subprocess.Popen[bytes]) -> None:
    """Stop a controller, without warning if it does not go."""
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(20)
    process.kill()
    process.wait()


async def ready(process: subprocess.Popen[bytes], log: Path, health: str) -> bool:
    """Whether a controller says that it is ready."""
    assert process.poll() is None, f"the controller ended: see {log}"
    try:
        async with aiohttp.ClientSession() as session, session.get(f"http://{health}/readyz") as answer:
            return answer.status == 200
    except aiohttp.ClientError:
        await asyncio.sleep(0.2)
        return False


async def _defaulted(kube: Kube, namespace: str) -> bool:
    """Whether a JobSet that the webhook refuses is refused: the API server takes up a webhook after a moment."""
    probe = {
        "apiVersion": API_VERSION,
        "kind": "JobSet",
        "metadata": {"name": "probe", "namespace": namespace},
        "spec": {"suspend": True, "replicatedJobs": [], "network": {"subdomain": "1"}},
    }
    try:
        await kube.would_create(probe)
    except KubeError as error:
        return "vjobset.kb.io" in str(error)
    await asyncio.sleep(0.2)
    return False


async def _delete(kube: Kube, api_version: str, kind: str, name: str, namespace: str = "") -> None:
    with contextlib.suppress(NotFound, UnknownKind):
        found = await kube.get(api_version, kind, name, namespace)
        await kube.delete(api_version, kind, name, namespace, uid=found["metadata"]["uid"])
