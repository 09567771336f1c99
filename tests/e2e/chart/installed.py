"""Holdfast as the chart installs it on a local stack: the image on its nodes, the way from pods to the servers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter

from holdfast.activities.kube.client import Kube
from holdfast.local import Stack, StackError
from holdfast.local.node.real_node import RealNode, import_images
from holdfast.relay import addresses_of, relayed
from tests.e2e.chart.helm import RELEASE, helm
from tests.e2e.chart.second_node import SecondNode
from tests.e2e.chart.worker_image import write_worker_image
from tests.e2e.ground.proxy import Proxy, address_in
from tests.e2e.ground.site import Site, executable, until

CLUSTER: Final = "prod"
NAMESPACE: Final = "holdfast-system"
COMPONENTS: Final = ("workflows", "cluster")
"""The Deployments of workers."""
_IMAGE: Final = "holdfast.local/worker"
_SERVICE: Final = "kubernetes.default.svc"
"""A name that is on the API server's certificate."""


@asynccontextmanager
async def reachable(stack: Stack) -> AsyncIterator[tuple[Proxy, list[Proxy]]]:
    """Let pods reach the API server and each Temporal server, which listen on loopback, at their node's address."""
    own = RealNode(stack.directory).address
    servers = [urlsplit(f"//{one}") for one in addresses_of(stack.temporal_address)]
    async with AsyncExitStack() as exits:

        async def led_on(host: str | None, port: int | None) -> Proxy:
            assert host is not None
            assert port is not None
            proxy = Proxy(host, port, own)
            await proxy.start()
            exits.push_async_callback(proxy.close)
            return proxy

        api = await led_on(*address_in(stack.kubeconfig))
        yield api, [await led_on(one.hostname, one.port) for one in servers]


def values(api: Proxy, temporal: list[Proxy]) -> dict[str, Any]:
    """Return the chart's values for a cluster without a network for services: the API server has a name in each pod."""
    return {
        "cluster": CLUSTER,
        "temporal": {"address": ",".join(f"{one.own_host}:{one.own_port}" for one in temporal)},
        "image": {"repository": _IMAGE, "tag": "1", "pullPolicy": "Never"},
        "appwrappers": {"byDefault": True},
        # The stack's kubelet counts no local storage.
        "resources": {kind: {"ephemeral-storage": None} for kind in ("requests", "limits")},
        "env": [
            {"name": "KUBERNETES_SERVICE_HOST", "value": _SERVICE},
            {"name": "KUBERNETES_SERVICE_PORT", "value": str(api.own_port)},
        ],
        "pod": {
            "nodeSelector": {"holdfast.dev/node": "real"},
            "tolerations": [{"key": "holdfast.dev/real", "operator": "Exists"}],
            "hostAliases": [{"ip": api.own_host, "hostnames": [_SERVICE]}],
        },
    }


async def write_image(directory: Path) -> Path:
    """Write the image that the values name to an archive, and return its path."""
    archive = directory / "worker.tar"
    await asyncio.to_thread(write_worker_image, archive, f"{_IMAGE}:1", directory / "installed")
    return archive


async def load_image(stack: Stack, archive: Path, *nodes: RealNode) -> None:
    """Have nodes know the image of an archive."""
    ctr = await asyncio.to_thread(stack.binary, "ctr")
    for node in nodes:
        await asyncio.to_thread(import_images, node, ctr, archive)


def holdfast(stack: Stack, *argv: str, **environment: str) -> str:
    """Run a command as an administrator would, and return what it prints."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("HOLDFAST_", "TEMPORAL_"))}
    env |= {**stack.environment, "HOLDFAST_CLUSTER": CLUSTER, **environment}
    done = subprocess.run([*executable(), *argv], capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def told(stack: Stack) -> str:
    """Return what on-call would look at."""
    there = ("--namespace", NAMESPACE)
    found = [stack.kubectl("get", "pods,replicasets,events", "-o", "wide", *there)]
    for pod in stack.kubectl("get", "pods", "-o", "name", *there).split():
        with contextlib.suppress(StackError):
            found.append(stack.kubectl("logs", pod, "--tail=10", *there))
    return "\n".join(found)


@asynccontextmanager
async def open_site(stack: Stack, directory: Path) -> AsyncIterator[Site]:
    """What a test works with on the cluster that the chart's workers serve."""
    async with relayed(stack.temporal_address) as target:
        site = Site(
            stack=stack,
            directory=directory,
            kubeconfig=stack.kubeconfig,
            kube=await Kube.connect(str(stack.kubeconfig)),
            client=await Client.connect(target, data_converter=pydantic_data_converter),
            cluster=CLUSTER,
            temporal_address=stack.temporal_address,
        )
        try:
            yield site
        finally:
            await site.close()


@dataclass
class Chart:
    """The chart's installation on two nodes.

    Attributes:
        site: what a test works with on its cluster.
        second: the node beside the stack's own.
        image: the archive with the workers' image.
        values: the file of its values.
    """

    site: Site
    second: SecondNode
    image: Path
    values: Path

    async def kubectl(self, *argv: str) -> str:
        return await asyncio.to_thread(self.site.stack.kubectl, *argv)

    async def upgrade(self, *argv: str) -> None:
        """Upgrade the release, and wait until all its pods are new and ready."""
        wanted = (*RELEASE, "--values", str(self.values), "--wait", "--timeout", "5m", *argv)
        kubeconfig = self.site.stack.kubeconfig
        try:
            await asyncio.to_thread(helm, "upgrade", "--install", *wanted, kubeconfig=kubeconfig)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{told(self.site.stack)}") from None

    async def pods(self, component: str) -> list[dict[str, Any]]:
        """Return the pods of one Deployment that are not being deleted."""
        labels = f"app.kubernetes.io/component={component}"
        found = await self.site.kube.list("v1", "Pod", NAMESPACE, labels=labels)
        return [pod for pod in found["items"] if not pod["metadata"].get("deletionTimestamp")]

    async def nodes(self, component: str) -> set[str]:
        """Return the nodes on which the pods of one Deployment stand."""
        return {pod["spec"]["nodeName"] for pod in await self.pods(component) if pod["spec"].get("nodeName")}

    async def ready(self, count: int = 2) -> None:
        """Wait until each Deployment has as many pods, and all are ready."""

        async def check() -> bool:
            for component in COMPONENTS:
                pods = await self.pods(component)
                if len(pods) != count or not all(_is_ready(pod) for pod in pods):
                    return False
            return True

        await until(check, 180, lambda: f"the workers are ready: {told(self.site.stack)}", pause=0.3)

    async def whole(self) -> None:
        """Have both nodes be there, with one pod of each Deployment on each."""
        if not self.second.runs:
            await asyncio.to_thread(self.second.start, self.image)
        await self.upgrade("--create-namespace")
        for component in COMPONENTS:
            there = (f"deployment/holdfast-{component}", f"--namespace={NAMESPACE}")
            if len(await self.nodes(component)) < 2:
                await self.kubectl("rollout", "restart", *there)
                await self.kubectl("rollout", "status", *there)
            assert len(await self.nodes(component)) == 2, f"the pods of {component} are spread"
        await self.ready()


def _is_ready(pod: dict[str, Any]) -> bool:
    return any(one["type"] == "Ready" and one["status"] == "True" for one in pod["status"].get("conditions", ()))
