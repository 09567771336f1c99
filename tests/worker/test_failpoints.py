"""Failpoints: what they are called, that they are counted and written down, and that none is there unless asked for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiohttp import web
from kubernetes.aio.client.configuration import Configuration
from temporalio import activity, client
from temporalio.testing import ActivityEnvironment
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput

from holdfast import names
from holdfast.activities.kube.client import KubeError
from holdfast.worker import failpoints
from holdfast.worker.failpoints import Failpoints, Passing, point_of
from holdfast.worker.runtime.settings import (
    ENV_ALLOW_FAILPOINTS,
    ENV_FAILPOINT,
    ENV_FAILPOINT_TRACE,
    SettingsError,
    misspelled,
)


class Died(BaseException):
    """Stands for the end of the process."""


def _die() -> None:
    raise Died


@pytest.mark.parametrize(
    ("method", "path", "point"),
    [
        ("POST", "/api/v1/namespaces/ns/pods", "http.create.pods"),
        ("DELETE", "/apis/holdfast.dev/v1/namespaces/ns/attempts/train-a1", "http.delete.attempts"),
        ("PATCH", "/apis/holdfast.dev/v1/namespaces/ns/attempts/train-a1/status", "http.patch.attempts/status"),
        ("PUT", "/apis/apps/v1/namespaces/ns/deployments/web", "http.update.deployments"),
        ("PATCH", "/api/v1/namespaces/ns", "http.patch.namespaces"),
        ("DELETE", "/api/v1/nodes/one", "http.delete.nodes"),
        ("POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles", "http.create.clusterroles"),
    ],
)
def test_a_change_is_called_by_what_it_changes(method: str, path: str, point: str):
    assert point_of(method, path) == point
    assert str(Passing.parse(f"{point}.before:2")) == f"{point}.before:2"


def test_the_process_ends_the_nth_time_and_each_passing_is_written_at_once(tmp_path: Path):
    trace = tmp_path / "trace"
    file = os.open(trace, os.O_WRONLY | os.O_CREAT)
    points = Failpoints(frozenset({Passing("activity.create.before", 2)}), file, _die)
    points.passing("activity.create.before")
    points.passing("activity.create.after")
    assert trace.read_text() == "activity.create.before:1\nactivity.create.after:1\n"
    with pytest.raises(Died):
        points.passing("activity.create.before")
    assert trace.read_text().endswith("\nactivity.create.before:2\n")
    os.close(file)


def test_it_ends_with_137_and_nothing_after_it_is_done():
    code = (
        "from holdfast.worker.failpoints import *; Failpoints(frozenset({Passing('p', 1)})).passing('p'); print('on')"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (ended.returncode, ended.stdout) == (137, b"")


async def test_each_activity_has_a_point_before_and_one_after_also_if_it_fails(tmp_path: Path):
    passed: list[str] = []
    points = _noting(passed)

    class Next(ActivityInboundInterceptor):
        def __init__(self) -> None:
            pass

        async def execute_activity(self, input: ExecuteActivityInput) -> Any:
            passed.append("runs")
            raise ValueError

    around = points.interceptor().intercept_activity(Next())

    async def run() -> None:
        await around.execute_activity(ExecuteActivityInput(fn=run, args=[], executor=None, headers={}))

    environment = ActivityEnvironment()
    with pytest.raises(ValueError, match=r"^$"):
        await environment.run(run)
    kind = environment.info.activity_type
    assert passed == [f"activity.{kind}.before", "runs", f"activity.{kind}.after"]
    assert not activity.in_activity()


async def test_each_change_has_a_point_before_it_is_sent_and_one_after_its_answer(tmp_path: Path):
    passed: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        passed.append(request.method)
        code = 404 if request.method == "DELETE" else 200
        return web.json_response({"kind": "Pod"}, status=code)

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    configuration = Configuration()
    host, port = runner.addresses[0][:2]
    configuration.host = f"http://{host}:{port}"
    async with _noting(passed).client()(configuration) as kube:
        await kube.mutate("POST", "/api/v1/namespaces/ns/pods", body={})
        with pytest.raises(KubeError):
            await kube.mutate("DELETE", "/api/v1/namespaces/ns/pods/one")
    await runner.cleanup()
    pods = "http.create.pods"
    gone = "http.delete.pods"
    assert passed == [f"{pods}.before", "POST", f"{pods}.after", f"{gone}.before", "DELETE", f"{gone}.after"]


async def test_each_update_has_a_point_before_it_is_told_and_one_after_its_answer():
    passed: list[str] = []

    class Next(client.OutboundInterceptor):
        def __init__(self) -> None:
            pass

        async def start_workflow_update(self, input: client.StartWorkflowUpdateInput) -> Any:
            passed.append(input.update)
            raise ValueError

    told = SimpleNamespace(update=names.UPDATE_ANNOUNCE)
    around = _noting(passed).client_interceptor().intercept_client(Next())
    with pytest.raises(ValueError, match=r"^$"):
        await around.start_workflow_update(cast(client.StartWorkflowUpdateInput, told))
    assert passed == ["update.announce.before", "announce", "update.announce.after"]
    assert [str(Passing.parse(f"{one}:1")) for one in (passed[0], passed[2])] == [f"{passed[0]}:1", f"{passed[2]}:1"]


def _noting(passed: list[str]) -> Failpoints:
    class Noting(Failpoints):
        def passing(self, point: str) -> None:
            passed.append(point)

    return Noting()


def test_nothing_is_installed_unless_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.delenv(ENV_FAILPOINT, raising=False)
    monkeypatch.delenv(ENV_FAILPOINT_TRACE, raising=False)
    monkeypatch.setenv(ENV_ALLOW_FAILPOINTS, "1")
    assert failpoints.installed() is None
    monkeypatch.setenv(ENV_FAILPOINT_TRACE, str(tmp_path / "trace"))
    assert failpoints.installed() is not None
    monkeypatch.setenv(ENV_FAILPOINT, "http.create.pods.after:3, activity.remove.before:1")
    assert failpoints.installed() is not None
    assert not misspelled()


@pytest.mark.parametrize(
    "value",
    ["activity.create.before", "activity.create.before:0", "activity.create.before:x", "activity.dance.before:1",
     "http.read.pods.after:1", "http.create.pods:1", "update.dance.after:1", "machine.dance.after:1",
     "activity.create.before:1,,", ","],
)  # fmt: skip
def test_a_malformed_value_is_refused_with_what_is_allowed(monkeypatch: pytest.MonkeyPatch, value: str):
    monkeypatch.setenv(ENV_ALLOW_FAILPOINTS, "1")
    monkeypatch.setenv(ENV_FAILPOINT, value)
    with pytest.raises(SettingsError, match=r"HOLDFAST_FAILPOINT: .* is no failpoint: expected <point>:<n>"):
        failpoints.installed()


def test_a_trace_that_cannot_be_written_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv(ENV_ALLOW_FAILPOINTS, "1")
    monkeypatch.setenv(ENV_FAILPOINT_TRACE, str(tmp_path))
    with pytest.raises(SettingsError, match=r"HOLDFAST_FAILPOINT_TRACE: .* expected a file that can be written"):
        failpoints.installed()


@pytest.mark.row("X15", level="pure")
@pytest.mark.parametrize("name", [ENV_FAILPOINT, ENV_FAILPOINT_TRACE])
@pytest.mark.parametrize("allowed", [None, "", "0", "true"])
def test_a_failpoint_that_is_not_allowed_is_refused(monkeypatch: pytest.MonkeyPatch, name: str, allowed: str | None):
    monkeypatch.delenv(ENV_ALLOW_FAILPOINTS, raising=False)
    if allowed is not None:
        monkeypatch.setenv(ENV_ALLOW_FAILPOINTS, allowed)
    monkeypatch.setenv(name, "http.create.pods.after:3")
    with pytest.raises(SettingsError, match=f"{name}: a failpoint kills this worker: .* HOLDFAST_ALLOW_FAILPOINTS=1"):
        failpoints.installed()


def test_a_worker_with_a_malformed_value_does_not_start(tmp_path: Path):
    command = [str(Path(sys.executable).parent / "holdfast"), "worker", "--roles", "workflows"]
    environment = {**os.environ, ENV_ALLOW_FAILPOINTS: "1", ENV_FAILPOINT: "nowhere:1"}
    ended = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "HOLDFAST_FAILPOINT: 'nowhere:1' is no failpoint" in ended.stdout + ended.stderr
