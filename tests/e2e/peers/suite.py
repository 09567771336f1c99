"""Runs suites of other projects; and what the kinds in AppWrapper's own end-to-end suite need: controllers, images.

A suite is built from its Go module. AppWrapper's works in a namespace of its own, `e2e-test`, as an administrator.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import difflib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from holdfast.activities.kube.client import Conflict, Kube, UnknownKind, Unreachable
from holdfast.deploy import FOLDER
from holdfast.local import Stack
from holdfast.local.node.real_node import RealNode, import_images
from holdfast.local.node.requirements import find_static_busybox
from holdfast.local.programs.gobuild import source_of, specs_folder
from holdfast.local.programs.images import BUSYBOX, Image, base_layer, write_images
from holdfast.local.programs.python_layer import add
from holdfast.local.programs.resolve import resolve
from holdfast.local.programs.tools import SUITE_FILE, TOOLS
from holdfast.local.system.paths import PACKAGE
from holdfast.worker.cleanup.namespace import apply
from tests.e2e.ground.definitions import READERS
from tests.e2e.ground.site import free_port, until
from tests.e2e.peers.jobset_peer import launched, ready, stop

SUITE: Final = "appwrapper-suite"
OPERATOR: Final = "training-operator"
RAY: Final = "kuberay-operator"
NAMESPACE: Final = "e2e-test"
IMAGE: Final = "quay.io/project-codeflare/busybox:1.36"
GPUS: Final = 4
_CERTIFICATES: Final = Path("/tmp/k8s-webhook-server/serving-certs")
_SECRET: Final = "training-operator-webhook-cert"
_HOOKS: Final = ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration")
_HOOK: Final = "validator.training-operator.kubeflow.org"
_SECONDS: Final = 1500.0

Json = dict[str, Any]


@dataclass(frozen=True)
class Spec:
    """How one spec of the suite went."""

    name: str
    state: str
    seconds: float
    failure: str


async def run(
    stack: Stack,
    directory: Path,
    name: str,
    choice: Mapping[str, str],
    *,
    suite: str = SUITE,
    env: Mapping[str, str] | None = None,
) -> list[Spec]:
    """Run specs of a suite one after another, and return how each went that was not left out.

    Args:
        stack: where.
        directory: gets its output and report.
        name: of this run.
        choice: which specs, by ginkgo's options: `label-filter`; `focus` and `skip`, expressions on their names;
            `focus-file`, lines of their file.
        suite: which one, in `tools.TOOLS`.
        env: its environment beside this process's.
    """
    (program,) = (await asyncio.to_thread(resolve, [suite], print)).values()
    report, log = directory / f"{name}.json", directory / f"{name}.log"
    argv = [str(program), "--ginkgo.v", f"--ginkgo.json-report={report}"]
    argv += [f"--ginkgo.{key}={value}" for key, value in choice.items()]
    environment = {**os.environ, **(env or {}), "KUBECONFIG": str(stack.kubeconfig)}
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(*argv, env=environment, stdout=out, stderr=out, cwd=directory)
        try:
            await asyncio.wait_for(process.wait(), _SECONDS)
        finally:
            if process.returncode is None:
                process.kill()
    return list(_specs(json.loads(report.read_text())))


def _specs(reports: list[Json]) -> list[Spec]:
    found: list[Spec] = []
    for one in (spec for report in reports for spec in report["SpecReports"]):
        if one["LeafNodeType"] == "It" and one["State"] != "skipped":
            name = " ".join([*(one["ContainerHierarchyTexts"] or ()), one["LeafNodeText"]])
            failure = str((one.get("Failure") or {}).get("Message", ""))
            found.append(Spec(name, one["State"], one["RunTime"] / 1e9, failure))
        elif one["State"] not in {"passed", "skipped"}:
            found.append(Spec(one["LeafNodeType"], one["State"], 0, str((one.get("Failure") or {}).get("Message", ""))))
    return found


def difference(suite: str) -> str:
    """Return what was changed in a published suite file, as `diff -u` shows it."""
    published = specs_folder(TOOLS[suite]) / SUITE_FILE
    before, after = (one.read_text().splitlines() for one in (published, PACKAGE / "build" / suite / SUITE_FILE))
    lines = difflib.unified_diff(before, after, "published", "ours", lineterm="")
    return "\n".join(line.rstrip() for line in lines)


@asynccontextmanager
async def given_to_holdfast(kube: Kube, folder: str) -> AsyncIterator[None]:
    """Have objects of a kind that name no controller be Holdfast's (row F1); `folder` is the kind's, of `deploy/`."""
    documents = list(yaml.safe_load_all((FOLDER / folder / "managed-by.yaml").read_text()))
    for document in documents:
        await apply(kube, document)
    try:
        yield
    finally:
        for document in reversed(documents):
            key = (document["apiVersion"], document["kind"], document["metadata"]["name"])
            await kube.delete(*key, uid=(await kube.get(*key))["metadata"]["uid"])


def document(suite: str) -> Path:
    """Return the page that shows what was changed in a published suite file."""
    return Path(f"docs/reference/{suite}.md")


def judge(specs: Sequence[Spec], deviations: Collection[str], name: str = "") -> None:
    """Tell how each spec went; none may fail but the deviations, which are ends of names.

    Raises:
        AssertionError: naming the others that failed, and why.
    """
    failed = {one.name: one.failure for one in specs if one.state != "passed"}
    unexpected = {name: why for name, why in failed.items() if not any(name.endswith(one) for one in deviations)}
    print(f"MEASURED {name}{len(specs)} specs, {len(specs) - len(failed)} passed")
    for one in specs:
        print(f"  {one.state:<8} {one.seconds:6.1f} s  {one.name}")
    assert not unexpected, unexpected


async def tag_image(stack: Stack) -> None:
    """Give the real node the suite's image: the stack's own busybox, by that name."""
    node = RealNode(stack.directory)
    ctr = [str(stack.binary("ctr")), "--address", str(node.socket), "--namespace", "k8s.io"]
    await asyncio.to_thread(
        subprocess.run, [*ctr, "images", "tag", "--force", BUSYBOX, IMAGE], check=True, capture_output=True
    )


async def import_image(stack: Stack, directory: Path, tag: str, files: Mapping[str, bytes]) -> None:
    """Give the real node an image of busybox and these programs, each in `/bin`."""
    busybox = find_static_busybox()
    assert busybox is not None, "the real node has one"
    layer, archive = io.BytesIO(), directory / "image.tar"
    with tarfile.open(fileobj=layer, mode="w") as tar:
        for name, content in files.items():
            add(tar, f"bin/{name}", content, 0o755)
    write_images(archive, [Image(tag, ["sh"], [base_layer(busybox), layer.getvalue()])])
    await asyncio.to_thread(import_images, RealNode(stack.directory), stack.binary("ctr"), archive)


async def place(kube: Kube, *, real: bool) -> None:
    """Have pods go to the real node alone, or to the fake ones alone, which have GPUs."""
    for node in (await kube.list("v1", "Node"))["items"]:
        name, uid = node["metadata"]["name"], node["metadata"]["uid"]
        is_real = name == "real"
        await _patched(kube, name, uid, {"spec": {"unschedulable": is_real is not real, "taints": None}})
        if not real and not is_real:
            gpus = {"nvidia.com/gpu": str(GPUS)}
            await _patched(kube, name, uid, {"status": {"capacity": gpus, "allocatable": gpus}}, "status")


@asynccontextmanager
async def nodes_kept(kube: Kube) -> AsyncIterator[None]:
    """Put back afterwards which nodes take pods, and how many GPUs they have."""
    before = (await kube.list("v1", "Node"))["items"]
    try:
        yield
    finally:
        for node in before:
            name, uid = node["metadata"]["name"], node["metadata"]["uid"]
            spec = {field: node["spec"].get(field) for field in ("unschedulable", "taints")}
            room = {field: node["status"].get(field) for field in ("capacity", "allocatable")}
            await _patched(kube, name, uid, {"spec": spec})
            await _patched(kube, name, uid, {"status": room}, "status")


async def label_real(kube: Kube, labels: Mapping[str, str | None]) -> None:
    """Set labels of the real node; None takes one off."""
    uid = (await kube.get("v1", "Node", "real"))["metadata"]["uid"]
    await _patched(kube, "real", uid, {"metadata": {"labels": dict(labels)}})


async def _patched(kube: Kube, name: str, uid: str, patch: Json, subresource: str = "") -> None:
    while True:
        version = (await kube.get("v1", "Node", name))["metadata"]["resourceVersion"]
        with contextlib.suppress(Conflict):
            key = ("v1", "Node", name)
            await kube.patch(*key, uid=uid, patch=patch, resource_version=version, subresource=subresource)
            return


async def define(kube: Kube) -> None:
    """Have the cluster serve the kinds of Kubeflow and Ray that the suite wraps, and workers read them."""
    operator, ray = [await asyncio.to_thread(source_of, TOOLS[name]) for name in (OPERATOR, RAY)]
    files = [operator / "manifests" / "base" / "crds" / "kubeflow.org_pytorchjobs.yaml"]
    files += [ray / "config" / "crd" / "bases" / f"ray.io_{kind}.yaml" for kind in ("rayclusters", "rayjobs")]
    for file in files:
        await apply(kube, yaml.safe_load(file.read_text()))
    await apply(kube, READERS)
    kinds = (("kubeflow.org/v1", "PyTorchJob"), ("ray.io/v1", "RayCluster"), ("ray.io/v1", "RayJob"))

    async def served() -> bool:
        try:
            for kind in kinds:
                await kube.list(*kind, "default")
        except (UnknownKind, Unreachable):
            return False
        return True

    await until(served, 60, "the kinds are served")


@asynccontextmanager
async def open_operator(stack: Stack, directory: Path, kube: Kube) -> AsyncIterator[None]:
    """Run the published training operator, for PyTorchJobs.

    It makes its certificates itself and waits until a kubelet has put them into its container: played here. Its webhook
    is asked about nothing, since no service leads to it here.
    """
    (program,) = (await asyncio.to_thread(resolve, [OPERATOR], print)).values()
    health, log, template = f"127.0.0.1:{free_port()}", directory / "operator.log", directory / "init.yaml"
    # Its workers' init containers wait for the master by the cluster's DNS, which is not here.
    template.write_text(f"- name: init-pytorch\n  image: {IMAGE}\n  command: ['true']\n")
    for document in (
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kubeflow"}},
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": _SECRET, "namespace": "kubeflow"}},
        {"apiVersion": _HOOKS[0], "kind": _HOOKS[1], "metadata": {"name": _HOOK}, "webhooks": []},
    ):
        await apply(kube, document)
    argv = [str(program), "--enable-scheme=pytorchjob", f"--namespace={NAMESPACE}", "--metrics-bind-address=0"]
    argv += [f"--health-probe-bind-address={health}", f"--webhook-server-port={free_port()}"]
    argv += [f"--pytorch-init-container-template-file={template}"]
    task = asyncio.create_task(_mounted(kube))
    process = launched(argv, log, os.environ | {"KUBECONFIG": str(stack.kubeconfig)})
    try:
        await until(
            lambda: ready(process, log, health), 90, lambda: f"the operator is ready: {log.read_text()[-2000:]}"
        )
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        stop(process)
        shutil.rmtree(_CERTIFICATES.parent, ignore_errors=True)
        found = await kube.find(*_HOOKS, _HOOK)
        if found is not None:
            await kube.delete(*_HOOKS, _HOOK, uid=found["metadata"]["uid"])


async def _mounted(kube: Kube) -> None:
    """Put the operator's certificates where a kubelet would."""
    while True:
        found = await kube.get("v1", "Secret", _SECRET, "kubeflow")
        _CERTIFICATES.mkdir(parents=True, exist_ok=True)
        for name, content in (found.get("data") or {}).items():
            (_CERTIFICATES / name).write_bytes(base64.b64decode(content))
        await asyncio.sleep(0.5)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        before, _, _ = document(name).read_text().partition("```diff\n")
        document(name).write_text(f"{before}```diff\n{difference(name)}\n```\n")
