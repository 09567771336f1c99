"""The published Kueue in a local stack: its program, CRDs, webhooks and configuration.

Its webhooks use the certificate of the stack's API server. Its configuration names Attempt in
`externalFrameworks`, so that it does not manage the objects below an admitted AppWrapper (row F6).
"""

import base64
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import yaml

from holdfast.local.programs.gobuild import source_of
from holdfast.local.programs.tools import TOOLS
from holdfast.local.system.cluster import Kubectl
from holdfast.local.system.errors import StackError
from holdfast.local.system.parts import Layout, Part
from holdfast.local.system.ports import LOOPBACK

NAME = "kueue"
PORTS = ("kueue", "kueue-webhook")
FRAMEWORKS = ("batch/job", "workload.codeflare.dev/appwrapper", "jobset.x-k8s.io/jobset")
EXTERNAL_FRAMEWORKS = ("Attempt.v1.holdfast.dev",)
_ASKED = frozenset(
    {"appwrappers", "jobsets", "jobs", "workloads", "clusterqueues", "localqueues", "resourceflavors", "cohorts"}
)
"""The resources for which the API server calls its webhooks here."""
_METRICS = "/etc/kueue/metrics/certs"
"""The folder in which Kueue 0.19 looks for its metrics' certificates, regardless of its configuration."""
_CONFIG_MAP = ("kueue-manager-config", "kueue-system", "controller_manager_config.yaml")
"""The ConfigMap in which Kueue's own installation keeps its configuration; `doctor` reads it there."""

Json = dict[str, Any]


def components() -> Path:
    """Return the folder of Kueue's own manifests, in its Go module."""
    return source_of(TOOLS[NAME]) / "config" / "components"


def configuration(port: int, certificates: Path, health: str, **settings: Any) -> Json:
    """Return Kueue's own configuration.

    Args:
        port: the port of its webhooks.
        certificates: the folder of the webhooks' certificates.
        health: `host:port` of its probes.
        settings: fields that override those of a local stack.
    """
    return {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "internalCertManagement": {"enable": False},
        "leaderElection": {"leaderElect": False},
        "webhook": {"host": LOOPBACK, "port": port, "certDir": str(certificates)},
        "metrics": {"bindAddress": "0"},
        "health": {"healthProbeBindAddress": health},
        "featureGates": {"VisibilityOnDemand": False},
        "integrations": {"frameworks": list(FRAMEWORKS), "externalFrameworks": list(EXTERNAL_FRAMEWORKS)},
        **settings,
    }


def definitions(folder: Path) -> Iterator[Json]:
    """Yield its custom resource definitions, without their conversion webhook: the stack uses only one version."""
    for file in sorted((folder / "crd" / "bases").glob("*.yaml")):
        definition: Json = yaml.safe_load(file.read_text())
        definition["spec"].pop("conversion", None)
        yield definition


def webhooks(folder: Path, port: int, authority: bytes, asked: frozenset[str] = _ASKED, **fields: Any) -> list[Json]:
    """Return its webhook configurations, for the loopback address.

    Args:
        folder: the folder of its manifests.
        port: the port at which it listens.
        authority: the certificate to verify its own.
        asked: the resources for which the API server calls it.
        fields: fields that override those of each webhook.
    """
    bundle = base64.b64encode(authority).decode()
    found: list[Json] = []
    for one in yaml.safe_load_all((folder / "webhook" / "manifests.yaml").read_text()):
        hooks = [
            {
                **hook,
                "clientConfig": {
                    "url": f"https://{LOOPBACK}:{port}{hook['clientConfig']['service']['path']}",
                    "caBundle": bundle,
                },
                **fields,
            }
            for hook in cast("list[Json]", one["webhooks"])
            if asked & {resource for rule in hook["rules"] for resource in rule["resources"]}
        ]
        found.append({**one, "metadata": {"name": NAME}, "webhooks": hooks})
    return found


def certify(pki: Path, folder: Path) -> None:
    """Copy the certificate and key that Kueue serves with, those of the API server, into a folder."""
    folder.mkdir(exist_ok=True)
    for ours, theirs in (("apiserver.crt", "tls.crt"), ("apiserver.key", "tls.key")):
        shutil.copyfile(pki / ours, folder / theirs)


def with_certificates(folder: Path) -> list[str]:
    """Return a command prefix that also shows a folder's certificates to a program where Kueue expects them. As root.

    The program gets an `/etc` of its own; the machine's stays unchanged.
    """
    script = (
        f'cd "$1" && shift && rm -rf upper work && mkdir upper work && '
        f"mount -t overlay overlay -o lowerdir=/etc,upperdir=upper,workdir=work /etc && "
        f'mkdir -p {_METRICS} && cp tls.* {_METRICS} && exec "$@"'
    )
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", str(folder)]


def part(layout: Layout, program: str, ports: Mapping[str, int]) -> Part:
    """Return Kueue as a part of a stack."""
    health = f"{LOOPBACK}:{ports['kueue']}"
    config = layout.write_config("kueue.yaml", yaml.safe_dump(_of(layout, ports)))
    argv = (*with_certificates(_folder(layout)), program, f"--config={config}", f"--kubeconfig={layout.kubeconfig}")
    return Part(NAME, argv, f"https://{LOOPBACK}:{ports['kueue-webhook']}", f"http://{health}/readyz", PORTS)


def _folder(layout: Layout) -> Path:
    return layout.directory / NAME


def _of(layout: Layout, ports: Mapping[str, int]) -> Json:
    return configuration(ports["kueue-webhook"], _folder(layout), f"{LOOPBACK}:{ports['kueue']}")


def require() -> None:
    """Refuse a machine on which Kueue cannot get its certificates.

    Raises:
        StackError: the system is not Linux, or the user is not root.
    """
    if os.uname().sysname != "Linux" or os.geteuid() != 0:
        raise StackError("Kueue needs root, on Linux: it is shown certificates in an /etc of its own", "sudo")


def install(kubectl: Kubectl, layout: Layout, ports: Mapping[str, int]) -> None:
    """Create the objects that Kueue needs in the cluster before it starts."""
    certify(layout.pki, _folder(layout))
    found = list(definitions(components()))
    _apply(kubectl, found)
    for one in found:
        kubectl("wait", "--for=condition=Established", "--timeout=60s", f"crd/{one['metadata']['name']}")
    name, namespace, key = _CONFIG_MAP
    _apply(
        kubectl,
        [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": name, "namespace": namespace},
                "data": {key: yaml.safe_dump(_of(layout, ports))},
            },
        ],
    )


def connect(kubectl: Kubectl, layout: Layout, ports: Mapping[str, int]) -> None:
    """Configure the API server to call the webhooks of Kueue, which must be ready."""
    authority = (layout.pki / "apiserver.crt").read_bytes()
    _apply(kubectl, webhooks(components(), ports["kueue-webhook"], authority))


def _apply(kubectl: Kubectl, documents: list[Json]) -> None:
    text = "---\n".join(json.dumps(one) + "\n" for one in documents)
    kubectl("apply", "--server-side", "--force-conflicts", "--field-manager=holdfast-dev", "-f", "-", stdin=text)
