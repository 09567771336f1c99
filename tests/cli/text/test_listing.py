"""The list's order, limits and changes, and what names and selections refuse, without a server (row E3)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from typer.testing import CliRunner, Result

from holdfast.cli.app import app
from holdfast.cli.common import render, screen
from holdfast.cli.common.several import named_by
from holdfast.cli.workloads import selected
from holdfast.cli.workloads.listing import Listing, Selection, Sort, changes, ordered, row_below, select
from holdfast.client.summary import Summary
from holdfast.model import Phase

pytestmark = pytest.mark.row("E3", level="pure")
NOW = datetime(2026, 1, 31, 2, 14, 50, tzinfo=UTC)
JOB = Path(__file__).parents[3] / "examples" / "appwrapper-job.yaml"


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("TEMPORAL_ADDRESS", "TEMPORAL_NAMESPACE", "KUBECONFIG", "HOLDFAST_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOLDFAST_CLUSTER", "dev")
    monkeypatch.setenv("HOME", str(tmp_path))


def run(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, list(arguments), input=stdin)


def said(result: Result) -> str:
    return " ".join(result.output.replace("│", " ").split())


def one(name: str, age: int = 0, **fields: Any) -> Summary:
    given: dict[str, Any] = {
        "workflow_id": f"workload/dev/research/{name}",
        "run_id": f"run-{name}",
        "cluster": "dev",
        "namespace": "research",
        "name": name,
        "phase": "Running",
        "started_at": NOW - timedelta(seconds=age),
        "execution": "Running",
    }
    return Summary.model_validate({**given, **fields})


def test_E3_each_order_is_the_one_that_is_named_whatever_temporal_lists_first() -> None:
    found = [one("b", 5, restarts=2), one("c", 90, phase="Failed"), one("a", 60, restarts=7)]
    names = {sort: [each.name for each in ordered(found, sort)] for sort in Sort}
    assert names == {
        Sort.AGE: ["b", "a", "c"],
        Sort.NAME: ["a", "b", "c"],
        Sort.PHASE: ["c", "b", "a"],
        Sort.RESTARTS: ["a", "b", "c"],
    }
    assert all(ordered(found[::-1], sort) == ordered(found, sort) for sort in Sort)


def test_E3_age_is_since_the_submission_although_its_workflow_has_continued_since() -> None:
    old = one("old", 5, submitted_at=NOW - timedelta(days=3))
    assert [each.name for each in ordered([old, one("new", 60)], Sort.AGE)] == ["new", "old"]
    assert " 3d" in render.summaries([old], NOW)


def test_E3_the_table_has_a_reason_and_the_wide_one_more() -> None:
    failed = one("a", phase="Failed", reason="RetryLimitExceeded", queue="gpus", message="worker-3 exited 137")
    heads, row = render.summaries([failed], NOW).splitlines()
    assert heads.split() == ["NAMESPACE", "NAME", "KIND", "PHASE", "REASON", "ATTEMPT", "RESTARTS", "AGE"]
    assert "Failed  RetryLimitExceeded" in row
    heads, row = render.summaries([failed], NOW, wide=True).splitlines()
    assert heads.split()[-3:] == ["CLUSTER", "QUEUE", "MESSAGE"]
    assert row.endswith("dev      gpus   worker-3 exited 137")


def test_E3_of_several_clusters_each_row_says_of_which_it_is() -> None:
    heads, first, second = render.summaries([one("a"), one("a", cluster="prod")], NOW).splitlines()
    assert heads.split()[-2:] == ["AGE", "CLUSTER"]
    assert (first.split()[-1], second.split()[-1]) == ("dev", "prod")


def test_E3_what_a_limit_leaves_out_is_said() -> None:
    listing = Listing(tuple(one(str(number)) for number in range(2431)))
    assert listing.notes(100) == ["showing 100 of 2,431 workloads: --limit shows more"]
    assert listing.notes(2431) == []
    (note,) = Listing(listing.found, cut=True).notes(100)
    assert note.startswith("showing 100 of more than 2,431 workloads, sorted among the 2,431 that Temporal lists first")


@pytest.mark.row("E7", level="pure")
def test_E7_a_cancellation_through_temporal_that_was_carried_out_needs_no_sweep() -> None:
    carried_out, cut_off = (one(phase, phase=phase, execution="Canceled") for phase in ("Cancelled", "Running"))
    assert Listing((carried_out,)).notes(100) == []
    assert "research/Running: its workflow was cancelled" in Listing((cut_off,)).notes(100)[0]
    assert "workflow cancelled (was Running)" in render.summaries([cut_off], NOW)


@dataclass
class Visible:
    """A Temporal with these runs: it lists those that match a phase, or the ids in a query."""

    found: tuple[Summary, ...]
    asked: list[str] = field(default_factory=list[str])
    """The queries."""

    async def list(
        self, *, phase: str | None = None, running: bool | None = None, query: str | None = None, **_: Any
    ) -> AsyncIterator[Summary]:
        self.asked += [query] if query is not None else []
        for each in self.found:
            matches = query is None or f"'{each.workflow_id}'" in query
            if phase in {None, each.phase} and running in {None, each.execution == "Running"} and matches:
                yield each


async def listed(*found: Summary, **terms: Any) -> tuple[Listing, list[str]]:
    there: Any = Visible(found)
    return await select(there, Sort.NAME, **terms), there.asked


@pytest.mark.parametrize("word", ["Starting", "starting"])
async def test_E3_starting_selects_what_is_shown_so_and_resuming_all_that_resumes(word: str) -> None:
    resuming: dict[str, Any] = {"phase": "Resuming", "reason": "Submitted"}
    found = (
        one("first", attempt=1, **resuming),
        one("again", attempt=5, **resuming),
        one("resumed", attempt=1, phase="Resuming", reason="Resumed"),
        one("runs", attempt=1),
    )
    terms = Selection(phase=word).terms()
    assert [each.name for each in (await listed(*found, **terms))[0].found] == ["first"]
    terms = Selection(phase="resuming").terms()
    assert [each.name for each in (await listed(*found, **terms))[0].found] == ["again", "first", "resumed"]


FAILED: Final[dict[str, Any]] = {"phase": "Failed", "execution": "Completed"}


async def test_E3_a_workload_that_was_run_again_is_listed_by_its_latest_run() -> None:
    old, older = one("train", 90, run_id="old", **FAILED), one("train", 900, run_id="older", **FAILED)
    new, other = one("train", 5), one("other", 50, **FAILED)
    listing, asked = await listed(old, new, older, other)
    assert ([each.run_id for each in listing.found], asked) == (["run-other", "run-train"], [])
    assert listing.notes(100) == ["left out: 2 earlier runs of the same workloads: --closed shows them"]
    listing, asked = await listed(old, new, older, other, running=False)
    assert ([each.run_id for each in listing.found], asked) == (["run-other", "old", "older"], [])
    assert listing.notes(100) == []


async def test_E3_a_phase_selects_no_earlier_run_of_what_is_in_another() -> None:
    old, again = one("train", 90, run_id="old", **FAILED), one("eval", 90, run_id="old", **FAILED)
    ended = one("eval", 5, phase="Succeeded", execution="Completed")
    many = [one(f"a{number}", **FAILED) for number in range(300)]
    listing, asked = await listed(old, one("train", 5), again, ended, *many, phase="Failed")
    assert [each.name for each in listing.found] == sorted(each.name for each in many)
    assert listing.notes(300) == ["left out: 2 earlier runs of the same workloads: --closed shows them"]
    assert len(asked) == 2, "at most 200 ids in a query"
    assert (await listed(old, one("train", 5), phase="Failed", query="x"))[1] == ["x"], "a query is the user's own"


async def test_E3_a_command_for_a_selection_acts_on_runs_that_run() -> None:
    old, new = one("train", 90, run_id="old", uid="u-1", **FAILED), one("train", 5, uid="u-2")
    assert [each.uid for each in (await listed(old, new, running=True))[0].found] == ["u-2"]


def test_E3_watching_does_not_tell_that_a_workflow_has_continued_as_new() -> None:
    before = Listing((one("a", uid="u", submitted_at=NOW), one("b", uid="v")))
    after = Listing(
        (one("a", -60, uid="u", submitted_at=NOW, run_id="next"), one("b", -60, uid="v", run_id="next", phase="Failed"))
    )
    assert [(each.name, each.phase, gone) for each, gone in changes(before, after)] == [("b", "Failed", False)]
    again = Listing((one("a", -60, uid="w", run_id="next"), after.found[1]))
    assert [(each.uid, gone) for each, gone in changes(after, again)] == [("w", False)], "it was run again"
    assert [each.name for each, gone in changes(again, Listing(())) if gone] == ["a", "b"]


@pytest.mark.row("E7", level="pure")
def test_E7_a_run_that_a_reset_in_temporal_terminated_needs_no_sweep() -> None:
    over = one("train", uid="u", run_id="a", execution="Terminated")
    for goes_on in ("Running", "Completed"):
        assert Listing((one("train", uid="u", run_id="b", execution=goes_on), over)).notes(100) == []
    for other in (one("train", uid="another's", run_id="b"), one("train", uid="u", run_id="b", execution="Terminated")):
        assert "`holdfast sweep` removes them" in Listing((other, over)).notes(100)[0]
    unknown = one("train", run_id="a", execution="Terminated")
    assert Listing((one("train", run_id="b"), unknown)).notes(100), "it is not known whose it is"


def test_E3_watching_tells_changes_and_departures_once() -> None:
    before = Listing((one("a"), one("b"), one("c")))
    after = Listing((one("a"), one("b", phase="Failed"), one("d")))
    assert [(each.name, each.phase, gone) for each, gone in changes(before, after)] == [
        ("b", "Failed", False),
        ("d", "Running", False),
        ("c", "Running", True),
    ]
    assert changes(after, after) == []
    assert [gone for _, gone in changes(before, Listing(after.found, cut=True))] == [False, False], "it may match still"


@pytest.mark.parametrize("columns", [None, 200])
def test_E3_a_watched_row_lines_up_with_the_table_above_it(columns: int | None) -> None:
    above = [one("a-long-name-of-a-workload"), one("b", reason="SufficientPodsReady")]
    with screen.wide(columns):
        heads = render.summaries(above, NOW).splitlines()[0]
        row = row_below(above, one("b", phase="Failed", reason="Refused"), NOW, wide=False)
    places = {head: heads.index(head) for head in ("NAME ", "PHASE", "REASON", "ATTEMPT")}
    assert {row.index(cell): cell for cell in ("b ", "Failed", "Refused", "- ")} == dict(
        zip(places.values(), ("b ", "Failed", "Refused", "- "), strict=True)
    )


def test_E3_a_watched_row_below_a_folded_table_is_whole() -> None:
    above = [one("a-long-name-of-a-workload-that-folds", reason="SufficientPodsReady") for _ in range(2)]
    with screen.wide(screen.NARROWEST):
        row = row_below(above, one("b", phase="Failed", reason="Refused"), NOW, wide=False)
    assert row.split()[:2] == ["research", "b"]
    assert "Failed" in row
    assert "Refused" in row


def test_E3_a_bad_selector_is_refused_before_anybody_is_asked() -> None:
    result = run("list", "-l", "team in x", "--address", "127.0.0.1:1")
    assert result.exit_code == 2
    assert "expected key=value, key!=value, key in (a,b)" in said(result)


def test_E3_a_name_that_is_given_twice_counts_once() -> None:
    assert [each.name for each in named_by(["b", "research/a", "b"], "research")] == ["b", "a"]


VERBS = ("suspend", "resume", "preempt", "cancel")


@pytest.mark.parametrize("verb", VERBS)
def test_E3_a_command_wants_names_or_a_selection_and_not_both(verb: str) -> None:
    for arguments in ((), ("x", "--all"), ("x", "--phase", "Failed"), ("x", "-l", "team=x"), ("-A",)):
        result = run(verb, *arguments)
        assert result.exit_code == 2
        assert "expected names of workloads, or a selection (-l, --phase, --queue), or --all" in said(result)
    for arguments in (("x", "-A"), ("--all", "-A", "-n", "research")):
        result = run(verb, *arguments)
        assert result.exit_code == 2
        assert "expected --all or a selection with it" in said(result)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("selection", [("--all",), ("-l", "team=x"), ("--queue", "q", "-A")])
def test_E3_a_selection_is_refused_where_nobody_can_be_asked(verb: str, selection: tuple[str, ...]) -> None:
    result = run(verb, *selection, "--address", "127.0.0.1:1", stdin="y\n")
    assert result.exit_code == 2, "it does not get as far as Temporal"
    assert f"{verb} asks first, and there is no terminal to ask at: --yes goes on unasked" in said(result)
    assert run(verb, *selection, "--yes", "--address", "127.0.0.1:1").exit_code == 3


def test_E3_a_selection_leaves_out_what_the_command_would_not_change() -> None:
    changed = {verb: {phase for phase in Phase if selected.changes(verb, phase)} for verb in VERBS}
    over = {Phase.TERMINATING, Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELLED}
    down = {Phase.SUSPENDING, Phase.SUSPENDED}
    everything = set(Phase)
    assert changed == {
        "suspend": everything - over,
        "resume": down,
        "preempt": everything - over - down,
        "cancel": everything,
    }


def test_E3_a_folder_is_its_files_in_order(tmp_path: Path) -> None:
    folder = tmp_path / "jobs"
    (folder / "below").mkdir(parents=True)
    for name in ("b.yaml", "a.yml", "below/c.yaml", "README.md"):
        (folder / name).write_text(JOB.read_text().replace("name: sample-job", f"name: {Path(name).stem.lower()}"))
    result = run("submit", f"{folder}/", "--dry-run")
    assert [line.split()[3] for line in result.stdout.splitlines()] == ["a:", "b:"]


def test_E3_an_empty_folder_is_refused(tmp_path: Path) -> None:
    result = run("submit", str(tmp_path), "--dry-run")
    assert result.exit_code == 2
    assert "has no workload: expected files that end in .yaml, .yml, .json" in said(result)


def test_E3_of_several_files_the_wrong_one_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(JOB.read_text())
    (tmp_path / "b.yaml").write_text("kind: [")
    result = run("submit", str(tmp_path), "--dry-run")
    assert result.exit_code == 2
    assert f"{tmp_path}/b.yaml: " in result.output.replace("\n", "")


def test_E3_apply_takes_no_graph() -> None:
    result = run("apply", str(JOB.parent / "graph" / "etl.yaml"))
    assert result.exit_code == 2
    assert "a graph cannot be changed" in said(result)
