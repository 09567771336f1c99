"""The chart installs Holdfast on a cluster of its own: image, rights, AppWrappers by kubectl, and all of it off again.

`make test-peers` runs this, as root: helm is built from its Go module, about a minute once.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import re
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from holdfast.local import Stack, StackError
from holdfast.local.node.real_node import RealNode, import_images
from tests.e2e.door.chart import RELEASE, ROOT, WORKERS, helm, workers
from tests.e2e.door.worker_image import write_worker_image
from tests.e2e.ground.proxy import Proxy, address_in
from tests.e2e.ground.site import executable
from tests.shared_stack import own_stack
from tests.worker.temporal.authority import Authority

pytestmark = [pytest.mark.e2e, pytest.mark.kueue, pytest.mark.timeout(900)]
IMAGE = "holdfast.local/worker"
RESTRICTED = "pod-security.kubernetes.io/enforce=restricted"


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[Stack]:
    """A cluster with a real node, which knows nothing of Holdfast."""
    if os.geteuid() != 0:
        pytest.skip("a real kubelet needs root")
    with own_stack("chart", tmp_path / "stack", nodes=2, real_node=True, apply=False) as made:
        yield made


@asynccontextmanager
async def reachable(stack: Stack) -> AsyncIterator[tuple[Proxy, Proxy]]:
    """Let pods reach the API server and Temporal, which listen on loopback: on the address of their node."""
    own = RealNode(stack.directory).address
    temporal = urlsplit(f"//{stack.temporal_address}")
    assert temporal.hostname is not None
    assert temporal.port is not None
    async with AsyncExitStack() as exits:
        found: list[Proxy] = []
        for host, port in (address_in(stack.kubeconfig), (temporal.hostname, temporal.port)):
            proxy = Proxy(host, port, own)
            await proxy.start()
            exits.push_async_callback(proxy.close)
            found.append(proxy)
        yield found[0], found[1]


def values(stack: Stack, api: Proxy, temporal: Proxy) -> dict[str, Any]:
    """Return what a cluster without a network for services needs besides: the API server by a name that it has."""
    name = "kubernetes.default.svc"
    return {
        "cluster": "prod",
        "temporal": {"address": f"{temporal.own_host}:{temporal.own_port}"},
        "image": {"repository": IMAGE, "tag": "1", "pullPolicy": "Never"},
        "appwrappers": {"byDefault": True},
        # The stack's kubelet counts no local storage.
        "resources": {kind: {"ephemeral-storage": None} for kind in ("requests", "limits")},
        "env": [
            {"name": "KUBERNETES_SERVICE_HOST", "value": name},
            {"name": "KUBERNETES_SERVICE_PORT", "value": str(api.own_port)},
        ],
        "pod": {
            "nodeSelector": {"holdfast.dev/node": "real"},
            "tolerations": [{"key": "holdfast.dev/real", "operator": "Exists"}],
            "hostAliases": [{"ip": api.own_host, "hostnames": [name]}],
        },
    }


def holdfast(stack: Stack, *argv: str, keys: Path | None = None) -> str:
    """Run a command as an administrator would, with a key file if one is given, and return what it prints."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("HOLDFAST_", "TEMPORAL_"))}
    env |= {**stack.environment, "HOLDFAST_CLUSTER": "prod"}
    env |= {"HOLDFAST_CODEC_KEYS": str(keys)} if keys else {}
    done = subprocess.run([*executable(), *argv], capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def lives(stack: Stack, name: str) -> None:
    """Apply the example under a name, and see it succeed."""
    document = yaml.safe_load((ROOT / "examples" / "appwrapper-job.yaml").read_text())
    document["metadata"]["name"] = name
    document["spec"]["components"][0]["template"]["metadata"]["name"] = name
    stack.kubectl("apply", "--namespace", "research", "-f", "-", stdin=yaml.safe_dump(document))
    told = "--for=jsonpath={.status.phase}=Succeeded"
    stack.kubectl("wait", told, f"appwrapper/{name}", "--namespace", "research", "--timeout=120s")


@pytest.mark.row("F15", level="e2e")
async def test_F15_the_chart_installs_it_and_it_goes_again(bare: Stack, tmp_path: Path):
    await asyncio.to_thread(write_worker_image, tmp_path / "worker.tar", f"{IMAGE}:1", tmp_path / "installed")
    ctr = await asyncio.to_thread(bare.binary, "ctr")
    await asyncio.to_thread(import_images, RealNode(bare.directory), ctr, tmp_path / "worker.tar")
    async with reachable(bare) as (api, temporal):
        await asyncio.to_thread(_lifecycle, bare, tmp_path, values(bare, api, temporal))


def _lifecycle(stack: Stack, directory: Path, given: dict[str, Any]) -> None:
    file = directory / "values.yaml"
    file.write_text(yaml.safe_dump(given))
    stack.kubectl("create", "namespace", "holdfast-system")
    stack.kubectl("label", "namespace", "holdfast-system", RESTRICTED)
    refused = helm("install", *RELEASE, kubeconfig=stack.kubeconfig, check=False)
    assert "/cluster" in refused
    assert "/temporal/address" in refused
    own = (*RELEASE, "--values", str(file), "--wait", "--timeout", "5m")
    try:
        assert "Holdfast runs for cluster prod" in helm("install", *own, kubeconfig=stack.kubeconfig)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{_told(stack)}") from None
    pods = stack.kubectl("get", "pods", "--namespace", "holdfast-system", "-o", "name").split()
    assert len(pods) == 4
    holdfast(stack, "namespace", "enable", "research")
    holdfast(stack, "doctor", "--cluster", "prod", "--fix")
    lives(stack, "first")
    # One of each is lost: the other goes on.
    stack.kubectl("delete", "--namespace", "holdfast-system", "--grace-period=0", "--force", *pods[::2])
    lives(stack, "second")
    helm("upgrade", *own, "--set", "replicas=1", kubeconfig=stack.kubeconfig)
    lives(stack, "third")
    helm("test", *RELEASE[:1], *RELEASE[2:], "--timeout", "2m", kubeconfig=stack.kubeconfig)
    _secured(stack, directory, own)
    stack.kubectl("apply", "--dry-run=server", "-k", str(WORKERS.parent))
    holdfast(stack, "uninstall", "--yes", "--workloads", "remove")
    helm("uninstall", *RELEASE[:1], *RELEASE[2:], "--wait", kubeconfig=stack.kubeconfig)
    left = stack.kubectl("get", "crd,validatingadmissionpolicy,clusterrole", "-o", "name").split()
    # What tames the fake nodes is the local stack's own.
    assert not [name for name in left if "holdfast" in name and "/holdfast-dev-" not in name]
    stack.kubectl("delete", "namespace", "research", "holdfast-system", "--timeout=60s")


def _secured(stack: Stack, directory: Path, own: tuple[str, ...]) -> None:
    """Turn encryption and the gang door on, and see that a life is encrypted, and that gangs are served over TLS."""
    secret = ("create", "secret", "generic", "--namespace", "holdfast-system")
    keys = directory / "keys.json"
    holdfast(stack, "keys", "new", str(keys))
    stack.kubectl(*secret, "codec", f"--from-file=keys.json={keys}")
    authority = Authority(directory / "authority", "gangs")
    pair = authority.sign("rendezvous")
    files = {"tls.crt": pair.certificate, "tls.key": pair.key, "ca.crt": authority.certificate}
    stack.kubectl(*secret, "gangs", *(f"--from-file={name}={file}" for name, file in files.items()))
    secrets = "temporal.codec.secret=codec,temporal.codec.acceptPlaintext=true,rendezvous.certificateSecret=gangs"
    helm("upgrade", *own, "--set", f"replicas=1,{secrets}", kubeconfig=stack.kubeconfig)
    lives(stack, "fourth")
    assert "Succeeded" in holdfast(stack, "history", "research/fourth", keys=keys)
    show = ("workflow", "show", "--address", stack.temporal_address, "--output", "json", "--workflow-id")
    program = str(stack.binary("temporal"))
    shown = {
        name: subprocess.run([program, *show, f"workload/prod/research/{name}"], capture_output=True, check=True).stdout
        for name in ("third", "fourth")
    }
    decoded = {
        name: b"\n".join(map(base64.b64decode, re.findall(rb'"data": "([A-Za-z0-9+/=]*)"', text)))
        for name, text in shown.items()
    }
    assert b"busybox" in decoded["third"]
    assert b"busybox" not in decoded["fourth"]
    assert base64.b64encode(b"binary/encrypted") in shown["fourth"]
    pod = ("pod", "--namespace", "holdfast-system", "-l", "app.kubernetes.io/component=cluster")
    address = stack.kubectl("get", *pod, "-o", "jsonpath={.items[0].status.podIP}")
    trust = ssl.create_default_context(cafile=str(authority.certificate))
    trust.check_hostname = False  # The certificate is for another name: without a network for services none is reached.
    with socket.create_connection((address, 8086), 10) as connection, trust.wrap_socket(connection):
        pass


def test_the_manifests_are_as_the_chart_has_them():
    assert WORKERS.read_text() == workers(), "make manifests"


def _told(stack: Stack) -> str:
    """Return what on-call would look at."""
    there = ("--namespace", "holdfast-system")
    told = [stack.kubectl("get", "pods,replicasets,events", "-o", "wide", *there)]
    for pod in stack.kubectl("get", "pods", "-o", "name", *there).split():
        with contextlib.suppress(StackError):
            told.append(stack.kubectl("logs", pod, "--tail=10", *there))
    return "\n".join(told)
