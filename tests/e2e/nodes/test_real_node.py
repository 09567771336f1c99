"""Real containers on a real kubelet: exit codes, signals and grace periods are the operating system's own."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from holdfast import names
from holdfast.model import OperationKind
from tests.e2e.ground.held import open_real
from tests.e2e.ground.site import Site, appwrapper
from tests.e2e.ground.space import Space

pytestmark = [pytest.mark.e2e, pytest.mark.real_node, pytest.mark.asyncio(loop_scope="session")]
ROW = pytest.mark.row
FOREVER = "while :; do sleep 0.1; done"


@pytest_asyncio.fixture(loop_scope="session")
async def real(shared_site: Site) -> AsyncIterator[Space]:
    """A namespace of pods that the kubelet can run."""
    async with open_real(shared_site) as space:
        yield space


def containers(script: str, **spec: Any) -> dict[str, Any]:
    """Return the spec of a pod on the real node that runs a shell script."""
    return {
        "restartPolicy": "Never",
        "nodeSelector": {"holdfast.dev/node": "real"},
        "tolerations": [{"key": "holdfast.dev/real", "operator": "Exists"}],
        "terminationGracePeriodSeconds": 20,
        "containers": [
            {
                "name": "main",
                "image": "holdfast.local/busybox:1",
                "imagePullPolicy": "Never",
                "command": ["sh", "-c", script],
            }
        ],
        **spec,
    }


def pod(script: str, **spec: Any) -> dict[str, Any]:
    return {
        "template": {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "main"},
            "spec": containers(script, **spec),
        }
    }


def job(script: str, pods: int) -> dict[str, Any]:
    spec = {"parallelism": pods, "completions": pods, "backoffLimit": 0, "template": {"spec": containers(script)}}
    return {"template": {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "main"}, "spec": spec}}


def ended(space: Space, attempt: int = 1) -> list[dict[str, Any]]:
    """How the containers of an attempt ended, as the kubelet last said."""
    return [
        life.object["status"]["containerStatuses"][0]["state"]["terminated"] for life in space.truth.of(attempt, "Pod")
    ]


def processes(marker: str) -> list[int]:
    """Return the shells whose script has the marker; one's child is as its parent until it runs a program."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
                # After the name, which is in parentheses and may hold anything: the state, then the parent.
                parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
            except OSError:
                continue
            if words[0] == b"sh" and marker.encode() in words[2]:
                parents[int(entry.name)] = int(parent)
    return [one for one, parent in parents.items() if parent not in parents]


async def kill(marker: str) -> None:
    """Kill with -9 the one process whose command line has the marker."""
    (process,) = await asyncio.to_thread(processes, marker)
    os.kill(process, signal.SIGKILL)


@ROW("A1", level="e2e")
@ROW("A2", level="e2e")
@pytest.mark.parametrize("kind", ["pod", "job"])
async def test_A1_A2_real_containers_run_to_success(real: Space, kind: str):
    script = 'echo "attempt $HOLDFAST_ATTEMPT"; sleep 1'
    component = pod(script) if kind == "pod" else job(script, 3)
    handle = await real.submit(appwrapper("train", component, successTTLDuration="1h"))
    status = await real.reach(handle, "Succeeded")
    assert (status.attempt, status.restarts) == (1, 0)
    pods = await real.pods("train")
    assert len(pods) == (1 if kind == "pod" else 3)
    for each in pods:
        assert each["spec"]["nodeName"] == "real"
        (container,) = each["status"]["containerStatuses"]
        assert container["containerID"].startswith("containerd://")
        assert container["state"]["terminated"]["exitCode"] == 0
    name = pods[0]["metadata"]["name"]
    logs = await asyncio.to_thread(real.site.stack.kubectl, "logs", "-n", real.namespace, name)
    assert logs.strip() == "attempt 1"
    await handle.signal(names.SIGNAL_CANCEL)
    assert (await real.ended(handle)).phase == "Succeeded"
    assert await real.site.gone(real.namespace)


@ROW("A7", level="e2e")
@pytest.mark.parametrize("code", [3, 137])
async def test_A7_exit_codes_are_recorded(real: Space, code: int):
    document = appwrapper("train", pod(f"sleep 1; exit {code}"), failureGracePeriodDuration="0s", retryLimit="1")
    handle = await real.submit(document)
    status = await real.ended(handle)
    assert (status.phase, status.reason, status.restarts) == ("Failed", "RetryLimitExceeded", 1)
    assert status.failure is not None
    assert (status.failure.exit_code, status.failure.subject, status.failure.node) == (code, "main", "real")
    resets = [each.message for each in status.causes if each.reason == "Resetting"]
    assert [f"main exited {code}" in each for each in resets] == [True]
    await real.truth.settle()
    assert [each["exitCode"] for each in (*ended(real, 1), *ended(real, 2))] == [code, code]
    real.truth.assert_one_attempt_at_a_time("train")


@ROW("A11", level="e2e")
async def test_A11_a_container_that_traps_TERM_gets_its_grace(real: Space):
    script = f"trap 'sleep 3; exit 7' TERM; {FOREVER}"
    handle = await real.submit(appwrapper("train", pod(script), forcefulDeletionGracePeriodDuration="60s"))
    await real.reach(handle, "Running", 1)
    await handle.signal(names.SIGNAL_SUSPEND, "maintenance")
    status = await real.reach(handle, "Suspended")
    assert status.restarts == 0
    await real.truth.settle()
    (life,) = real.truth.of(1, "Pod")
    assert life.died
    (end,) = ended(real)
    assert end["exitCode"] == 7, "it ended by itself, as it wanted to"
    deletions = [
        one.time for one in real.truth.requests() if (one.verb, one.resource, one.name) == ("delete", "pods", "main")
    ]
    finished = datetime.fromisoformat(end["finishedAt"])
    assert (finished - min(deletions)).total_seconds() > 1.5, "and had the time it took"
    assert not await real.acts(handle, OperationKind.FORCE_REMOVE)
    real.truth.assert_told_truly("train")


@ROW("A8", level="e2e")
async def test_A8_a_container_that_ignores_TERM_is_forced_out(real: Space):
    """Kubernetes would wait an hour for it; the forceful deletion grace does not."""
    script = f"trap '' TERM; {FOREVER}"
    document = appwrapper(
        "train", pod(script, terminationGracePeriodSeconds=3600), forcefulDeletionGracePeriodDuration="3s"
    )
    handle = await real.submit(document)
    await real.reach(handle, "Running", 1)
    await handle.signal(names.SIGNAL_CANCEL, "enough")
    assert (await real.ended(handle)).phase == "Cancelled"
    await real.truth.settle()
    assert all(life.died for life in real.truth.of(1))
    _, forced = await real.acts(handle, OperationKind.REMOVE, OperationKind.FORCE_REMOVE)
    assert forced.name == OperationKind.FORCE_REMOVE


@ROW("A3", level="e2e")
async def test_A3_a_killed_process_resets_and_the_next_attempt_succeeds(real: Space):
    marker = secrets.token_hex(8)
    script = f': {marker}; if [ "$HOLDFAST_ATTEMPT" -gt 1 ]; then exit 0; fi; {FOREVER}'
    handle = await real.submit(appwrapper("train", pod(script), successTTLDuration="1h"))
    await real.reach(handle, "Running", 1)
    await kill(marker)
    status = await real.reach(handle, "Succeeded")
    assert (status.attempt, status.restarts) == (2, 1)
    assert any("main exited 137" in each.message for each in status.causes)
    await real.truth.settle()
    assert [each["exitCode"] for each in (*ended(real, 1), *ended(real, 2))] == [137, 0]
    real.truth.assert_one_attempt_at_a_time("train")
    real.truth.assert_told_truly("train")
    await real.assert_paused(handle, "train", 2, 1.0)


@ROW("A15", level="e2e")
async def test_A15_a_terminal_exit_code_of_a_real_container_fails_the_workload_at_once(real: Space):
    """The failure grace would last five minutes, and there are retries left."""
    waits = {"failureGracePeriodDuration": "300s", "terminalExitCodes": "3, 4"}
    handle = await real.submit(appwrapper("train", pod("sleep 1; exit 4"), **waits))
    status = await real.ended(handle)
    assert (status.phase, status.restarts, status.executions) == ("Failed", 0, 1)
    assert status.failure is not None
    assert (status.failure.exit_code, status.failure.node) == (4, "real")
    assert "rule terminal-exit-codes" in status.message
    await real.truth.settle()
    assert [each["exitCode"] for each in ended(real)] == [4]


@ROW("A15", level="e2e")
@pytest.mark.parametrize("kind", ["pod", "job"])
async def test_A15_a_retryable_exit_code_is_retried_and_any_other_is_not(real: Space, kind: str):
    script = 'sleep 1; if [ "$HOLDFAST_ATTEMPT" -gt 1 ]; then exit 9; fi; exit 7'
    # A Job that gives up says so itself, and need not be waited for.
    waits = {"failureGracePeriodDuration": "1s" if kind == "pod" else "10m", "retryableExitCodes": " 7 , 8"}
    handle = await real.submit(appwrapper("train", pod(script) if kind == "pod" else job(script, 1), **waits))
    status = await real.ended(handle)
    assert (status.phase, status.restarts, status.executions) == ("Failed", 1, 2)
    assert status.failure is not None
    assert status.failure.exit_code == 9
    assert "rule retryable-exit-codes" in status.message
    resets = [each.message for each in status.causes if each.reason == "Resetting"]
    assert [("exited 7" if kind == "pod" else "BackoffLimitExceeded") in each for each in resets] == [True]
    await real.truth.settle()
    assert [each["exitCode"] for each in (*ended(real, 1), *ended(real, 2))] == [7, 9]
    real.truth.assert_one_attempt_at_a_time("train")


@ROW("U5", level="e2e")
async def test_U5_each_attempt_knows_its_number_and_none_overlap(real: Space):
    """Read from inside the container: what it writes is its own, and not what was asked for."""
    script = 'printf "attempt $HOLDFAST_ATTEMPT" > /dev/termination-log; [ "$HOLDFAST_ATTEMPT" -gt 2 ] || exit 3'
    document = appwrapper("train", pod(f"sleep 1; {script}"), failureGracePeriodDuration="0s", successTTLDuration="1h")
    handle = await real.submit(document)
    status = await real.reach(handle, "Succeeded")
    assert (status.attempt, status.executions) == (3, 3)
    await real.truth.settle()
    for attempt in (1, 2, 3):
        assert [one["message"] for one in ended(real, attempt)] == [f"attempt {attempt}"]
        labels = [life.object["metadata"]["labels"][names.LABEL_ATTEMPT] for life in real.truth.of(attempt, "Pod")]
        assert labels == [str(attempt)]
    real.truth.assert_one_attempt_at_a_time("train")
    events = await real.site.objects("v1", "Event", real.namespace)
    ours = [one for one in events if one["involvedObject"]["kind"] == names.ANCHOR_KIND]
    attempts = {
        reason: sorted(one["metadata"]["annotations"][names.LABEL_ATTEMPT] for one in ours if one["reason"] == reason)
        for reason in ("Resetting", "Completed")
    }
    assert attempts == {"Resetting": ["1", "2"], "Completed": ["3"]}
