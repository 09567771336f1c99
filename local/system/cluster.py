"""Sets up a fresh cluster through kubectl: creates fake nodes, and applies deploy/ (CRDs and RBAC)."""

import json
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from holdfast import names
from holdfast.deploy import FOLDER
from holdfast.local.system.errors import StackError
from holdfast.local.system.paths import PACKAGE

FAKE_NODE_CAPACITY = {
    "cpu": "256",
    "memory": "1Ti",
    "ephemeral-storage": "1Ti",
    "pods": "1000",
    "nvidia.com/gpu": "64",
}


class Kubectl:
    """kubectl on one cluster.

    Args:
        program: path of kubectl.
        kubeconfig: the cluster's kubeconfig.
    """

    def __init__(self, program: Path, kubeconfig: Path) -> None:
        self.program = program
        self.kubeconfig = kubeconfig

    def __call__(self, *arguments: str, stdin: str | None = None, seconds: float = 120.0) -> str:
        """Run kubectl and return its output.

        Raises:
            StackError: it failed, with its error output, or it took longer than `seconds`.
        """
        argv = [str(self.program), f"--kubeconfig={self.kubeconfig}", *arguments]
        try:
            done = subprocess.run(argv, input=stdin, capture_output=True, text=True, timeout=seconds, check=False)
        except subprocess.TimeoutExpired as error:
            raise StackError(f"kubectl {' '.join(arguments)} took longer than {seconds:.0f} s") from error
        if done.returncode != 0:
            raise StackError(f"kubectl {' '.join(arguments)} failed: {done.stderr.strip()}")
        return done.stdout


def fake_node(number: int) -> dict[str, object]:
    """Return the manifest of one fake node."""
    name = f"fake-{number:03d}"
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "holdfast.dev/node": "fake",
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
            },
            "annotations": {"kwok.x-k8s.io/node": "fake", "node.alpha.kubernetes.io/ttl": "0"},
        },
        "status": {"capacity": FAKE_NODE_CAPACITY, "allocatable": FAKE_NODE_CAPACITY},
    }


def ensure_fake_nodes(kubectl: Kubectl, count: int) -> None:
    """Create the fake nodes that are missing, and wait until all are Ready. Nodes beyond `count` stay."""
    listed = kubectl("get", "nodes", "-l", "holdfast.dev/node=fake", "-o", "name")
    present = {line.removeprefix("node/") for line in listed.split()}
    missing = [fake_node(number) for number in range(count) if f"fake-{number:03d}" not in present]
    if missing:
        items = {"apiVersion": "v1", "kind": "List", "items": missing}
        kubectl("create", "-f", "-", stdin=json.dumps(items))
    if count:
        names = [f"node/fake-{number:03d}" for number in range(count)]
        kubectl("wait", "--for=condition=Ready", "--timeout=60s", *names)


def tame_fake_nodes(kubectl: Kubectl) -> None:
    """Make fake nodes end only pods that are being deleted, as a kubelet does."""
    _apply(kubectl, ["-f", str(PACKAGE / "fake-pods.yaml")])


def await_default_account(kubectl: Kubectl) -> None:
    """Wait for the default service account: without it a fresh cluster rejects its first pod."""
    kubectl("wait", "--for=create", "--timeout=60s", "serviceaccount/default", "--namespace=default")


_PROBED_FOR = 60.0
_APPWRAPPERS = "appwrappers.workload.codeflare.dev"


def apply_deploy(kubectl: Kubectl) -> None:
    """Apply the CRDs of deploy/, wait until they are established, then apply the remaining manifests."""
    crds = sorted((FOLDER / "crds").glob("*.yaml"))
    if crds:
        _apply(kubectl, [argument for path in crds for argument in ("-f", str(path))])
        established = ("wait", "--for=condition=Established", "--timeout=60s")
        kubectl(*established, *(argument for path in crds for argument in ("-f", str(path))))
        for path in crds:
            _await_storage(kubectl, path)
    _apply(kubectl, ["-k", str(FOLDER)])
    theirs = ("--selector=app.kubernetes.io/part-of!=holdfast", f"--field-selector=metadata.name={_APPWRAPPERS}")
    if not kubectl("get", "crd", *theirs, "--output=name"):
        _apply(kubectl, ["-k", str(FOLDER / "appwrapper")])
        _await_storage(kubectl, FOLDER / "appwrapper" / "crd.yaml")
        _await_created(kubectl, _PROBE)
    if not kubectl("get", "crd", f"--field-selector=metadata.name={_JOBSETS}", "--output=name"):
        _apply(kubectl, ["-f", str(_JOBSET_DEFINITION)])
        _await_storage(kubectl, _JOBSET_DEFINITION)
    _apply(kubectl, ["-k", str(FOLDER / "jobset")])
    _await_created(kubectl, _JOBSET_PROBE)
    _apply(kubectl, ["-k", str(FOLDER / "workload")])
    _await_storage(kubectl, FOLDER / "workload" / "crd.yaml")
    _await_created(kubectl, _WORKLOAD_PROBE)


def publish(kubectl: Kubectl, connection: Mapping[str, str]) -> None:
    """Tell in the cluster how to reach Temporal, so that `kubectl holdfast` needs only the kubeconfig (row F18)."""
    metadata = {"name": names.CONNECTION, "namespace": names.WORKER_NAMESPACE}
    document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": dict(connection)}
    _apply(kubectl, ["-f", "-"], stdin=json.dumps(document))


def _await_storage(kubectl: Kubectl, definition: Path) -> None:
    """Wait until objects of a kind can be listed: its storage begins after the kind is established."""
    spec = yaml.safe_load(definition.read_text(encoding="utf-8"))["spec"]
    deadline = time.monotonic() + _PROBED_FOR
    for version in (one["name"] for one in spec["versions"] if one["served"]):
        # Of version 0 a list comes from the cache that watches read, too.
        path = f"/apis/{spec['group']}/{version}/{spec['names']['plural']}?limit=1&resourceVersion=0"
        while True:
            try:
                kubectl("get", "--raw", path)
                break
            except StackError as error:
                if time.monotonic() > deadline:
                    raise StackError(
                        f"{spec['names']['plural']}.{spec['group']} are not served {_PROBED_FOR:.0f} s after their "
                        f"kind was applied: {error}"
                    ) from error
            time.sleep(0.2)


_PROBE = """
apiVersion: workload.codeflare.dev/v1beta2
kind: AppWrapper
metadata: {generateName: probe-, namespace: default}
spec:
  managedBy: holdfast.dev/probe
  components:
  - template: {apiVersion: v1, kind: Pod, metadata: {name: probe}, spec: {containers: [{name: main, image: none}]}}
"""


_JOBSETS = "jobsets.jobset.x-k8s.io"
_JOBSET_DEFINITION = PACKAGE / "crds" / "jobset-0.12.0.json"
"""As JobSet 0.12.0 publishes it, without descriptions. On other clusters JobSet's own installation brings it."""
_JOBSET_PROBE = """
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {generateName: probe-, namespace: default}
spec:
  managedBy: holdfast.dev/probe
  replicatedJobs:
  - name: probe
    template: {spec: {template: {spec: {containers: [{name: main, image: none}]}}}}
"""
_WORKLOAD_PROBE = """
apiVersion: holdfast.dev/v1
kind: Workload
metadata: {generateName: probe-, namespace: default}
spec:
  managedBy: holdfast.dev/probe
  components:
  - name: probe
    template: {apiVersion: v1, kind: Pod, metadata: {name: probe}, spec: {containers: [{name: main, image: none}]}}
"""


def _await_created(kubectl: Kubectl, probe: str) -> None:
    """Wait until an object can be created: for some seconds the policies of its kind do not know it, and reject it."""
    deadline = time.monotonic() + _PROBED_FOR
    while True:
        try:
            if "holdfast.dev/created-by" in kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", stdin=probe):
                return
            why = "nobody is named as who created it"
        except StackError as error:
            why = str(error)
        if time.monotonic() > deadline:
            kind = yaml.safe_load(probe)["kind"]
            raise StackError(f"{kind}s cannot be created {_PROBED_FOR:.0f} s after their policies were: {why}")
        time.sleep(0.2)


def _apply(kubectl: Kubectl, sources: Sequence[str], stdin: str | None = None) -> None:
    kubectl("apply", "--server-side", "--force-conflicts", "--field-manager=holdfast-dev", *sources, stdin=stdin)
