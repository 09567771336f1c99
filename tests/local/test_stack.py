"""The stack itself, a second one beside whatever else runs: idempotent, mendable part by part, and gone when down."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.local import NotRunningError, Stack
from holdfast.local.system.cluster import Kubectl
from holdfast.local.system.errors import StackError

pytestmark = pytest.mark.e2e

KNOB = "holdfast.dev/kwok-"


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    made = Stack.up("beside", tmp_path_factory.mktemp("stack"), nodes=2)
    yield made
    made.down(purge=True)


def eventually(seen: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not seen():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.1)


def pod(stack: Stack, name: str) -> dict[str, Any]:
    text = stack.kubectl("get", "pod", name, "-o", "json", "--ignore-not-found")
    return json.loads(text) if text else {}


def phase(stack: Stack, name: str) -> str:
    return pod(stack, name).get("status", {}).get("phase", "")


def create(stack: Stack, name: str, labels: dict[str, str] | None = None, notes: dict[str, str] | None = None) -> None:
    manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {f"{KNOB}{key}": value for key, value in (labels or {}).items()},
            "annotations": {f"{KNOB}{key}": value for key, value in (notes or {}).items()},
        },
        "spec": {"containers": [{"name": "main", "image": "none"}, {"name": "side", "image": "none"}]},
    }
    stack.kubectl("create", "-f", "-", stdin=json.dumps(manifest))


def terminated(stack: Stack, name: str) -> list[tuple[int, str]]:
    statuses = pod(stack, name)["status"]["containerStatuses"]
    return [(one["state"]["terminated"]["exitCode"], one["state"]["terminated"]["reason"]) for one in statuses]


def temporal(stack: Stack, *arguments: str) -> str:
    argv = [str(stack.binary("temporal")), *arguments, "--address", stack.temporal_address]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


def test_every_part_is_healthy(stack: Stack) -> None:
    assert [part.name for part in stack.status() if not part.healthy] == []


def test_up_again_changes_nothing_that_runs(stack: Stack) -> None:
    before = {part.name: part.pid for part in stack.status()}
    said: list[str] = []
    again = Stack.up("beside", stack.directory, progress=said.append)
    assert {part.name: part.pid for part in again.status()} == before
    assert said == []


def test_up_mends_what_died(stack: Stack) -> None:
    before = {part.name: part.pid for part in stack.status()}
    victim = stack.pid("kube-scheduler")
    assert victim is not None
    os.kill(victim, signal.SIGKILL)
    said: list[str] = []
    Stack.up("beside", stack.directory, progress=said.append)
    after = {part.name: part.pid for part in Stack.load("beside", stack.directory).status()}
    assert said == ["starting kube-scheduler"]
    assert {name for name in before if before[name] != after[name]} == {"kube-scheduler"}


def test_the_kinds_are_established_and_the_search_attributes_exist(stack: Stack) -> None:
    kinds = stack.kubectl("get", "crds", "-o", "name")
    assert "attempts.holdfast.dev" in kinds
    assert "anchors.holdfast.dev" in kinds
    listed = temporal(stack, "operator", "search-attribute", "list")
    for name in ("HoldfastPhase", "HoldfastRestarts"):
        assert name in listed


def test_a_pod_runs_at_once_and_stays(stack: Stack) -> None:
    create(stack, "plain")
    eventually(lambda: phase(stack, "plain") == "Running")
    stack.kubectl("delete", "pod", "plain", "--timeout=30s")


def test_a_running_pod_can_be_made_to_fail(stack: Stack) -> None:
    create(stack, "fails")
    eventually(lambda: phase(stack, "fails") == "Running")
    notes = [f"{KNOB}exit-code=137", f"{KNOB}reason=OOMKilled", f"{KNOB}container=main", f"{KNOB}fail=0s"]
    stack.kubectl("annotate", "pod", "fails", *notes)
    eventually(lambda: phase(stack, "fails") == "Failed")
    assert terminated(stack, "fails") == [(137, "OOMKilled"), (0, "Completed")]
    stack.kubectl("delete", "pod", "fails", "--timeout=30s")


def test_a_pod_completes_only_when_told(stack: Stack) -> None:
    create(stack, "completes", notes={"complete": "1s"})
    eventually(lambda: phase(stack, "completes") == "Succeeded")
    assert terminated(stack, "completes") == [(0, "Completed")] * 2
    stack.kubectl("delete", "pod", "completes", "--timeout=30s")


def test_a_stubborn_pod_goes_only_by_force(stack: Stack) -> None:
    create(stack, "stubborn", labels={"stubborn": "true"})
    eventually(lambda: phase(stack, "stubborn") == "Running")
    stack.kubectl("delete", "pod", "stubborn", "--grace-period=1", "--wait=false")
    time.sleep(2)
    assert pod(stack, "stubborn")["metadata"]["deletionTimestamp"]
    stack.kubectl("delete", "pod", "stubborn", "--grace-period=0", "--force", "--timeout=30s")
    assert pod(stack, "stubborn") == {}


def test_fake_nodes_end_only_pods_that_are_being_deleted(stack: Stack) -> None:
    create(stack, "again")
    eventually(lambda: phase(stack, "again") == "Running")
    stand_in = Kubectl(stack.binary("kubectl"), stack.layout.user_kubeconfig("kwok"))

    said: list[str] = []

    def refused() -> bool:  # A new policy is in force a moment later.
        try:
            stand_in("delete", "pod", "again", "--dry-run=server")
        except StackError as error:
            said.append(str(error))
        return bool(said)

    eventually(refused, 30)
    assert "this pod is not being deleted" in said[0]
    stack.kubectl("delete", "pod", "again", "--timeout=30s")
    assert pod(stack, "again") == {}


def test_readiness_and_node_readiness_follow_their_labels(stack: Stack) -> None:
    create(stack, "steered", labels={"hold": "true"})
    time.sleep(1)
    assert phase(stack, "steered") == "Pending"
    stack.kubectl("label", "pod", "steered", f"{KNOB}hold-")
    stack.kubectl("wait", "--for=condition=Ready", "pod/steered", "--timeout=30s")
    stack.kubectl("label", "pod", "steered", f"{KNOB}unready=true")
    stack.kubectl("wait", "--for=condition=Ready=false", "pod/steered", "--timeout=30s")
    stack.kubectl("label", "pod", "steered", f"{KNOB}unready-")
    stack.kubectl("wait", "--for=condition=Ready", "pod/steered", "--timeout=30s")
    stack.kubectl("delete", "pod", "steered", "--timeout=30s")
    stack.kubectl("label", "node", "fake-001", f"{KNOB}not-ready=true")
    stack.kubectl("wait", "--for=condition=Ready=false", "node/fake-001", "--timeout=30s")
    stack.kubectl("label", "node", "fake-001", f"{KNOB}not-ready-")
    stack.kubectl("wait", "--for=condition=Ready", "node/fake-001", "--timeout=30s")


def logged(stack: Stack) -> list[dict[str, Any]]:
    """Return the requests in the audit log, up to its last whole line."""
    return [json.loads(line) for line in stack.audit_log.read_text().splitlines(keepends=True) if line.endswith("\n")]


def test_the_audit_log_tells_when_and_why_a_pod_failed(stack: Stack) -> None:
    create(stack, "logged", notes={"fail": "0s", "exit-code": "85"})
    eventually(lambda: phase(stack, "logged") == "Failed")
    failures = list[dict[str, Any]]()

    def told() -> bool:
        failures[:] = [
            line
            for line in logged(stack)
            if line["objectRef"].get("subresource") == "status"
            and line["objectRef"]["name"] == "logged"
            and line.get("requestObject", {}).get("status", {}).get("phase") == "Failed"
        ]
        return bool(failures)

    eventually(told)
    assert len(failures) == 1
    assert failures[0]["user"]["username"] == "kwok"
    assert failures[0]["stageTimestamp"].endswith("Z")
    assert not [line for line in logged(stack) if line["objectRef"]["resource"] == "leases"]
    stack.kubectl("delete", "pod", "logged", "--timeout=30s")


def test_the_apiserver_comes_back_at_its_address_and_the_nodes_go_on(stack: Stack) -> None:
    stack.stop_part("kube-apiserver")
    assert [part.name for part in stack.status() if not part.running] == ["kube-apiserver"]
    with pytest.raises(NotRunningError):
        stack.stop_part("kube-apiserver")
    stack.start_part("kube-apiserver")
    create(stack, "after")
    eventually(lambda: phase(stack, "after") == "Running")
    stack.kubectl("delete", "pod", "after", "--timeout=30s")


def test_temporal_killed_without_warning_loses_nothing(stack: Stack) -> None:
    temporal(stack, *["workflow", "start", "--type", "none", "--task-queue", "none", "--workflow-id", "survivor"])
    stack.stop_part("temporal", signal.SIGKILL)
    stack.start_part("temporal")
    described = json.loads(temporal(stack, "workflow", "describe", "--workflow-id", "survivor", "--output", "json"))
    assert described["workflowExecutionInfo"]["status"] == "WORKFLOW_EXECUTION_STATUS_RUNNING"
    stack.stop_part("etcd", signal.SIGKILL)
    stack.start_part("etcd")
    eventually(lambda: stack.kubectl("get", "nodes", "-o", "name").count("node/") == 2)


def test_a_frozen_part_does_not_answer_and_goes_on_when_thawed(stack: Stack) -> None:
    stack.pause_part("kwok")
    frozen = {part.name: part for part in stack.status()}["kwok"]
    assert frozen.running
    assert not frozen.healthy
    stack.resume_part("kwok")
    eventually(lambda: all(part.healthy for part in stack.status()))


def test_down_stops_every_part_and_keeps_the_data(tmp_path: Path) -> None:
    with_cluster = Stack.up("brief", tmp_path / "brief", nodes=0)
    before = {part.name: part.pid for part in with_cluster.status()}
    with_cluster.kubectl("create", "namespace", "kept")
    with_cluster.down()
    for name, pid in before.items():
        assert pid is not None
        assert with_cluster.pid(name) is None
        assert not Path(f"/proc/{pid}/exe").exists()
    again = Stack.up("brief", tmp_path / "brief")
    assert "kept" in again.kubectl("get", "namespaces", "-o", "name")
    again.down(purge=True)
    assert not (tmp_path / "brief").exists()


def test_a_given_cluster_and_temporal_start_nothing(stack: Stack, tmp_path: Path) -> None:
    guest = Stack.up("guest", tmp_path / "guest", kubeconfig=stack.kubeconfig, temporal_address=stack.temporal_address)
    assert guest.status() == []
    assert guest.environment["KUBECONFIG"] == str(stack.kubeconfig)
    assert guest.environment["TEMPORAL_ADDRESS"] == stack.temporal_address
    assert "fake-000" in guest.kubectl("get", "nodes", "-o", "name")
    guest.down(purge=True)
    assert all(part.healthy for part in stack.status())
