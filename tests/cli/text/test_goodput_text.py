"""`holdfast goodput`, and the end of `holdfast simulate --history`: on recorded histories, without a server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from holdfast.cli.workloads import history_text
from holdfast.client import Holdfast, Summary
from holdfast.model.life.ledger import Bucket, together
from holdfast.past.ledger import end_of, ledger_of
from tests.cli.test_commands import run
from tests.past.recorded import story
from tests.past.test_simulated_lives import document, lived, script
from tests.replay.record import HISTORIES

OF = "(time queued or suspended does not count)"


def files(scenario: str) -> list[str]:
    return [part for path in sorted(HISTORIES.glob(f"{scenario}*.json")) for part in ("--history", str(path))]


@pytest.mark.row("P5", level="pure")
def test_P5_a_person_reads_where_the_time_went_and_what_each_cause_cost() -> None:
    real = lived(document("pods"), script("failed-pod-reset"))
    lines = history_text.ledger(ledger_of(real, end_of(real))).splitlines()
    assert lines[0] == (
        "pods  4m55s since 2000-01-01 00:00:00 UTC, ended 2000-01-01 00:04:55 UTC; 2 attempts of 2 pods; "
        f"goodput 20.3% {OF}"
    )
    told = [" ".join(line.split()) for line in lines]
    for line in ("lost 1m 20.3%", "detecting 1m 20.3%", "App node-1 pausing 1m30s", "queued 0s 0.0%"):
        assert line in told
    assert told[-1].startswith("note: This workload declares no checkpoint")


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_programs_read_whole_milliseconds(output: str) -> None:
    result = run("goodput", *files("continue-as-new"), "-o", output)
    assert result.exit_code == 0, result.output
    ledger = json.loads(result.stdout) if output == "json" else yaml.safe_load(result.stdout)
    assert set(ledger["milliseconds"]) == {bucket.value for bucket in Bucket}
    assert sum(ledger["milliseconds"].values()) == ledger["age"] == 6769
    assert ledger["spans"][0]["bucket"] == "queued"


def test_what_a_node_cost_is_a_part_of_the_ledger() -> None:
    whole = json.loads(run("goodput", *files("node-down"), "-o", "json").stdout)
    node = json.loads(run("goodput", *files("node-down"), "--node", "node-7", "-o", "json").stdout)
    cause = json.loads(run("goodput", *files("node-down"), "--cause", "NodeLost", "-o", "json").stdout)
    other = run("goodput", *files("node-down"), "--node", "node-8")
    assert node["milliseconds"] == cause["milliseconds"]
    assert node["milliseconds"]["lost"] == whole["milliseconds"]["lost"] > 0
    assert node["milliseconds"]["productive"] == 0
    assert node["goodput"] is None
    assert [one["name"] for one in node["workloads"]] == [whole["name"]]
    assert other.stdout.splitlines() == [
        "node node-8: no time of any workload",
        "note: of 1 workload, no time has node node-8; nodes that have: node-7",
    ]
    nowhere = run("goodput", *files("happy-path"), "--node", "node-8").stdout
    assert nowhere.splitlines()[1:] == ["note: of 1 workload, no time has node node-8; none has a node"]


def test_a_cause_is_read_in_any_case_and_one_that_no_time_has_is_refused() -> None:
    exact, lower = (run("goodput", *files("node-down"), "--cause", one) for one in ("NodeLost", "nodelost"))
    assert exact.exit_code == 0, exact.output
    assert exact.stdout == lower.stdout
    wrong = run("goodput", *files("node-down"), "--cause", "OOMKilled")
    assert wrong.exit_code == 2
    said = " ".join(wrong.output.replace("│", " ").split())
    assert "--cause: 'OOMKilled': expected a failure class (App, NodeLost, " in said
    assert "or the reason of a request" in said


@pytest.mark.parametrize(
    ("queue", "there", "said"),
    [
        ("gpus", ("cpus", "gpus"), "no workload of queue gpus on cluster dev"),
        ("gpus", (), "no workload of queue gpus on cluster dev"),
        (
            "gpu",
            ("a", "b", "c", "gpus"),
            "no workload of queue gpu on cluster dev; there is no such queue: expected a, b, c and 1 more",
        ),
    ],
)
async def test_a_queue_that_no_workload_has_is_said_to_be_so(queue: str, there: tuple[str, ...], said: str) -> None:
    class Empty(Holdfast):
        async def list(self, **_: Any) -> AsyncIterator[Summary]:  # type: ignore[override]
            for one in list[Summary]():
                yield one

        async def queues(self, cluster: str | None = None) -> Any:
            return [SimpleNamespace(name=name) for name in there]

    nobody: Any = None
    told = await Empty(nobody, nobody, "dev").account(queue=queue)
    assert told.notes == (said,)
    assert history_text.account(told).splitlines() == [f"queue {queue}: no time of any workload", f"note: {said}"]


async def test_workloads_together_have_the_sum_of_their_time_and_each_note_once() -> None:
    ledgers = [ledger_of(found, end_of(found)) for found in [await story(name) for name in ("reset", "failed")]]
    account = together(ledgers, queue="default", notes=("one is left out",))
    assert sum(account.milliseconds.values()) == sum(one.age for one in ledgers)
    assert [sum(one.milliseconds.values()) for one in account.workloads] == [3560, 2328], "the largest first"
    left_out, note = account.notes
    assert left_out == "one is left out"
    assert note.startswith("default/train-llm, default/train-llm: This workload declares no checkpoint")
    text = history_text.account(account)
    assert text.splitlines()[0] == f"queue default: 2 workloads; goodput {100 * (account.goodput or 0):.1f}% {OF}"
    assert text.endswith(note)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "expected NAME, --history, --queue, --node or --cause"),
        (("x", "--queue", "q"), "expected only one of NAME, --history and --queue"),
        (("--history", "x.json", "--queue", "q"), "expected only one of NAME, --history and --queue"),
        (("--history", "life.txt"), "expected files with the ending .json"),
    ],
)
def test_wrong_usage_is_refused(arguments: tuple[str, ...], message: str) -> None:
    result = run("goodput", *arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.output.replace("│", " ").split())


@pytest.mark.row("P6", level="pure")
def test_P6_a_comparison_ends_with_what_both_policies_cost() -> None:
    result = run("simulate", *files("failed"), "--set", "retryLimit=1")
    assert result.exit_code == 0, result.output
    told = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert told[told.index("what it cost") :] == [
        "what it cost",
        "REALLY OTHER POLICY DIFFERENCE",
        "attempts 4 2 -2",
        "queued 0.028s 0.028s 0s",
        "starting 0.254s 0.147s -0.107s",
        "lost 0.093s 0.045s -0.048s",
        "detecting 0.085s 0.043s -0.042s",
        "removing 0.084s 0.043s -0.041s",
        "pausing 3.016s 1.002s -2.014s",
        "pod-hours idle 0.000 0.000 0",
        "time to the end 3.56s 1.308s -2.252s",
    ]


@pytest.mark.row("P6", level="pure")
def test_P6_where_reality_took_another_way_nothing_is_guessed() -> None:
    text = run("simulate", *files("failed"), "--set", "retryLimit=9").stdout
    assert "what it cost, up to 2026-11-21 05:30:33: what came then is not known" in text
    assert "not known" in text.splitlines()[-1]
