"""The chart installs Holdfast on a cluster of its own: image, rights, AppWrappers by kubectl, and all of it off again.

`make test-peers` runs this, as root: helm is built from its Go module, about a minute once.
"""

from __future__ import annotations

import asyncio
import base64
import io
import os
import re
import socket
import ssl
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from holdfast.local import Stack
from holdfast.local.node.real_node import RealNode
from holdfast.local.programs.images import Image, write_images
from holdfast.local.programs.python_layer import add
from tests.e2e.chart.helm import RELEASE, ROOT, WORKERS, helm, workers
from tests.e2e.chart.installed import holdfast, load_image, reachable, told, values, write_image
from tests.e2e.ground.proxy import Proxy
from tests.shared_stack import own_stack
from tests.worker.temporal.authority import Authority

pytestmark = [pytest.mark.e2e, pytest.mark.kueue, pytest.mark.timeout(900)]
RESTRICTED = "pod-security.kubernetes.io/enforce=restricted"


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[Stack]:
    """A cluster with a real node, which knows nothing of Holdfast."""
    if os.geteuid() != 0:
        pytest.skip("a real kubelet needs root")
    with own_stack("chart", tmp_path / "stack", nodes=2, real_node=True, apply=False) as made:
        yield made


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
    await load_image(bare, await write_image(tmp_path), RealNode(bare.directory))
    async with reachable(bare) as (api, temporal):
        await asyncio.to_thread(_lifecycle, bare, tmp_path, values(api, temporal))


@pytest.mark.row("F15", level="e2e")
async def test_F15_tried_out_with_a_temporal_of_the_charts_own(bare: Stack, tmp_path: Path):
    image = "holdfast.local/temporal:1"
    await asyncio.to_thread(_write_temporal, tmp_path / "temporal.tar", image, bare.binary("temporal"))
    node = RealNode(bare.directory)
    await load_image(bare, tmp_path / "temporal.tar", node)
    await load_image(bare, await write_image(tmp_path), node)
    async with reachable(bare) as (api, _):
        # Stands for the Service, since the cluster has no network for services.
        service = Proxy("", 7233, api.own_host, 7233)
        given = values(api, [service])
        given["temporal"] = {"devServer": {"enabled": True, "image": image}}
        given["pod"]["hostAliases"][0]["hostnames"].append("holdfast-temporal.holdfast-system.svc")
        given["networkPolicy"] = {"enabled": True}
        await service.start()
        try:
            await asyncio.to_thread(_tried_out, bare, tmp_path, given, service)
        finally:
            await service.close()


def _tried_out(stack: Stack, directory: Path, given: dict[str, Any], service: Proxy) -> None:
    file = directory / "values.yaml"
    file.write_text(yaml.safe_dump(given))
    stack.kubectl("create", "namespace", "holdfast-system")
    stack.kubectl("label", "namespace", "holdfast-system", RESTRICTED)
    own = (*RELEASE, "--values", str(file))
    assert "port-forward" in helm("install", *own, kubeconfig=stack.kubeconfig)
    there = ("--namespace", "holdfast-system")
    pods = ("pod", *there, "-l", "app.kubernetes.io/component=temporal")
    stack.kubectl("rollout", "status", "deployment/holdfast-temporal", *there, "--timeout=60s")
    service.host = stack.kubectl("get", *pods, "-o", "jsonpath={.items[0].status.podIP}")
    helm("upgrade", *own, "--wait", "--timeout", "5m", kubeconfig=stack.kubeconfig)
    temporal = {"TEMPORAL_ADDRESS": f"{service.own_host}:{service.own_port}"}
    holdfast(stack, "namespace", "enable", "research", **temporal)
    lives(stack, "first")
    assert "Succeeded" in holdfast(stack, "history", "research/first", **temporal)
    helm("test", *RELEASE[:1], *RELEASE[2:], "--timeout", "2m", kubeconfig=stack.kubeconfig)
    holdfast(stack, "uninstall", "--yes", "--workloads", "remove", **temporal)
    helm("uninstall", *RELEASE[:1], *RELEASE[2:], "--wait", kubeconfig=stack.kubeconfig)
    assert not stack.kubectl("get", "deployment,service", *there, "-o", "name").split()


def _write_temporal(target: Path, tag: str, program: Path) -> None:
    """Write an image with Temporal's CLI, as the published one has it."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        add(tar, "bin/temporal", program.read_bytes(), 0o755)
    write_images(target, [Image(tag, ["temporal"], [layer.getvalue()])])


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
        raise AssertionError(f"{error}\n{told(stack)}") from None
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
    assert "Succeeded" in holdfast(stack, "history", "research/fourth", HOLDFAST_CODEC_KEYS=str(keys))
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
