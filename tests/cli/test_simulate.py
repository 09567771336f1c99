"""`holdfast simulate` as it is typed: no server, the same bytes each time, refusals by field."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

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


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("events: [{at: 1m, fail: {component: other}}]", "events[0].fail.component: names no component of sample-job"),
        ("events: [{at: 1m, explode: {}}]", "events[0].explode: is not a field here"),
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
