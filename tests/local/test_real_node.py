"""The real node: real processes, signals and exit codes, and nothing left of it afterwards."""

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.local import Stack
from holdfast.local.node.real_node import RealNode, cgroup_roots

pytestmark = [pytest.mark.e2e, pytest.mark.real_node]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    made = Stack.up("real", tmp_path_factory.mktemp("stack"), nodes=1, real_node=True)
    yield made
    made.down(purge=True)


def run(stack: Stack, name: str, script: str, grace: int = 30) -> None:
    manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": grace,
            "nodeSelector": {"holdfast.dev/node": "real"},
            "tolerations": [{"key": "holdfast.dev/real", "operator": "Exists"}],
            "containers": [{"name": "main", "image": "holdfast.local/busybox:1", "command": ["sh", "-c", script]}],
        },
    }
    stack.kubectl("create", "-f", "-", stdin=json.dumps(manifest))


def exit_code(stack: Stack, name: str) -> int:
    path = "jsonpath={.status.containerStatuses[0].state.terminated.exitCode}"
    return int(stack.kubectl("get", "pod", name, "-o", path))


def test_exit_codes_and_logs_are_the_process_s_own(stack: Stack) -> None:
    run(stack, "fails", "echo on the real node; exit 85")
    stack.kubectl("wait", "--for=jsonpath={.status.phase}=Failed", "pod/fails", "--timeout=60s")
    assert exit_code(stack, "fails") == 85
    assert stack.kubectl("logs", "fails") == "on the real node\n"


def test_term_is_delivered_and_answered_within_the_grace(stack: Stack) -> None:
    run(stack, "answers", "trap 'sleep 1; exit 0' TERM; while :; do sleep 0.1; done")
    stack.kubectl("wait", "--for=condition=Ready", "pod/answers", "--timeout=60s")
    started = time.monotonic()
    stack.kubectl("delete", "pod", "answers", "--timeout=60s")
    assert 1 <= time.monotonic() - started < 15


def test_a_process_that_ignores_term_is_killed_after_the_grace(stack: Stack) -> None:
    run(stack, "ignores", "trap '' TERM; while :; do sleep 0.1; done", grace=3)
    stack.kubectl("wait", "--for=condition=Ready", "pod/ignores", "--timeout=60s")
    started = time.monotonic()
    stack.kubectl("delete", "pod", "ignores", "--timeout=60s")
    assert 3 <= time.monotonic() - started < 20


def test_pods_reach_each_other(stack: Stack) -> None:
    run(stack, "server", "mkdir -p /www; echo hello > /www/index.html; httpd -f -p 8080 -h /www")
    stack.kubectl("wait", "--for=condition=Ready", "pod/server", "--timeout=60s")
    address = stack.kubectl("get", "pod", "server", "-o", "jsonpath={.status.podIP}")
    run(stack, "client", f"for n in 1 2 3 4 5; do wget -qO- http://{address}:8080/ && exit 0; sleep 1; done; exit 1")
    stack.kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/client", "--timeout=60s")
    assert stack.kubectl("logs", "client") == "hello\n"
    stack.kubectl("delete", "pod", "server", "client", "--timeout=60s", "--grace-period=1")


def test_containers_outlive_a_killed_containerd(stack: Stack) -> None:
    run(stack, "outlives", "trap 'exit 3' TERM; while :; do sleep 0.1; done")
    stack.kubectl("wait", "--for=condition=Ready", "pod/outlives", "--timeout=60s")
    stack.stop_part("containerd", signal.SIGKILL)
    stack.start_part("containerd")
    time.sleep(3)
    path = "jsonpath={.status.phase} {.status.containerStatuses[0].restartCount}"
    assert stack.kubectl("get", "pod", "outlives", "-o", path) == "Running 0"
    stack.kubectl("delete", "pod", "outlives", "--timeout=60s")


def test_nothing_is_left_even_after_everything_was_killed(tmp_path: Path) -> None:
    stack = Stack.up("killed", tmp_path / "killed", nodes=0, real_node=True)
    node = RealNode(stack.directory)
    run(stack, "orphan", "sleep 1000")
    stack.kubectl("wait", "--for=condition=Ready", "pod/orphan", "--timeout=60s")
    for part in stack.status():
        stack.stop_part(part.name, signal.SIGKILL)
    # The next `up` starts from what a dead machine would leave.
    stack = Stack.up("killed", tmp_path / "killed")
    assert all(part.healthy for part in stack.status())
    stack.down(purge=True)
    assert not node.run.exists()
    assert not node.data.exists()
    assert not Path("/sys/class/net", node.bridge).exists()
    assert not list(Path("/var/lib/cni/results").glob(f"holdfast-{node.identity}-*"))
    assert not [root for root in cgroup_roots() if (root / node.cgroup.strip("/")).exists()]
    assert str(node.run) not in Path("/proc/self/mountinfo").read_text()
    commands = [entry / "cmdline" for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    assert not [path for path in commands if path.exists() and str(node.socket).encode() in path.read_bytes()]
