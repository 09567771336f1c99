"""The parts of a stack as data: the command line of each, how to see that it is healthy, and how long it may take."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from holdfast.local.system.credentials import write_private
from holdfast.local.system.paths import PACKAGE
from holdfast.local.system.ports import LOOPBACK

CLUSTER_PORTS = ("etcd", "etcd-peer", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok")
TEMPORAL_PORTS = ("temporal", "temporal-ui", "temporal-http", "temporal-metrics")

# Ports whose part is not called like them.
PORT_OWNERS = {
    "etcd-peer": "etcd",
    "temporal-ui": "temporal",
    "temporal-http": "temporal",
    "temporal-metrics": "temporal",
    "kubelet-health": "kubelet",
    "kueue-webhook": "kueue",
}

SEARCH_ATTRIBUTES = {
    "HoldfastPhase": "Keyword",
    "HoldfastReason": "Keyword",
    "HoldfastCluster": "Keyword",
    "HoldfastNamespace": "Keyword",
    "HoldfastName": "Keyword",
    "HoldfastKind": "Keyword",
    "HoldfastQueue": "Keyword",
    "HoldfastSubmitted": "Bool",
    "HoldfastAttempt": "Int",
    "HoldfastRestarts": "Int",
}

# The development server is made for one developer; benches and soak tests start hundreds of workflows a second.
DYNAMIC_CONFIG = {
    "frontend.rps": "20000",
    "frontend.namespaceRPS": "20000",
    "frontend.namespaceCount": "10000",
    "frontend.namespaceRPS.visibility": "1000",
    "history.rps": "50000",
    "matching.rps": "50000",
    # Four partitions of a queue, which forward to one another, are of no use to one server.
    "matching.numTaskqueueReadPartitions": "1",
    "matching.numTaskqueueWritePartitions": "1",
    # A worker whose host died in silence is given no more work after 15 s. By default that takes 70 s.
    "frontend.keepAliveTime": '"10s"',
    "frontend.keepAliveTimeout": '"5s"',
}

CONTROLLERS = (
    "clusterrole-aggregation-controller",
    "cronjob-controller",
    "daemonset-controller",
    "deployment-controller",
    "disruption-controller",
    "endpointslice-controller",
    "garbage-collector-controller",
    "job-controller",
    "namespace-controller",
    "node-lifecycle-controller",
    "persistentvolumeclaim-protection-controller",
    "pod-garbage-collector-controller",
    "replicaset-controller",
    "resourcequota-controller",
    "root-ca-certificate-publisher-controller",
    "serviceaccount-controller",
    "serviceaccount-token-controller",
    "statefulset-controller",
    "taint-eviction-controller",
    "ttl-after-finished-controller",
)

CLIENT_QPS, CLIENT_BURST = 1000, 2000


@dataclass(frozen=True)
class Part:
    """One program of the stack.

    Attributes:
        name: its name, also of its log file.
        argv: its command line.
        address: where it listens, for people.
        health: address that answers 200 when it is healthy, or one (`unix://`, `tcp://`) that then accepts connections.
        ports: the ports that must be free before it starts, by purpose.
        seconds: how long it may take to become healthy, on a busy machine.
        path: a folder that it searches before PATH, or empty.
        host: where it listens on the first of its ports.
    """

    name: str
    argv: tuple[str, ...]
    address: str
    health: str
    ports: tuple[str, ...]
    seconds: float = 90.0
    path: str = ""
    host: str = LOOPBACK


@dataclass(frozen=True)
class Layout:
    """Where the files of one stack are."""

    directory: Path

    @property
    def pki(self) -> Path:
        """Keys, certificates and tokens."""
        return self.directory / "pki"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.directory / "kubeconfig"

    @property
    def audit_log(self) -> Path:
        """The API server's audit log, one JSON document a line."""
        return self.directory / "logs" / "audit.log"

    def data(self, part: str) -> Path:
        """Where a part keeps what must outlive it: a folder, or a file and those beside it that begin like it."""
        return self.directory / "data" / {"temporal": "temporal.sqlite"}.get(part, part)

    def user_kubeconfig(self, user: str) -> Path:
        """The kubeconfig of a part of the control plane."""
        return self.directory / "pki" / f"{user}.kubeconfig"

    def log(self, part: str) -> Path:
        """Where a part's output goes."""
        return self.directory / "logs" / f"{part}.log"

    def write_config(self, name: str, text: str) -> Path:
        """Write a part's config file. Its name changes with its content, so a changed one restarts the part."""
        digest = hashlib.sha256(text.encode()).hexdigest()[:10]
        stem, dot, ending = name.partition(".")
        path = self.directory / "config" / f"{stem}-{digest}{dot}{ending}"
        write_private(path, text)
        return path


def etcd(layout: Layout, program: str, ports: Mapping[str, int]) -> Part:
    """The store of the cluster, without fsync: a crash of the machine may lose it, a kill -9 does not."""
    client, peer = (f"http://{LOOPBACK}:{ports[name]}" for name in ("etcd", "etcd-peer"))
    argv = (
        program,
        "--name=holdfast",
        f"--data-dir={layout.data('etcd')}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=holdfast={peer}",
        "--unsafe-no-fsync",
        "--log-level=warn",
        f"--quota-backend-bytes={4 << 30}",
    )
    return Part("etcd", argv, client, f"{client}/health", ("etcd", "etcd-peer"), 60)


def kube_apiserver(layout: Layout, program: str, ports: Mapping[str, int], *, audit_bodies: bool = True) -> Part:
    """The API server. It can show a kubelet who it is if there is a certificate for that."""
    address = f"https://{LOOPBACK}:{ports['kube-apiserver']}"
    rules = (PACKAGE / "audit-policy.yaml").read_text()
    if not audit_bodies:
        rules = re.sub(r"level: Request(Response)?\b", "level: Metadata", rules)
    policy = layout.write_config("audit-policy.yaml", rules)
    argv = [
        program,
        f"--etcd-servers=http://{LOOPBACK}:{ports['etcd']}",
        f"--bind-address={LOOPBACK}",
        f"--advertise-address={LOOPBACK}",
        f"--secure-port={ports['kube-apiserver']}",
        # It would publish its own address as that of the service `kubernetes`, and refuses to for a loopback one.
        "--endpoint-reconciler-type=none",
        f"--cert-dir={layout.pki}",
        "--anonymous-auth=false",
        f"--token-auth-file={layout.pki / 'tokens.csv'}",
        "--authorization-mode=Node,RBAC",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={layout.pki / 'service-accounts.key'}",
        f"--service-account-signing-key-file={layout.pki / 'service-accounts.key'}",
        "--service-cluster-ip-range=10.96.0.0/16",
        f"--audit-policy-file={policy}",
        f"--audit-log-path={layout.audit_log}",
        "--audit-log-maxsize=200",
        "--audit-log-maxbackup=2",
        "--profiling=false",
    ]
    if (layout.pki / "kubelet-client.crt").exists():
        argv += [
            f"--kubelet-client-certificate={layout.pki / 'kubelet-client.crt'}",
            f"--kubelet-client-key={layout.pki / 'kubelet-client.key'}",
            "--kubelet-preferred-address-types=InternalIP,Hostname",
        ]
    return Part("kube-apiserver", tuple(argv), address, f"{address}/readyz", ("kube-apiserver",), 120)


def kube_controller_manager(layout: Layout, program: str, ports: Mapping[str, int]) -> Part:
    """The controllers that a workload's life needs, faster than their defaults."""
    port = ports["kube-controller-manager"]
    argv = (
        program,
        f"--kubeconfig={layout.user_kubeconfig('controller-manager')}",
        f"--bind-address={LOOPBACK}",
        f"--secure-port={port}",
        "--leader-elect=false",
        f"--controllers={','.join(CONTROLLERS)}",
        f"--service-account-private-key-file={layout.pki / 'service-accounts.key'}",
        f"--root-ca-file={layout.pki / 'apiserver.crt'}",
        f"--kube-api-qps={CLIENT_QPS}",
        f"--kube-api-burst={CLIENT_BURST}",
        "--concurrent-gc-syncs=50",
        "--concurrent-job-syncs=20",
        "--concurrent-statefulset-syncs=20",
        "--concurrent-namespace-syncs=10",
        "--profiling=false",
    )
    address = f"https://{LOOPBACK}:{port}"
    return Part("kube-controller-manager", argv, address, f"{address}/healthz", ("kube-controller-manager",))


def kube_scheduler(layout: Layout, program: str, ports: Mapping[str, int]) -> Part:
    """The scheduler."""
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {
            "kubeconfig": str(layout.user_kubeconfig("scheduler")),
            "qps": CLIENT_QPS,
            "burst": CLIENT_BURST,
        },
    }
    port = ports["kube-scheduler"]
    argv = (
        program,
        f"--config={layout.write_config('kube-scheduler.yaml', yaml.safe_dump(config))}",
        f"--bind-address={LOOPBACK}",
        f"--secure-port={port}",
    )
    address = f"https://{LOOPBACK}:{port}"
    return Part("kube-scheduler", argv, address, f"{address}/healthz", ("kube-scheduler",))


def kwok(layout: Layout, program: str, ports: Mapping[str, int]) -> Part:
    """What plays the kubelets of the fake nodes."""
    config = {
        "apiVersion": "config.kwok.x-k8s.io/v1alpha1",
        "kind": "KwokConfiguration",
        "options": {
            "manageNodesWithAnnotationSelector": "kwok.x-k8s.io/node=fake",
            # Heartbeats go through the status (stages/nodes.yaml), where a label can silence one node alone.
            "nodeLeaseDurationSeconds": 0,
            "podPlayStageParallelism": 16,
            "nodePlayStageParallelism": 8,
            "serverAddress": f"{LOOPBACK}:{ports['kwok']}",
            "cidr": "10.200.0.1/16",
            "nodeIP": LOOPBACK,
        },
    }
    stages = [(PACKAGE / "stages" / name).read_text() for name in ("nodes.yaml", "pods.yaml")]
    text = "\n---\n".join([yaml.safe_dump(config), *stages])
    argv = (
        program,
        f"--kubeconfig={layout.user_kubeconfig('kwok')}",
        f"--config={layout.write_config('kwok.yaml', text)}",
    )
    address = f"http://{LOOPBACK}:{ports['kwok']}"
    return Part("kwok", argv, address, f"{address}/healthz", ("kwok",))


def temporal(layout: Layout, program: str, ports: Mapping[str, int], dynamic_config: Mapping[str, str]) -> Part:
    """The Temporal development server with its Web UI, on a database file that outlives it."""
    argv = [
        program,
        "server",
        "start-dev",
        f"--ip={LOOPBACK}",
        f"--port={ports['temporal']}",
        f"--ui-ip={LOOPBACK}",
        f"--ui-port={ports['temporal-ui']}",
        f"--http-port={ports['temporal-http']}",
        f"--metrics-port={ports['temporal-metrics']}",
        f"--db-filename={layout.data('temporal')}",
        # As etcd here: a crash of the machine may lose what is newest, a kill -9 does not. By SQLite's own defaults
        # each change waits for the disk several times, and all others behind it.
        "--sqlite-pragma=journal_mode=WAL",
        "--sqlite-pragma=synchronous=OFF",
        "--log-level=warn",
    ]
    argv += [f"--search-attribute={name}={kind}" for name, kind in SEARCH_ATTRIBUTES.items()]
    argv += [f"--dynamic-config-value={key}={value}" for key, value in {**DYNAMIC_CONFIG, **dynamic_config}.items()]
    health = f"http://{LOOPBACK}:{ports['temporal-http']}/api/v1/namespaces/default"
    return Part("temporal", tuple(argv), f"{LOOPBACK}:{ports['temporal']}", health, TEMPORAL_PORTS)
