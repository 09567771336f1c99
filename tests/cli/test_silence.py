"""Without a worker each command says so within seconds, since when, and what happens once one answers (row D36)."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from pathlib import Path

import pytest
from temporalio.client import Client
from typer.testing import CliRunner, Result

from holdfast import Holdfast, HoldfastPlugin
from holdfast.cli.app import app
from tests.client.conftest import a_workload
from tests.e2e.ground.site import make_temporal_namespace, until
from tests.fakes.several import Cluster, working

ROOT = Path(__file__).parents[2]
JOB = ROOT / "examples" / "appwrapper-job.yaml"
pytestmark = [pytest.mark.temporal, pytest.mark.timeout(180)]
NOBODY = "no worker answers: "


@pytest.fixture(autouse=True)
async def place(monkeypatch: pytest.MonkeyPatch, address: str) -> str:
    """A Temporal namespace of the test's own: for five minutes the server remembers who polled in another."""
    namespace = f"silent-{secrets.token_hex(3)}"
    await make_temporal_namespace(address, namespace)
    for name in ("KUBECONFIG", "HOLDFAST_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TEMPORAL_NAMESPACE", namespace)
    monkeypatch.setenv("HOLDFAST_CLUSTER", "dev")
    monkeypatch.setenv("TEMPORAL_ADDRESS", address)
    return namespace


@pytest.fixture
async def client(address: str, place: str) -> Client:
    return await Client.connect(address, namespace=place, plugins=[HoldfastPlugin()])


async def run(*argv: str) -> tuple[Result, float]:
    """Run a command as a user does; return what it printed and how many seconds it took."""
    begun = time.monotonic()
    result = await asyncio.to_thread(CliRunner().invoke, app, list(argv))
    return result, time.monotonic() - begun


@pytest.fixture
async def name(address: str, place: str) -> str:
    """A workload that no worker has ever taken."""
    async with Holdfast.connect(address, place, "dev") as session:
        workload = a_workload()
        await session.submit(workload)
        return f"{workload.namespace}/{workload.name}"


@pytest.mark.parametrize("verb", ["status", "explain"])
async def test_D36_the_first_line_of_a_read_says_that_nobody_answers(name: str, verb: str) -> None:
    result, seconds = await run(verb, name)
    first = result.stdout.splitlines()[0]
    assert first.startswith("stale"), result.stdout
    assert NOBODY in first
    assert "no poll of the task queue holdfast in the last 5m" in first, "it says since when"
    assert "once a worker answers" in result.stdout
    assert "holdfast worker" in result.stdout
    assert "nothing happens by itself" not in result.stdout
    assert seconds < 40, "3 s for the answer; the rest is a busy machine"


@pytest.mark.parametrize("verb", ["suspend", "resume", "preempt", "cancel", "retry", "history"])
async def test_D36_each_wish_says_that_nobody_answers_and_what_happens_once_one_does(name: str, verb: str) -> None:
    result, _ = await run(verb, name)
    assert result.exit_code == 0, result.output
    first = result.stderr.splitlines()[0]
    assert first.startswith("stale"), result.output
    assert NOBODY in first
    assert "no poll of the task queue holdfast in the last 5m" in first
    assert "once a worker answers" in result.stderr
    assert "holdfast worker" in result.stderr


@pytest.mark.parametrize("verb", ["cancel", "suspend"])
async def test_D36_whoever_waits_is_told_while_waiting(name: str, verb: str) -> None:
    result, _ = await run(verb, name, "--wait", "--timeout", "12s")
    assert result.exit_code == 4
    assert NOBODY in result.stderr.splitlines()[0], result.output
    assert "once a worker answers" in result.stderr


async def test_D36_what_only_a_worker_can_record_is_said_not_to_be_recorded(name: str) -> None:
    process = await asyncio.create_subprocess_exec(
        str(ROOT / ".venv" / "bin" / "holdfast"),
        "extend",
        name,
        "1h",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stderr is not None
        async with asyncio.timeout(100):
            first = (await process.stderr.readline()).decode()
            second = (await process.stderr.readline()).decode()
    finally:
        process.kill()
        await process.wait()
    assert NOBODY in first
    assert "nothing is recorded" in second


async def test_D36_submit_says_that_what_it_began_waits_for_a_worker(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(JOB.read_text().replace("name: sample-job", f"name: {a_workload().name}"))
    result, _ = await run("submit", str(file), "-n", "research", "-o", "json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)[0]["namespace"] == "research", "what a program reads stays what it was"
    assert NOBODY in result.stderr.splitlines()[0], result.output
    assert "begins once a worker answers" in result.stderr


async def test_D36_apply_says_that_what_it_began_waits_for_a_worker_and_reads_it_again(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(JOB.read_text().replace("name: sample-job", f"name: {a_workload().name}"))
    result, _ = await run("apply", str(file), "-n", "research", "-o", "json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)[0]["result"] == "submitted"
    assert NOBODY in result.stderr.splitlines()[0], result.output
    assert "begins once a worker answers" in result.stderr
    result, _ = await run("apply", str(file), "-n", "research", "-o", "json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)[0]["result"] == "unchanged"


async def test_D36_queues_and_the_broker_say_that_they_wait_for_a_worker(place: str, tmp_path: Path) -> None:
    file = tmp_path / "queue.yaml"
    queue = {"apiVersion": "holdfast.dev/v1", "kind": "Queue", "metadata": {"name": "q"}, "spec": {"quota": {"cpu": 8}}}
    file.write_text(json.dumps(queue))
    for argv, then, role in (
        (("queue", "apply", str(file)), "begins once a worker answers", "admission"),
        (("queue", "delete", "q"), "is carried out once a worker answers", "admission"),
        (("broker", "start"), "begins once a worker answers", "workflows"),
        (("broker", "stop"), "is carried out once a worker answers", "workflows"),
    ):
        result, _ = await run(*argv)
        assert result.exit_code == 0, result.output
        assert result.stdout, argv
        first, second, third = result.stderr.splitlines()
        assert first.startswith("stale"), result.output
        assert NOBODY in first
        assert then in second
        assert f"holdfast worker --roles {role}" in third
    for argv in (("queue", "apply", str(file)), ("broker", "start", "--at-once", "3")):
        result, _ = await run(*argv)
        assert result.exit_code == 2, "a change of what is there is not recorded until a worker answers"
        assert NOBODY in result.stderr


async def test_D36_watch_says_it_first(name: str) -> None:
    process = await asyncio.create_subprocess_exec(
        str(ROOT / ".venv" / "bin" / "holdfast"), "watch", name, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(100):
            first = (await process.stdout.readline()).decode()
    finally:
        process.kill()
        await process.wait()
    assert NOBODY in first, first


async def test_D36_list_says_that_nobody_polls(name: str) -> None:
    found = list[Result]()

    async def listed() -> bool:
        found[:] = [(await run("list"))[0]]
        return name.partition("/")[2] in found[0].stdout

    await until(listed, 60, "it is listed")
    assert NOBODY in found[0].stderr


async def test_D36_with_a_worker_nothing_is_said(client: Client, name: str) -> None:
    async with working(client, Cluster()):
        for argv in (("status", name), ("explain", name), ("list",), ("history", name), ("cancel", name, "--wait")):
            result, _ = await run(*argv)
            assert result.exit_code == 0, result.output
            assert "no worker" not in result.output, argv
            assert "stale" not in result.output, argv
        result, _ = await run("status", name)
        assert "stale" not in result.output, "nobody is needed for what has ended"


async def test_D36_what_has_ended_needs_no_worker(client: Client, name: str) -> None:
    async with working(client, Cluster()):
        result, _ = await run("cancel", name, "--wait")
        assert result.exit_code == 0, result.output
    for verb in ("status", "explain", "history"):
        result, _ = await run(verb, name)
        assert "stale" not in result.output, result.output
        assert "no worker answers" not in result.output


async def test_D60_a_wish_that_nobody_took_within_its_time_is_not_said_to_have_been_asked_for(name: str) -> None:
    result, _ = await run("checkpoint", name, "--wait", "--timeout", "1s")
    assert result.exit_code == 4
    said = " ".join(result.output.split())
    assert "was asked for, but" not in said
    assert "it is not known whether checkpoint was asked for" in said
    result, _ = await run("cancel", name, "--wait", "--timeout", "5s")
    assert "cancel was asked for, but is not done after 5s" in " ".join(result.output.split())
