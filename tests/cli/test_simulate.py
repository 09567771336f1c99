"""`holdfast simulate` as it is typed: no server, the same bytes each time, refusals by field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from holdfast.simulation import run as play
from tests.cli.test_commands import JOB, run

SCRIPT = """
pods: {schedule: 2s, start: 8s, stop: 5s, run: 6h}
events:
- {at: 10m, fail: {exitCode: 137, reason: OOMKilled, node: node-7}}
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "failures.yaml"
    path.write_text(SCRIPT)
    return path


def test_a_timeline_a_person_reads(script: Path) -> None:
    result = run("simulate", str(JOB), "--script", str(script))
    assert result.exit_code == 0, result.output
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    for line in (
        "+10m Running 1 restart: 0 of 2 ! sample-job-0 exited 137 (OOMKilled) on node-7",
        "+10m5s Resetting 1 restart: 1 of 2 . retry pause until +10m10s",
        "outcome Succeeded (Completed: all components are complete)",
        "restarts 1 (1 charged, 0 uncharged)",
        "not running 25s (Starting and Resuming 20s, Resetting 5s)",
        "retry pause 1 +10m5s +10m10s ran out",
    ):
        assert line in lines, result.stdout


@pytest.mark.row("E7", level="pure")
def test_E7_a_start_has_one_name_and_an_open_deadline_has_not_ended(script: Path) -> None:
    script.write_text("events: [{at: 1s, unschedulable: {}}]")
    result = run("simulate", str(JOB), "--script", str(script), "--until", "5s")
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    for line in (
        "outcome none yet, it is Starting (Submitted: all components are created; their pods are starting)",
        "not running 5s (Starting 5s)",
        "admission grace 1 +0s +1m ended early",
        "warm-up grace 1 +0s +5m still to come",
    ):
        assert line in lines, result.stdout
    assert "Resuming" not in result.stdout


@pytest.mark.parametrize("output", ["table", "json", "yaml"])
def test_the_same_input_gives_the_same_bytes(script: Path, output: str) -> None:
    first = run("simulate", str(JOB), "--script", str(script), "-o", output)
    assert first.stdout == run("simulate", str(JOB), "--script", str(script), "-o", output).stdout


def test_settings_are_the_policy_that_is_judged(script: Path) -> None:
    text = run("simulate", str(JOB), "--script", str(script), "--set", "retryLimit=0", "-o", "json").stdout
    summary = json.loads(text)["summary"]
    assert (summary["outcome"], summary["reason"], summary["restarts"]) == ("Failed", "RetryLimitExceeded", 0)


def test_until_ends_it(script: Path) -> None:
    text = run("simulate", str(JOB), "--script", str(script), "--until", "1h", "-o", "yaml").stdout
    summary = yaml.safe_load(text)["summary"]
    assert (summary["outcome"], summary["finished"], summary["endedAt"]) == (None, False, "1h")
    assert (summary["running"], summary["lost"]) == ("59m35s", "25s")


def test_until_0s_ends_it_at_once(script: Path) -> None:
    text = run("simulate", str(JOB), "--script", str(script), "--until", "0s", "-o", "yaml").stdout
    assert yaml.safe_load(text)["summary"]["endedAt"] == "0s"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("events: [{at: 1m, fail: {component: other}}]", "events[0].fail.component: names no component of sample-job"),
        ("events: [{at: 1m, explode: {}}]", "events[0].explode: is not a field here"),
        ("events: [{at: 1m, scale: {component: sample-job, replicas: 10001}}]", "less than or equal to 10000"),
        ('pods: {run: "\\ud800"}', "pods.run: holds half of a letter"),
    ],
)
def test_a_bad_script_is_refused(script: Path, text: str, said: str) -> None:
    script.write_text(text)
    result = run("simulate", str(JOB), "--script", str(script))
    assert result.exit_code == 2
    assert said in result.output


def test_bad_options_are_refused(script: Path, tmp_path: Path) -> None:
    assert run("simulate", "-", "--script", "-").exit_code == 2
    assert run("simulate", str(JOB), "--script", str(script), "--until", "soon").exit_code == 2
    missing = run("simulate", str(JOB), "--script", str(tmp_path / "no.yaml"))
    assert missing.exit_code == 2
    assert "cannot be read" in missing.output


NUMBERS = ("activeDeadlineSeconds", "backoffLimit", "backoffLimitPerIndex", "maxFailedIndexes")


@pytest.mark.parametrize(("field", "value"), [*((name, "soon") for name in NUMBERS), ("backoffLimit", -1)])
def test_a_job_that_no_controller_could_run_is_refused(script: Path, tmp_path: Path, field: str, value: Any) -> None:
    result = run("simulate", _job(tmp_path, **{field: value}), "--script", str(script))
    assert result.exit_code == 2, result.exception
    assert f"Job j: spec.{field}: expected a whole number, at least 0 (found {value!r})" in result.output


def test_true_is_no_number_of_a_script(script: Path) -> None:
    script.write_text("{nodes: true}")
    result = run("simulate", str(JOB), "--script", str(script))
    assert result.exit_code == 2
    assert "nodes: expected a whole number" in result.output


def test_a_simulation_may_do_more_the_more_pods_there_are(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(play, "WORK_MAXIMUM", 0)
    script.write_text("{pods: {run: 1h}, events: [{at: 10m, fail: {}}]}")
    many = _job(tmp_path, parallelism=400, completions=400, completionMode="Indexed")
    assert "outcome" in run("simulate", many, "--script", str(script)).output
    assert "broken off" not in run("simulate", many, "--script", str(script)).output


def test_what_a_job_without_a_name_says_wrong_is_refused(script: Path, tmp_path: Path) -> None:
    file = Path(_job(tmp_path, backoffLimit=-1))
    file.write_text(file.read_text().replace('"name": "j"', '"generateName": "j-"', 1))
    result = run("simulate", str(file), "--script", str(script))
    assert result.exit_code == 2, result.exception
    assert "Job j-: spec.backoffLimit: expected a whole number" in result.output


@pytest.mark.parametrize("given", [{"activeDeadlineSeconds": 10**15}, {"backoffLimit": None}])
def test_what_kubernetes_takes_is_simulated(script: Path, tmp_path: Path, given: dict[str, Any]) -> None:
    script.write_text("{pods: {run: 6h}, events: [{at: 10m, fail: {}}]}")
    result = run("simulate", _job(tmp_path, **given), "--script", str(script))
    assert result.exit_code == 0, result.exception


def test_more_pods_than_can_be_simulated_are_refused(script: Path, tmp_path: Path) -> None:
    result = run("simulate", _job(tmp_path, parallelism=10_001), "--script", str(script))
    assert result.exit_code == 2
    assert "has too many pods to simulate: expected at most 10,000 (found 10001)" in result.output


def test_a_life_in_which_nothing_takes_time_is_broken_off(script: Path, tmp_path: Path) -> None:
    script.write_text("{pods: {schedule: 0s, start: 0s, stop: 0s}, events: [{attempt: each, at: 0s, fail: {}}]}")
    waits = ("failureGracePeriod=0s", "retryPausePeriod=0s", "retryLimit=1000000")
    settings = [part for one in waits for part in ("--set", one)]
    result = run("simulate", _job(tmp_path, backoffLimit=0), "--script", str(script), *settings)
    assert result.exit_code == 0, result.exception
    assert "broken off after 5,0" in result.stdout
    assert "at +0s it goes on without end, since nothing takes time: see pods, retryPausePeriod" in result.stdout


@pytest.mark.parametrize("every", ["1ms", "106751d"])
def test_repetitions_without_number_are_bounded(script: Path, tmp_path: Path, every: str) -> None:
    one = f"{{every: {every}, times: 10000, fail: {{}}}}"
    script.write_text(f"events: [{', '.join([one] * 1000)}]")
    result = run("simulate", _job(tmp_path), "--script", str(script))
    assert result.exit_code == 0, result.exception


def _job(folder: Path, **spec: Any) -> str:
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}}
    path = folder / "job.json"
    path.write_text(json.dumps({**job, "spec": {"template": {"spec": pod}, **spec}}))
    return str(path)
