"""The published JobSet controller, and its restarts in place with its published agent on the real node (J25)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import urlsplit

import yaml

from bench.ground import Ground
from bench.seeing import Json
from holdfast.local import Stack
from holdfast.local.node.real_node import RealNode
from holdfast.local.programs.resolve import resolve
from holdfast.local.system.ports import LOOPBACK
from tests.e2e.figures.in_place import pod_of
from tests.e2e.ground.held import real_node
from tests.e2e.ground.site import until
from tests.e2e.peers.jobset_peer import IN_PLACE, PROGRAM, Peer, open_peer
from tests.e2e.peers.suite import import_image

AGENT: Final = "jobset-agent"
IMAGE: Final = "holdfast.local/jobset-agent:1"
_MOUNTED: Final = "/cluster"
_ACCOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
_RULES: Final = [
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["patch"]},
    {"apiGroups": ["jobset.x-k8s.io"], "resources": ["jobsets"], "verbs": ["get", "list", "watch"]},
]
"""What the published agent may do, as KEP-467 grants it."""


@asynccontextmanager
async def open_jobset(
    ground: Ground, folder: str, *, gates: Iterable[str] = (), places_pods: bool = False, **settings: Any
) -> AsyncIterator[Peer]:
    """Run the controller, with a namespace of its own for its work, which is gone afterwards.

    Args:
        ground: where.
        folder: of its log and configuration, in the ground's directory.
        gates: the feature gates to switch on, such as `InPlaceRestart`; the others keep their defaults.
        places_pods: whether its webhooks for pods are on, which place the pods of exclusive topologies.
        settings: of its configuration file, beside its defaults.
    """
    directory = ground.directory / folder
    directory.mkdir()
    async with (
        ground.floor.turns[PROGRAM],
        open_peer(ground.stack, directory, gates=gates, places_pods=places_pods, **settings) as peer,
    ):
        yield peer
    await ground.drop(peer.namespace)


@asynccontextmanager
async def open_in_place(ground: Ground, folder: str) -> AsyncIterator[Peer]:
    """Run the controller with restarts in place, and all that its agents need."""
    stack = ground.stack
    async with (
        real_node(stack),
        open_jobset(ground, folder, gates=(IN_PLACE,)) as peer,
        _reachable(stack) as server,
    ):
        (program,) = (await asyncio.to_thread(resolve, [AGENT], print)).values()
        await import_image(stack, ground.directory / folder, IMAGE, {"agent": program.read_bytes()})
        await _admit(peer, server)
        yield peer


def with_published_agent(document: Json, name: str) -> Json:
    """Return a JobSet whose in-place restart agent is the published one; it reaches the API server by a kubeconfig."""
    spec = pod_of(document)
    (agent,) = spec["initContainers"]
    agent.update(image=IMAGE, command=["agent"])
    agent["env"] = [
        {"name": "JOBSET_NAME", "value": name},
        {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "KUBECONFIG", "value": f"{_MOUNTED}/kubeconfig"},
    ]
    agent["volumeMounts"] = [{"name": "cluster", "mountPath": _MOUNTED}]
    spec["volumes"] = [{"name": "cluster", "configMap": {"name": "cluster"}}]
    return document


@asynccontextmanager
async def _reachable(stack: Stack) -> AsyncIterator[str]:
    """Let pods of the real node reach the API server, which listens on loopback; yield the address that they use."""
    target = urlsplit(stack.parts()["kube-apiserver"].address)

    async def passed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            answer, request = await asyncio.open_connection(target.hostname, target.port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(_copied(reader, request), _copied(answer, writer))

    relay = await asyncio.start_server(passed, RealNode(stack.directory).address, 0)
    async with relay:
        host, port = relay.sockets[0].getsockname()[:2]
        yield f"https://{host}:{port}"


async def _copied(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    """Pass bytes on until either side closes."""
    with contextlib.suppress(OSError):
        while data := await source.read(65536):
            target.write(data)
            await target.drain()
    target.close()


async def _admit(peer: Peer, server: str) -> None:
    """Give the pods of a namespace what their agents need: an account with the published rights, and a kubeconfig."""
    kube, namespace = peer.kube, peer.namespace

    async def has_account() -> bool:
        return await kube.find("v1", "ServiceAccount", "default", namespace) is not None

    await until(has_account, 30, "the default service account is there")
    rbac, metadata = "rbac.authorization.k8s.io", {"name": "in-place-restart-agent", "namespace": namespace}
    await kube.create({"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": metadata, "rules": _RULES})
    await kube.create(
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": metadata["name"]},
            "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": namespace}],
        }
    )
    # The API server's certificate names its loopback address.
    cluster = {"server": server, "certificate-authority": f"{_ACCOUNT}/ca.crt", "tls-server-name": LOOPBACK}
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "here", "cluster": cluster}],
        "users": [{"name": "pod", "user": {"tokenFile": f"{_ACCOUNT}/token"}}],
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "pod"}}],
        "current-context": "here",
    }
    data = {"kubeconfig": yaml.safe_dump(kubeconfig)}
    metadata = {"name": "cluster", "namespace": namespace}
    await kube.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
