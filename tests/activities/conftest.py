"""A real cluster for the activities: a namespace a test, and a worker with no rights but those of deploy/."""

from __future__ import annotations

import base64
import itertools
import os
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from holdfast import names
from holdfast.activities.kube.client import Forbidden, Kube, KubeError, service_account_user
from holdfast.local import Stack
from holdfast.worker.cleanup.namespace import enable
from tests.activities.bench import Bench, eventually
from tests.activities.line import Line

_NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def worker_kubeconfig(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A kubeconfig of the worker's own service account, as `deploy/` makes it."""
    token = stack.kubectl(
        "create", "token", names.WORKER_SERVICE_ACCOUNT, "-n", names.WORKER_NAMESPACE, "--duration=6h"
    ).strip()
    config: dict[str, Any] = yaml.safe_load(stack.kubeconfig.read_text())
    config["users"] = [{"name": "worker", "user": {"token": token}}]
    config["contexts"] = [{"name": "worker", "context": {"cluster": config["clusters"][0]["name"], "user": "worker"}}]
    config["current-context"] = "worker"
    cluster = config["clusters"][0]["cluster"]
    authority = cluster.pop("certificate-authority", None)
    if authority:
        text = (stack.kubeconfig.parent / authority).read_bytes()
        cluster["certificate-authority-data"] = base64.b64encode(text).decode()
    path = tmp_path_factory.mktemp("worker") / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path


@pytest.fixture
async def admin(stack: Stack) -> AsyncIterator[Kube]:
    async with await Kube.connect(str(stack.kubeconfig)) as kube:
        yield kube


@pytest.fixture
async def kube(worker_kubeconfig: Path) -> AsyncIterator[Kube]:
    async with await Kube.connect(str(worker_kubeconfig)) as kube:
        yield kube


@pytest.fixture
def worker_config(worker_kubeconfig: Path) -> dict[str, Any]:
    return yaml.safe_load(worker_kubeconfig.read_text())


@pytest.fixture
async def line(worker_config: dict[str, Any]) -> AsyncIterator[Line]:
    """A line to the API server that can be cut."""
    server = worker_config["clusters"][0]["cluster"]["server"]
    host, _, port = server.rpartition("//")[2].partition(":")
    async with Line(host, int(port)) as line:
        yield line


@pytest.fixture
def far_kubeconfig(worker_config: dict[str, Any], line: Line, tmp_path: Path) -> Path:
    worker_config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{line.port}"
    path = tmp_path / "far-kubeconfig"
    path.write_text(yaml.safe_dump(worker_config))
    return path


@pytest.fixture
async def far_kube(far_kubeconfig: Path) -> AsyncIterator[Kube]:
    """A worker's client at the end of that line, soon out of patience."""
    path = far_kubeconfig
    async with await Kube.connect(str(path), connect_timeout=0.5, timeout=1.0) as kube:
        yield kube


@asynccontextmanager
async def made(admin: Kube) -> AsyncIterator[str]:
    """Make a namespace that nobody has enabled, for as long as the block lasts."""
    name = f"act-{os.getpid()}-{next(_NUMBERS)}-{secrets.token_hex(2)}"
    namespace = await admin.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    try:
        yield name
    finally:
        await clear(admin, name, namespace["metadata"]["uid"])


async def enabled(admin: Kube, kube: Kube, namespace: str) -> None:
    """Let workloads live in a namespace, and wait until the API server knows it."""
    await enable(admin, namespace)
    user = service_account_user(namespace, names.RUN_AS_DEFAULT)
    jobs = await kube.resource("batch/v1", "Job")

    async def known() -> bool:
        """The API server learns of new roles a moment later."""
        try:
            return (await kube.allowed("delete", jobs, namespace, impersonate=user))[0]
        except Forbidden:
            return False

    await eventually(known)


@pytest.fixture
async def bare_namespace(admin: Kube) -> AsyncIterator[str]:
    """A namespace nobody has enabled."""
    async with made(admin) as name:
        yield name


@pytest.fixture
async def namespace(admin: Kube, kube: Kube, bare_namespace: str) -> str:
    await enabled(admin, kube, bare_namespace)
    return bare_namespace


@pytest.fixture
async def bench(kube: Kube, admin: Kube, namespace: str) -> Bench:
    """A workload to work on, with the worker's rights."""
    return await Bench.make(kube, admin, namespace)


async def clear(admin: Kube, namespace: str, uid: str) -> None:
    """Delete a test's namespace, with whatever finalizers it left."""
    for kind in ((names.API_VERSION, names.ANCHOR_KIND), ("v1", "Pod"), ("v1", "ConfigMap")):
        for item in (await admin.list(*kind, namespace))["items"]:
            metadata = item["metadata"]
            if not metadata.get("finalizers"):
                continue
            try:
                await admin.patch(
                    *kind,
                    metadata["name"],
                    namespace,
                    uid=metadata["uid"],
                    patch={"metadata": {"finalizers": []}},
                )
            except KubeError:
                continue
    for item in (await admin.list("v1", "Pod", namespace))["items"]:
        try:
            await admin.delete(
                "v1", "Pod", item["metadata"]["name"], namespace, uid=item["metadata"]["uid"], grace_period=0
            )
        except KubeError:
            continue
    try:
        await admin.delete("v1", "Namespace", namespace, uid=uid)
    except KubeError:
        return
