"""The parts of a stack as data: the command line of each, its health check, and its time limit to become healthy."""

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

# Ports whose part has another name.
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

# The development server is built for one developer; benches and soak tests start hundreds of workflows per second.
DYNAMIC_CONFIG = {
    "frontend.rps": "20000",
    "frontend.namespaceRPS": "20000",
    "frontend.namespaceCount": "10000",
    "frontend.namespaceRPS.visibility": "1000",
    "history.rps": "50000",
    "matching.rps": "50000",
    # Four partitions of a queue, which forward to each other, have no benefit on one server.
    "matching.numTaskqueueReadPartitions": "1",
    "matching.numTaskqueueWritePartitions": "1",
    # A worker whose host died silently gets no more tasks after 15 s. By default that takes 70 s.
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
        name: its name, and the name of its log file.
        argv: its command line.
        address: the address at which it listens, as shown to users.
        health: URL that answers 200 when it is healthy, or an address (`unix://`, `tcp://`) that accepts connections.
        ports: the ports that must be free before it starts, by purpose.
        seconds: the time limit to become healthy, on a busy machine.
        path: a folder that it searches before PATH, or empty.
        host: the address at which it listens on the first of its ports.
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
    """The paths of one stack's files."""

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
        """The API server's audit log, one JSON document per line."""
        return self.directory / "logs" / "audit.log"

    def data(self, part: str) -> Path:
        """Return the path of a part's persistent data: a folder, or the common prefix of its files."""
        return self.directory / "data" / {"temporal": "temporal.sqlite"}.get(part, part)

    def user_kubeconfig(self, user: str) -> Path:
        """Return the kubeconfig of a part of the control plane."""
        return self.directory / "pki" / f"{user}.kubeconfig"

    def log(self, part: str) -> Path:
        """Return the log file of a part's output."""
        return self.directory / "logs" / f"{part}.log"

    def write_config(self, name: str, text: str) -> Path:
        """Write a part's config file. Its name contains a digest of its content, so a change restarts the part."""
        digest = hashlib.sha256(text.encode()).hexdigest()[:10]
        stem, dot, ending = name.partition(".")
        path = self.directory / "config" / f"{stem}-{digest}{dot}{ending}"
        write_private(path, text)
        return path


def etcd(layout: Layout, program: str, ports: Mapping[str, int]) -> Part:
    """Return the cluster's etcd, without fsync: a crash of the machine may lose its data, a kill -9 does not."""
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
    """Return the API server. It authenticates to a kubelet if a client certificate exists."""
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
        # It would publish its own address for the service `kubernetes`, which fails for a loopback address.
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
    """Return the controllers that workloads need, with higher limits than the defaults."""
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
    """Return the scheduler."""
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
    """Return KWOK, which simulates the kubelets of the fake nodes."""
    config = {
        "apiVersion": "config.kwok.x-k8s.io/v1alpha1",
        "kind": "KwokConfiguration",
        "options": {
            "manageNodesWithAnnotationSelector": "kwok.x-k8s.io/node=fake",
            # Heartbeats use the node status (stages/nodes.yaml), where a label can silence a single node.
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


def temporal(
    layout: Layout, program: str, ports: Mapping[str, int], dynamic_config: Mapping[str, str], decrypts: str = ""
) -> Part:
    """Return the Temporal development server with its Web UI, on a persistent database file.

    Args:
        layout: the stack's files.
        program: the path of the server.
        ports: the stack's ports.
        dynamic_config: values beyond the stack's own, as JSON texts.
        decrypts: URL of the codec server for the UI; empty for none.
    """
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
        # As with etcd: a crash of the machine may lose the newest data, a kill -9 does not. With SQLite's defaults
        # each change waits for the disk several times, and all other changes wait behind it.
        "--sqlite-pragma=journal_mode=WAL",
        "--sqlite-pragma=synchronous=OFF",
        "--log-level=warn",
    ]
    argv += [f"--ui-codec-endpoint={decrypts}"] if decrypts else []
    argv += [f"--search-attribute={name}={kind}" for name, kind in SEARCH_ATTRIBUTES.items()]
    argv += [f"--dynamic-config-value={key}={value}" for key, value in {**DYNAMIC_CONFIG, **dynamic_config}.items()]
    health = f"http://{LOOPBACK}:{ports['temporal-http']}/api/v1/namespaces/default"
    return Part("temporal", tuple(argv), f"{LOOPBACK}:{ports['temporal']}", health, TEMPORAL_PORTS)
