"""A whole life through the commands, on a real Temporal."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
import yaml
from temporalio.client import Client
from typer.testing import CliRunner, Result

from holdfast.cli.app import app
from tests.client.conftest import a_workload
from tests.e2e.ground.site import until
from tests.fakes.several import Cluster, working

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(120)]


@pytest.fixture
def name() -> str:
    return "research/" + a_workload().name


@pytest.fixture
def file(tmp_path: Path, name: str) -> Path:
    path = tmp_path / "workload.json"
    path.write_text(a_workload(name=name.partition("/")[2]).model_dump_json())
    return path


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", address)
    monkeypatch.setenv("HOLDFAST_CLUSTER", "dev")
    monkeypatch.delenv("TEMPORAL_NAMESPACE", raising=False)


async def run(*arguments: str, code: int = 0) -> Result:
    """Run a command beside the workers of the test."""
    result = await asyncio.to_thread(CliRunner().invoke, app, list(arguments))
    assert result.exit_code == code, result.output
    return result


async def test_submit_steer_and_watch(client: Client, file: Path, name: str) -> None:
    cluster = Cluster()
    async with working(client, cluster):
        submitted = json.loads((await run("submit", str(file), "-o", "json")).stdout)[0]
        assert submitted["workflowId"] == f"workload/dev/{name}"
        assert json.loads((await run("submit", str(file), "-o", "json")).stdout)[0] == submitted

        assert f"{name} Suspended" in (await run("suspend", name, "--wait", "--reason", "making room")).stdout
        told = await run("explain", name)
        assert f"unblock    `holdfast resume {name}`" in told.stdout
        refused = await run("extend", name, "1h", code=2)
        assert "it has no walltime" in refused.output.replace("\n", " ")
        refused = await run("strip-finalizers", name, "--reason", "now", code=2)
        assert "it is Suspended, and nothing of it is being removed" in refused.output.replace("\n", " ")
        assert "stale" not in told.stdout
        assert f"{name} Running" in (await run("resume", name, "--wait", "--timeout", "30s")).stdout
        status = json.loads((await run("status", name, "-o", "json")).stdout)
        assert status["fresh"] is True
        assert status["status"]["attempt"] == 2

        assert (await run("preempt", name)).stdout == f"preempt asked of {name}\n"
        assert "making room" in (await run("history", name)).stdout
        life = json.loads((await run("history", name, "-o", "json")).stdout)
        assert life["exact"]
        assert [cause["number"] for cause in life["causes"]] == list(range(1, life["causesTotal"] + 1))
        assert f"{name} Cancelled" in (await run("cancel", name, "--wait")).stdout

        ledger = json.loads((await run("goodput", name, "-o", "json")).stdout)
        assert ledger["ended"]
        assert sum(ledger["milliseconds"].values()) == ledger["age"] > 0
        assert ledger["milliseconds"]["suspended"] > 0

        refused = await run("suspend", name, code=2)
        assert "has ended: Cancelled" in refused.output
        refused = await run("submit", str(file), code=2)
        assert "--again" in refused.output

        cluster.complete = True
        watched = (await run("submit", str(file), "--again", "--watch")).stdout
        assert "Succeeded" in watched

        async def listed() -> bool:
            return name.partition("/")[2] in (await run("list", "--phase", "succeeded", "-n", "research")).stdout

        await until(listed, 30, "it is listed")
        account = json.loads(
            (await run("goodput", "--cause", "SuspendRequested", "-n", "research", "-o", "json")).stdout
        )
        assert name.partition("/")[2] in [one["name"] for one in account["workloads"]]
        newest = json.loads((await run("goodput", "--cause", "Completed", "--limit", "1", "-o", "json")).stdout)
        assert newest["notes"][0] == "Only the newest 1 workloads are counted."
        (suspended,) = (one for one in ledger["charges"] if one["cause"] + one["bucket"] == "SuspendRequestedsuspended")
        assert account["milliseconds"]["suspended"] >= suspended["milliseconds"] > 0
        assert f"{name} Succeeded" in (await run("cancel", name, "--wait")).stdout


async def test_another_specification_under_the_same_name_is_refused(client: Client, file: Path) -> None:
    await run("submit", str(file))
    refused = await run("submit", str(file), "--set", "retryLimit=7", code=2)
    assert "runs already with another specification" in refused.output


async def test_a_failed_workload_is_exit_code_1(client: Client, file: Path, name: str) -> None:
    async with working(client, Cluster(failing="OOMKilled")):
        watched = await run("submit", str(file), "--watch", "--set", "retryLimit=0", code=1)
        assert "exited 137" in watched.stdout
        shown = await run("status", name, code=1)
        assert shown.stdout.count("worker-0 exited 137 (OOMKilled) on node-7") == 1


async def test_a_failed_workload_that_is_cancelled_is_done(client: Client, file: Path, name: str) -> None:
    async with working(client, Cluster(failing="OOMKilled")):
        await run("submit", str(file), "--set", "retryLimit=0", "--set", "deletionOnFailureGracePeriod=1h")

        async def failed() -> bool:
            shown = await asyncio.to_thread(CliRunner().invoke, app, ["status", name, "-o", "json"])
            return json.loads(shown.stdout)["status"]["phase"] == "Failed"

        await until(failed, 90, "it has failed")
        assert f"{name} Failed" in (await run("cancel", name, "--wait")).stdout, "it keeps its outcome"


async def test_a_wait_that_is_too_long_says_what_to_ask(client: Client, file: Path, name: str) -> None:
    await run("submit", str(file))
    late = await run("suspend", name, "--wait", "--timeout", "5s", code=4)
    how = "Pending, submitted; no worker has taken it yet"
    assert f"suspend was asked for, but is not done after 5s: {how}: `holdfast explain {name}`" in late.output


async def test_doctor_says_which_workers_are_missing(client: Client, address: str) -> None:
    result = await run("doctor", "--cluster", "nowhere", "--kubeconfig", "/nowhere", "-o", "json", code=3)
    found = {check["name"]: check for check in json.loads(result.stdout)}
    assert found["temporal"]["good"]
    assert found["search attributes"]["good"]
    assert not found["worker: watch"]["good"]
    assert found["worker: watch"]["remedy"].startswith("start one: `holdfast worker --roles watch --cluster nowhere`;")
    assert found["kubernetes"]["unreachable"]


async def test_a_status_is_told_in_the_terms_of_its_document_too(file: Path, name: str) -> None:
    await run("submit", str(file))
    told = yaml.safe_load((await run("status", name, "-o", "yaml")).stdout)
    assert told["status"]["phase"] == "Pending"
    assert told["sourceForm"] == {
        "apiVersion": "workload.codeflare.dev/v1beta2",
        "kind": "AppWrapper",
        "metadata": {"name": name.partition("/")[2], "namespace": "research"},
        "status": told["sourceForm"]["status"],
    }
    assert told["sourceForm"]["status"]["resettingCount"] == 0
    assert "sourceForm" not in (await run("status", name)).stdout


async def test_manifests_have_no_terms_of_their_own(name: str) -> None:
    example = Path(__file__).parents[2] / "examples" / "job.yaml"
    plain = name.partition("/")[2]
    await run("submit", str(example), "--name", plain)
    told = json.loads((await run("status", plain, "-o", "json")).stdout)
    assert told["status"]["name"] == plain
    assert "sourceForm" not in told
