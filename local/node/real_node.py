"""The real node: a kubelet and a containerd of this stack's own, and their configuration, images and network."""

import hashlib
import json
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from holdfast.local.node.certificate import self_signed
from holdfast.local.node.requirements import find_cni, find_static_busybox
from holdfast.local.programs.images import PAUSE, write_archive
from holdfast.local.system.errors import StackError
from holdfast.local.system.parts import Layout, Part
from holdfast.local.system.paths import PACKAGE
from holdfast.local.system.ports import LOOPBACK

NODE = "real"
LABEL = "holdfast.dev/node=real"
TAINT = {"key": "holdfast.dev/real", "value": "true", "effect": "NoSchedule"}

PORTS = ("kubelet", "kubelet-health")


@dataclass(frozen=True)
class RealNode:
    """The paths of one stack's real node; they are short, because a socket path is limited to 107 characters.

    Attributes:
        stack: folder of the stack.
    """

    stack: Path

    @property
    def identity(self) -> str:
        """Distinguishes the nodes of several stacks."""
        return hashlib.sha256(str(self.stack).encode()).hexdigest()[:8]

    @property
    def run(self) -> Path:
        """Sockets, mounts and network namespaces."""
        return Path("/run/holdfast") / self.identity

    @property
    def data(self) -> Path:
        """Images, container files and volumes."""
        return Path("/var/lib/holdfast") / self.identity

    @property
    def socket(self) -> Path:
        """Containerd's socket."""
        return self.run / "containerd.sock"

    @property
    def bridge(self) -> str:
        """The pods' network interface on the host (at most 15 characters)."""
        return f"hf-{self.identity}"

    @property
    def subnet(self) -> str:
        """First three numbers of the pod network."""
        number = int(self.identity, 16)
        return f"10.{100 + number % 90}.{number // 90 % 256}"

    @property
    def address(self) -> str:
        """Address of the node: the bridge's own, which only this machine can reach."""
        return f"{self.subnet}.1"

    @property
    def cgroup(self) -> str:
        """Parent of the cgroups of all pods."""
        return f"/holdfast-{self.identity}"


def write_client_certificate(folder: Path) -> bool:
    """Write the API server's client certificate for the kubelet; return False if openssl is missing or fails."""
    certificate, key = folder / "kubelet-client.crt", folder / "kubelet-client.key"
    if certificate.exists() and key.exists():
        return True
    subject = "/O=system:masters/CN=kube-apiserver-kubelet-client"
    return self_signed(certificate, key, subject, "extendedKeyUsage=clientAuth")


def prepare(node: RealNode, shim: Path) -> None:
    """Create folders, images, the bridge and cgroups on a machine after a sweep.

    Args:
        node: the node.
        shim: containerd's shim; the node links it under the name that containerd expects.
    """
    for folder in (node.run, node.data):
        folder.mkdir(parents=True, exist_ok=True, mode=0o711)
    busybox = find_static_busybox()
    if busybox is None:
        raise StackError("the real node needs a static busybox", "apt-get install busybox-static")
    (node.data / "bin").mkdir()
    (node.data / "bin" / "containerd-shim-runc-v2").symlink_to(shim)
    write_archive(node.data / "images.tar", busybox)
    write_network_config(node)
    ensure_network(node)
    for root in cgroup_roots():
        (root / node.cgroup.strip("/")).mkdir(exist_ok=True)


def ensure_network(node: RealNode) -> None:
    """Create the missing parts of the bridge with the node's address: a killed process may have left it incomplete."""
    if not Path("/sys/class/net", node.bridge).exists():
        _run("ip", "link", "add", node.bridge, "type", "bridge")
    _run("ip", "address", "replace", f"{node.address}/24", "dev", node.bridge)
    _run("ip", "link", "set", node.bridge, "up")


def cgroup_roots() -> list[Path]:
    """Return the root of each cgroup hierarchy in which the kubelet keeps the cgroups of its pods."""
    base = Path("/sys/fs/cgroup")
    if (base / "cgroup.controllers").exists():
        return [base]
    return [folder for folder in base.iterdir() if (folder / "cgroup.procs").exists() and folder.name != "unified"]


def containerd_config(node: RealNode) -> str:
    """Return containerd's config file (TOML, with strings in JSON syntax)."""
    text = json.dumps
    return f"""version = 3
root = {text(str(node.data / "containerd"))}
state = {text(str(node.run / "containerd"))}
disabled_plugins = ["io.containerd.nri.v1.nri"]
[grpc]
address = {text(str(node.socket))}
[ttrpc]
address = {text(f"{node.socket}.ttrpc")}
[plugins."io.containerd.cri.v1.images"]
snapshotter = "native"
[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = {text(PAUSE)}
[plugins."io.containerd.cri.v1.runtime"]
restrict_oom_score_adj = true
disable_apparmor = true
tolerate_missing_hugetlb_controller = true
netns_mounts_under_state_dir = true
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
BinaryName = {text(shutil.which("runc") or "runc")}
Root = {text(str(node.run / "runc"))}
SystemdCgroup = false
[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = [{text(str(find_cni() or ""))}]
conf_dir = {text(str(node.data / "cni"))}
"""


def write_network_config(node: RealNode) -> None:
    """Write the CNI config by which pods get their addresses."""
    config = {
        "cniVersion": "0.4.0",
        "name": f"holdfast-{node.identity}",
        "plugins": [
            {
                "type": "bridge",
                "bridge": node.bridge,
                "isGateway": True,
                "ipMasq": False,
                "hairpinMode": True,
                "ipam": {
                    "type": "host-local",
                    "dataDir": str(node.run / "addresses"),
                    "ranges": [[{"subnet": f"{node.subnet}.0/24", "gateway": node.address}]],
                },
            }
        ],
    }
    folder = node.data / "cni"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "10-holdfast.conflist").write_text(json.dumps(config, indent=2))


def kubelet_config(node: RealNode, client_ca: Path, port: int, health_port: int) -> str:
    """Return the kubelet's config file: it listens on the bridge's address; the API server authorizes its clients."""
    text = (PACKAGE / "kubelet.yaml").read_text()
    config: dict[str, object] = yaml.safe_load(text)
    config |= {
        "address": node.address,
        "port": port,
        "healthzPort": health_port,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(client_ca)},
        },
        "containerRuntimeEndpoint": f"unix://{node.socket}",
        "cgroupRoot": node.cgroup,
        "podLogsDir": str(node.data / "pod-logs"),
        "registerWithTaints": [TAINT],
    }
    return yaml.safe_dump(config)


def import_images(node: RealNode, ctr: Path, archive: Path | None = None) -> None:
    """Import the images of an archive into containerd, by default the node's own.

    Raises:
        StackError: if the import fails.
    """
    address = ("--address", str(node.socket), "--namespace", "k8s.io")
    own = archive or node.data / "images.tar"
    _run(str(ctr), *address, "images", "import", "--local", "--snapshotter", "native", str(own))


def parts(layout: Layout, node: RealNode, binaries: Mapping[str, str], ports: Mapping[str, int]) -> list[Part]:
    """Return the parts of containerd and the kubelet."""
    containerd = (
        binaries.get("containerd", "containerd"),
        f"--config={layout.write_config('containerd.toml', containerd_config(node))}",
    )
    client_ca = layout.pki / "kubelet-client.crt"
    config = kubelet_config(node, client_ca, ports["kubelet"], ports["kubelet-health"])
    kubelet = (
        binaries.get("kubelet", "kubelet"),
        f"--config={layout.write_config('kubelet.yaml', config)}",
        f"--kubeconfig={layout.user_kubeconfig('kubelet')}",
        f"--hostname-override={NODE}",
        f"--node-ip={node.address}",
        f"--node-labels={LABEL}",
        f"--root-dir={node.data / 'kubelet'}",
        f"--cert-dir={node.data / 'pki'}",
    )
    health = f"http://{LOOPBACK}:{ports['kubelet-health']}/healthz"
    return [
        Part(
            "containerd", containerd, f"unix://{node.socket}", f"unix://{node.socket}", (), path=str(node.data / "bin")
        ),
        Part("kubelet", kubelet, f"https://{node.address}:{ports['kubelet']}", health, PORTS, 120, host=node.address),
    ]


def _run(*argv: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise StackError(f"{' '.join(argv)} failed: {(done.stderr or done.stdout).strip()}")
