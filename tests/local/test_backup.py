"""Copies of what a stack remembers: an older cluster or Temporal can be put in the place of the present one."""

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.local import Stack, StackError

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    made = Stack.up("backup", tmp_path_factory.mktemp("stack"), nodes=1)
    yield made
    made.down(purge=True)


def _eventually(seen: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not seen():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.2)


def _make(stack: Stack, name: str) -> None:
    spec = {"containers": [{"name": "main", "image": "none"}]}
    manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    stack.kubectl("create", "-f", "-", stdin=json.dumps(manifest))


def _running(stack: Stack) -> set[str]:
    listed = json.loads(stack.kubectl("get", "pods", "-o", "json"))["items"]
    return {one["metadata"]["name"] for one in listed if one["status"].get("phase") == "Running"}


def _temporal(stack: Stack, *arguments: str) -> str:
    argv = [str(stack.binary("temporal")), *arguments, "--address", stack.temporal_address]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


def _start(stack: Stack, workflow: str) -> None:
    _temporal(stack, *["workflow", "start", "--type", "none", "--task-queue", "none", "--workflow-id", workflow])


def _known(stack: Stack, workflow: str) -> bool:
    listed = _temporal(stack, "workflow", "list", "--query", f"WorkflowId = '{workflow}'", "--output", "json")
    return bool(json.loads(listed))


def test_an_older_cluster_in_the_place_of_the_present_one(stack: Stack, tmp_path: Path) -> None:
    _make(stack, "before")
    _make(stack, "deleted")
    _eventually(lambda: _running(stack) == {"before", "deleted"})
    stack.copy_data("etcd", tmp_path / "copy")
    _make(stack, "after")
    stack.kubectl("delete", "pod", "deleted")
    _eventually(lambda: _running(stack) == {"before", "after"})
    stack.restore_data("etcd", tmp_path / "copy")
    assert _running(stack) == {"before", "deleted"}
    assert all(part.healthy for part in stack.status())
    # The controllers and the nodes go on from what is there now.
    _make(stack, "anew")
    _eventually(lambda: _running(stack) == {"before", "deleted", "anew"})
    stack.kubectl("delete", "pod", "before", "deleted", "anew", "--timeout=30s")


@pytest.mark.parametrize("raised_by", [0, 1_000_000], ids=["as it was", "raised"])
def test_a_snapshot_in_the_place_of_the_present_cluster(stack: Stack, tmp_path: Path, raised_by: int) -> None:
    _make(stack, "before")
    _eventually(lambda: _running(stack) == {"before"})
    snapshot = tmp_path / "snapshot.db"
    stack.take_snapshot(snapshot)
    _make(stack, "after")
    stack.kubectl("delete", "pod", "before")
    _eventually(lambda: _running(stack) == {"after"})
    version = _version(stack)
    stack.restore_snapshot(snapshot, raised_by=raised_by)
    assert _running(stack) == {"before"}
    assert all(part.healthy for part in stack.status())
    # Either the versions begin again where the snapshot was, or they are beyond all that was ever seen.
    assert (_version(stack) > version + raised_by // 2) == (raised_by > 0)
    _make(stack, "anew")
    _eventually(lambda: _running(stack) == {"before", "anew"})
    stack.kubectl("delete", "pod", "before", "anew", "--timeout=30s")


def _version(stack: Stack) -> int:
    return int(json.loads(stack.kubectl("get", "--raw", "/api/v1/pods"))["metadata"]["resourceVersion"])


def test_an_older_temporal_in_the_place_of_the_present_one(stack: Stack, tmp_path: Path) -> None:
    _start(stack, "before")
    stack.copy_data("temporal", tmp_path / "copy")
    _eventually(lambda: _known(stack, "before"))
    _start(stack, "after")
    _temporal(stack, "workflow", "terminate", "--workflow-id", "before")
    stack.restore_data("temporal", tmp_path / "copy")
    assert not _known(stack, "after")
    described = json.loads(_temporal(stack, "workflow", "describe", "--workflow-id", "before", "--output", "json"))
    assert described["workflowExecutionInfo"]["status"] == "WORKFLOW_EXECUTION_STATUS_RUNNING"


def test_what_cannot_be_copied_or_put_back_is_said(stack: Stack, tmp_path: Path) -> None:
    with pytest.raises(StackError, match="no data of its own"):
        stack.copy_data("kwok", tmp_path / "copy")
    with pytest.raises(StackError, match="exists already"):
        stack.copy_data("etcd", tmp_path)
    with pytest.raises(StackError, match="there is no copy of etcd"):
        stack.restore_data("etcd", tmp_path / "none")
    with pytest.raises(StackError, match="exists already"):
        stack.take_snapshot(tmp_path)
    (tmp_path / "no-snapshot").write_text("something else")
    with pytest.raises(StackError, match="cannot be restored"):
        stack.restore_snapshot(tmp_path / "no-snapshot")
    assert all(part.healthy for part in stack.status())
