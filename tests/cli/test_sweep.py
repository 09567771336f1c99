"""`holdfast sweep` as it is typed and as it is read, without any server."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast.cli.cluster.sweep_text import Scene, document, going, line, question, table
from holdfast.worker.cleanup.sweep import AttemptLeft, Found, Judgement, Left, Life, RunFact, Verdict, judge
from holdfast.worker.cleanup.sweep_delete import Outcome, Result
from holdfast.worker.cleanup.sweep_lookup import Item, Survey
from tests.cli.test_commands import kubeconfig, run

SCENE = Scene("dev", "c0ffee", "ours", "127.0.0.1:7233", "default")


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("TEMPORAL_ADDRESS", "TEMPORAL_NAMESPACE", "KUBECONFIG", "HOLDFAST_CONFIG", "HOLDFAST_INSTALLATION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOLDFAST_CLUSTER", "dev")
    monkeypatch.setenv("HOME", str(tmp_path))


def left(name: str, *numbers: int) -> Left:
    attempts = tuple(AttemptLeft(f"{name}-a{number}", f"uid-{number}", number) for number in numbers)
    return Left("research", name, f"uid-of-{name}", f"workload/dev/research/{name}", anchor=True, attempts=attempts)


def item(name: str, life: Life, *numbers: int) -> Item:
    found = left(name, *numbers)
    return Item(found, judge(found, life))


def running(name: str, attempt: int | None) -> Life:
    return Life(RunFact(f"uid-of-{name}", running=True, word="Running", attempt=attempt))


DEAD = item("dead", Life(RunFact("uid-of-dead", running=False, word="Terminated", phase="Running")), 1, 2)
PAST = item("past", running("past", 3), 2, 3)
LOST = item("lost", Life(), 1)
ODD = item("odd", running("odd", None), 1)
WELL = item("well", running("well", 1), 1)
SURVEY = Survey(Found(tuple(one.left for one in (DEAD, PAST, LOST, ODD, WELL)), 4, 7), (DEAD, PAST, LOST, ODD, WELL))


def test_the_table_shows_what_is_amiss_and_counts_the_rest() -> None:
    lines = table(SCENE, SURVEY).splitlines()
    assert [row.split()[1] for row in lines[1:5]] == ["dead", "past", "lost", "odd"]
    assert "anchor, attempts 1 and 2  ended" in lines[1]
    assert lines[2].endswith("at attempt 3: attempt 2 is a late worker's leftover")
    assert lines[5] == (
        "Unknown to Temporal at 127.0.0.1:7233, namespace default: 1 workload. If that is where it ran, "
        "`holdfast sweep --unknown` removes it."
    )
    assert (
        lines[6] == "Not touched on cluster dev: 1 workload alive, 4 settled, and 7 objects not of installation ours."
    )
    assert "--unknown" not in table(SCENE, SURVEY, hint=False)


def test_where_nothing_is_amiss_it_says_so() -> None:
    assert table(SCENE, Survey(Found(), (WELL,))).splitlines() == [
        "nothing was left behind",
        "Not touched on cluster dev: 1 workload alive, 0 settled, and 0 objects not of installation ours.",
    ]


def test_the_question_names_what_goes_and_who_was_asked() -> None:
    assert question(SCENE, SURVEY).splitlines() == [
        "Unknown to Temporal at 127.0.0.1:7233, namespace default, and to be deleted with all their pods:",
        "  research/lost: anchor, attempt 1 (uid uid-of-lost)",
    ]


def test_each_outcome_is_a_line() -> None:
    assert line(Outcome(DEAD, Result.REMOVED)) == "research/dead: removed (anchor, attempts 1 and 2)"
    assert line(Outcome(PAST, Result.REMOVED)) == "research/past: removed (attempt 2)"
    assert line(Outcome(DEAD, Result.CHANGED, why="it lives")) == "research/dead: let be: it lives"
    assert line(Outcome(DEAD, Result.LEFT, left=("Pod p (finalizer x/y)",), left_total=3)) == (
        "research/dead: NOT removed, still there when time was up: Pod p (finalizer x/y); and 2 more"
    )
    assert line(Outcome(DEAD, Result.LEFT, why="the cluster refuses: no")) == (
        "research/dead: NOT removed: the cluster refuses: no"
    )


def test_how_far_it_has_come_is_counted_while_something_is_left() -> None:
    waited = timedelta(seconds=41)
    assert going((DEAD, PAST), [Outcome(DEAD, Result.REMOVED)], waited) == (
        "1 of 2 done, 41s: waiting until research/past is gone"
    )
    assert going((DEAD,), [Outcome(DEAD, Result.LEFT)], waited) == ""


def test_the_document_says_what_became_of_each() -> None:
    whole = document(SCENE, SURVEY, (DEAD, PAST), [Outcome(DEAD, Result.REMOVED)], dry_run=False)
    assert json.loads(json.dumps(whole)) == whole
    assert {one["name"]: one["result"] for one in whole["workloads"]} == {
        "dead": "removed", "past": "unfinished", "lost": "untouched", "odd": "untouched",
    }  # fmt: skip
    dead = whole["workloads"][0]
    assert (dead["verdict"], dead["attempts"], dead["remove"]) == ("ended", [1, 2], ["dead-a1", "dead-a2"])
    assert (whole["alive"], whole["settled"], whole["foreign"]) == (1, 4, 7)
    assert whole["temporal"] == {"address": "127.0.0.1:7233", "namespace": "default"}


def test_every_verdict_has_its_place_in_what_is_said() -> None:
    for verdict in Verdict:
        survey = Survey(Found(), (Item(left("x", 1), Judgement(verdict, "since it is so")),))
        shown = table(SCENE, survey)
        assert ("since it is so" in shown) == (verdict is not Verdict.ALIVE)


def test_without_temporal_the_exit_code_is_3() -> None:
    result = run("sweep", "--address", "127.0.0.1:1")
    assert result.exit_code == 3
    assert "cannot reach Temporal at 127.0.0.1:1" in result.output


@pytest.mark.temporal
def test_without_kubernetes_the_exit_code_is_3(address: str, tmp_path: Path) -> None:
    result = run("sweep", "--address", address, "--kubeconfig", str(kubeconfig(tmp_path)))
    assert result.exit_code == 3
    assert "cannot reach Kubernetes at https://127.0.0.1:1" in result.output


@pytest.mark.temporal
def test_without_a_cluster_it_asks_which(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOLDFAST_CLUSTER")
    result = run("sweep", "--address", address)
    assert result.exit_code == 2
    assert "which cluster? Set HOLDFAST_CLUSTER, or give --cluster" in result.output


def test_a_time_limit_is_a_duration() -> None:
    result = run("sweep", "--timeout", "soon")
    assert result.exit_code == 2
    assert "'soon'" in result.output
