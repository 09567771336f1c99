"""The programs of the stack as data: pinned version, version arguments, official release, and Go build."""

import hashlib
import platform
import re
from dataclasses import dataclass

from holdfast.local.system.paths import PACKAGE

SUITE_FILE = "suite_test.go"
"""The file of a suite that connects its specs to a cluster and to what is tested."""
KUBERNETES = "1.36.3"
TEMPORAL = "1.5.1"
TEMPORAL_SERVER = "1.32.0"
TEMPORAL_UI = "2.42.1"
ETCD = "3.6.8"
KWOK = "0.8.0"
CONTAINERD = "2.2.1"
JOBSET = "0.12.0"
VERSITYGW = "1.8.0"
KUEUE = "0.19.2"
APPWRAPPER = "1.2.1"
TRAINING_OPERATOR = "1.9.3"
KUBERAY = "1.6.0"
HELM = "3.19.5"
KUBE_SCORE = "1.20.0"

OS = platform.system().lower()
ARCH = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())


@dataclass(frozen=True)
class Release:
    """An official download.

    Attributes:
        url: address of the program, or of a `.tar.gz` that contains it; empty if the project publishes no program.
        checksums: address of the published SHA-256 file, or empty if the project publishes none.
        member: path inside the archive; empty if `url` is the program itself.
    """

    url: str
    checksums: str = ""
    member: str = ""


@dataclass(frozen=True)
class Tool:
    """One program.

    Attributes:
        name: file name of the program.
        version: the pinned version, without a leading v.
        module: folder under `build/` with the go.mod and go.sum that pin its source.
        package: Go package to build.
        seconds: about how long a first build takes on two cores, after the tools that stand before it.
        release: the official download.
        stamp: linker variables for the version, each as `path=value`.
        version_args: arguments with which the program prints its version.
        exact_minor: whether the minor version must be the pinned one (Kubernetes parts must match each other).
        is_suite: whether the build compiles the package's tests as a program.
        specs_of: for a suite whose `suite_test.go` is the one in its folder under `build/`: the module of its specs.
        specs: of such a suite: the files with its specs; none: all of the package.
    """

    name: str
    version: str
    module: str
    package: str
    seconds: int
    release: Release
    stamp: tuple[str, ...] = ()
    version_args: tuple[str, ...] = ("--version",)
    exact_minor: bool = False
    is_suite: bool = False
    specs_of: str = ""
    specs: tuple[str, ...] = ()

    @property
    def output(self) -> str:
        """File name that `go build` gives the program: the last element of its package that is not a version."""
        parts = self.package.split("/")
        return parts[-2] if re.fullmatch(r"v\d+", parts[-1]) else parts[-1]

    @property
    def file_name(self) -> str:
        """Name of the program in the cache; a suite file of our own is part of what it was built from."""
        name = f"{self.name}-{self.version}"
        if not self.specs_of:
            return name
        return f"{name}-{hashlib.sha256((PACKAGE / 'build' / self.module / SUITE_FILE).read_bytes()).hexdigest()[:8]}"


def _kubernetes(name: str, seconds: int, version_args: tuple[str, ...] = ("--version",)) -> Tool:
    url = f"https://dl.k8s.io/release/v{KUBERNETES}/bin/{OS}/{ARCH}/{name}"
    major, minor, _ = KUBERNETES.split(".")
    base = "k8s.io/component-base/version"
    return Tool(
        name=name,
        version=KUBERNETES,
        module="kubernetes",
        package=f"k8s.io/kubernetes/cmd/{name}",
        seconds=seconds,
        release=Release(url, f"{url}.sha256"),
        stamp=(
            f"{base}.gitVersion=v{KUBERNETES}",
            f"{base}.gitMajor={major}",
            f"{base}.gitMinor={minor}",
            f"{base}.gitTreeState=clean",
        ),
        version_args=version_args,
        exact_minor=True,
    )


def _containerd(name: str, seconds: int) -> Tool:
    base = f"https://github.com/containerd/containerd/releases/download/v{CONTAINERD}"
    archive = f"{base}/containerd-{CONTAINERD}-{OS}-{ARCH}.tar.gz"
    return Tool(
        name=name,
        version=CONTAINERD,
        module="containerd",
        package=f"github.com/containerd/containerd/v2/cmd/{name}",
        seconds=seconds,
        release=Release(archive, f"{archive}.sha256sum", f"bin/{name}"),
        stamp=(f"github.com/containerd/containerd/v2/version.Version=v{CONTAINERD}",),
        version_args=("-v",) if name == "containerd-shim-runc-v2" else ("--version",),
    )


def _temporal_server(name: str, package: str, seconds: int) -> Tool:
    base = f"https://github.com/temporalio/temporal/releases/download/v{TEMPORAL_SERVER}"
    return Tool(
        name=name,
        version=TEMPORAL_SERVER,
        module="temporal-server",
        package=f"go.temporal.io/server/cmd/{package}",
        seconds=seconds,
        release=Release(f"{base}/temporal_{TEMPORAL_SERVER}_{OS}_{ARCH}.tar.gz", f"{base}/checksums.txt", name),
    )


_TEMPORAL_BASE = f"https://github.com/temporalio/cli/releases/download/v{TEMPORAL}"
_ETCD_BASE = f"https://github.com/etcd-io/etcd/releases/download/v{ETCD}"
_ETCD_DIR = f"etcd-v{ETCD}-{OS}-{ARCH}"

# In build order: first the tools that others wait for, then those that share most packages with earlier builds.
# Tools of one module are built by one command, so that each package they share is compiled once.
TOOLS: dict[str, Tool] = {
    tool.name: tool
    for tool in (
        Tool(
            name="temporal",
            version=TEMPORAL,
            module="temporal",
            package="github.com/temporalio/cli/cmd/temporal",
            seconds=300,
            release=Release(
                f"{_TEMPORAL_BASE}/temporal_cli_{TEMPORAL}_{OS}_{ARCH}.tar.gz",
                f"{_TEMPORAL_BASE}/checksums.txt",
                "temporal",
            ),
            stamp=(f"github.com/temporalio/cli/temporalcli.Version={TEMPORAL}",),
        ),
        Tool(
            name="etcd",
            version=ETCD,
            module="kubernetes",
            package="go.etcd.io/etcd/server/v3",
            seconds=100,
            release=Release(f"{_ETCD_BASE}/{_ETCD_DIR}.tar.gz", f"{_ETCD_BASE}/SHA256SUMS", f"{_ETCD_DIR}/etcd"),
        ),
        Tool(
            name="etcdutl",
            version=ETCD,
            module="kubernetes",
            package="go.etcd.io/etcd/etcdutl/v3",
            seconds=10,
            release=Release(f"{_ETCD_BASE}/{_ETCD_DIR}.tar.gz", f"{_ETCD_BASE}/SHA256SUMS", f"{_ETCD_DIR}/etcdutl"),
            version_args=("version",),
        ),
        _kubernetes("kube-apiserver", 220),
        _kubernetes("kube-controller-manager", 40),
        Tool(
            name="kwok",
            version=KWOK,
            module="kubernetes",
            package="sigs.k8s.io/kwok/cmd/kwok",
            seconds=30,
            release=Release(f"https://github.com/kubernetes-sigs/kwok/releases/download/v{KWOK}/kwok-{OS}-{ARCH}"),
            stamp=(f"sigs.k8s.io/kwok/pkg/consts.Version={KWOK}",),
        ),
        _kubernetes("kube-scheduler", 10),
        _kubernetes("kubectl", 10, ("version", "--client")),
        _containerd("containerd", 45),
        _containerd("containerd-shim-runc-v2", 5),
        _containerd("ctr", 5),
        _kubernetes("kubelet", 20),
        _temporal_server("temporal-server", "server", 180),
        _temporal_server("temporal-sql-tool", "tools/sql", 10),
        Tool(
            name="temporal-ui-server",
            version=TEMPORAL_UI,
            module="temporal-server",
            package="github.com/temporalio/ui-server/v2/cmd/server",
            seconds=20,
            release=Release(""),
        ),
        Tool(
            name="jobset-controller",
            version=JOBSET,
            module="jobset",
            package="sigs.k8s.io/jobset",
            seconds=300,
            release=Release(""),
            stamp=(f"sigs.k8s.io/jobset/pkg/version.GitVersion=v{JOBSET}",),
        ),
        Tool(
            name="jobset-agent",
            version=JOBSET,
            module="jobset",
            package="sigs.k8s.io/jobset/cmd/in-place-restart-agent",
            seconds=30,
            release=Release(""),
        ),
        Tool(
            name="appwrapper-controller",
            version=APPWRAPPER,
            module="appwrapper",
            package="github.com/project-codeflare/appwrapper/cmd",
            seconds=120,
            release=Release(""),
            stamp=(f"main.BuildVersion=v{APPWRAPPER}",),
        ),
        Tool(
            name="kueue",
            version=KUEUE,
            module="kueue",
            package="sigs.k8s.io/kueue/cmd/kueue",
            seconds=240,
            release=Release(""),
            stamp=(f"sigs.k8s.io/kueue/pkg/version.GitVersion=v{KUEUE}",),
        ),
        Tool(
            name="appwrapper-suite",
            version=APPWRAPPER,
            module="appwrapper-suite",
            package="github.com/project-codeflare/appwrapper/test/e2e",
            seconds=120,
            release=Release(""),
            is_suite=True,
        ),
        Tool(
            name="jobset-suite",
            version=JOBSET,
            module="jobset-suite",
            package="sigs.k8s.io/jobset/test/integration/controller",
            seconds=120,
            release=Release(""),
            is_suite=True,
            specs_of="sigs.k8s.io/jobset",
        ),
        Tool(
            name="kueue-suite",
            version=KUEUE,
            module="kueue-suite",
            package="sigs.k8s.io/kueue/test/e2e/singlecluster/extended",
            seconds=120,
            release=Release(""),
            is_suite=True,
            specs_of="sigs.k8s.io/kueue",
            specs=("jobset_test.go",),
        ),
        Tool(
            name="training-operator",
            version=TRAINING_OPERATOR,
            module="training-operator",
            package="github.com/kubeflow/training-operator/cmd/training-operator.v1",
            seconds=120,
            release=Release(""),
        ),
        Tool(
            name="kuberay-operator",
            version=KUBERAY,
            module="kuberay",
            package="github.com/ray-project/kuberay/ray-operator",
            seconds=120,
            release=Release(""),
        ),
        Tool(
            name="helm",
            version=HELM,
            module="helm",
            package="helm.sh/helm/v3/cmd/helm",
            seconds=90,
            release=Release(
                f"https://get.helm.sh/helm-v{HELM}-{OS}-{ARCH}.tar.gz",
                f"https://get.helm.sh/helm-v{HELM}-{OS}-{ARCH}.tar.gz.sha256sum",
                f"{OS}-{ARCH}/helm",
            ),
            stamp=(
                f"helm.sh/helm/v3/internal/version.version=v{HELM}",
                f"helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor={KUBERNETES.split('.')[0]}",
                f"helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor={KUBERNETES.split('.')[1]}",
            ),
            version_args=("version",),
        ),
        Tool(
            name="kube-score",
            version=KUBE_SCORE,
            module="kube-score",
            package="github.com/zegl/kube-score/cmd/kube-score",
            seconds=60,
            release=Release(
                f"https://github.com/zegl/kube-score/releases/download/v{KUBE_SCORE}/kube-score_{KUBE_SCORE}_{OS}_{ARCH}",
                f"https://github.com/zegl/kube-score/releases/download/v{KUBE_SCORE}/checksums.txt",
            ),
            stamp=(f"main.version={KUBE_SCORE}",),
            version_args=("version",),
        ),
        Tool(
            name="versitygw",
            version=VERSITYGW,
            module="versitygw",
            package="github.com/versity/versitygw/cmd/versitygw",
            seconds=90,
            release=Release(""),
            stamp=(f"main.Version={VERSITYGW}",),
        ),
    )
}

CLUSTER_TOOLS = ("etcd", "kube-apiserver", "kube-controller-manager", "kwok", "kube-scheduler", "kubectl")
TEMPORAL_TOOLS = ("temporal",)
HA_TOOLS = ("temporal-server", "temporal-sql-tool", "temporal-ui-server")
"""Needed only if Temporal must survive the loss of a server (`holdfast dev up --ha`)."""
SNAPSHOT_TOOLS = ("etcdutl",)
"""Needed only to restore a snapshot of etcd."""
REAL_NODE_TOOLS = ("containerd", "containerd-shim-runc-v2", "ctr", "kubelet")
PEER_TOOLS = ("jobset-controller", "appwrapper-controller")
"""Needed only to compare Holdfast with the controllers of other projects."""
STORE_TOOLS = ("versitygw",)
"""Needed only to stage data sets from a real S3 server, in tests and trials."""
