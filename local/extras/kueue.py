"""The published Kueue beside a local stack: its program, definitions, webhooks and configuration.

Its webhooks serve with the certificate of the stack's API server. Its configuration names Attempt in
`externalFrameworks`: so it leaves what is under an admitted AppWrapper alone (row F6).
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
FRAMEWORKS = ("batch/job", "workload.codeflare.dev/appwrapper")
EXTERNAL_FRAMEWORKS = ("Attempt.v1.holdfast.dev",)
_ASKED = frozenset({"appwrappers", "jobs", "workloads", "clusterqueues", "localqueues", "resourceflavors", "cohorts"})
"""What its webhooks are asked about here."""
_METRICS = "/etc/kueue/metrics/certs"
"""Where Kueue 0.19 looks for its metrics' certificates, whatever its configuration says."""
_CONFIG_MAP = ("kueue-manager-config", "kueue-system", "controller_manager_config.yaml")
"""Where Kueue's own installation keeps its configuration, and where `doctor` reads it."""

Json = dict[str, Any]


def components() -> Path:
    """The folder of Kueue's own manifests, in its Go module."""
    return source_of(TOOLS[NAME]) / "config" / "components"


def configuration(port: int, certificates: Path, health: str, **settings: Any) -> Json:
    """Return Kueue's own configuration.

    Args:
        port: where its webhooks listen.
        certificates: the folder of what they serve with.
        health: `host:port` of its probes.
        settings: fields of it that differ from what a local stack has.
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
    """Return its custom resource definitions, without their conversion webhook: one version alone is used here."""
    for file in sorted((folder / "crd" / "bases").glob("*.yaml")):
        definition: Json = yaml.safe_load(file.read_text())
        definition["spec"].pop("conversion", None)
        yield definition


def webhooks(folder: Path, port: int, authority: bytes, asked: frozenset[str] = _ASKED, **fields: Any) -> list[Json]:
    """Return its webhook configurations, for this address.

    Args:
        folder: of its manifests.
        port: where it listens.
        authority: the certificate that its own is checked against.
        asked: the resources that it is asked about.
        fields: of each webhook, in place of its own.
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
    """Put what Kueue serves with into a folder: the API server's certificate."""
    folder.mkdir(exist_ok=True)
    for ours, theirs in (("apiserver.crt", "tls.crt"), ("apiserver.key", "tls.key")):
        shutil.copyfile(pki / ours, folder / theirs)


def with_certificates(folder: Path) -> list[str]:
    """Return what runs a program for which a folder's certificates also lie where Kueue looks for one. As root.

    It sees an `/etc` of its own: the machine's stays as it is.
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
    """Refuse a machine on which Kueue cannot be given its certificates.

    Raises:
        StackError: it is not Linux, or this is not root.
    """
    if os.uname().sysname != "Linux" or os.geteuid() != 0:
        raise StackError("Kueue needs root, on Linux: it is shown certificates in an /etc of its own", "sudo")


def install(kubectl: Kubectl, layout: Layout, ports: Mapping[str, int]) -> None:
    """Put into the cluster what Kueue needs before it starts."""
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
    """Have the API server ask Kueue, which is ready."""
    authority = (layout.pki / "apiserver.crt").read_bytes()
    _apply(kubectl, webhooks(components(), ports["kueue-webhook"], authority))


def _apply(kubectl: Kubectl, documents: list[Json]) -> None:
    text = "---\n".join(json.dumps(one) + "\n" for one in documents)
    kubectl("apply", "--server-side", "--force-conflicts", "--field-manager=holdfast-dev", "-f", "-", stdin=text)
