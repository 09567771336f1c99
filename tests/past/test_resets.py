"""A life that was reset in Temporal: it is told by the run that goes on, and not by the one whose place that took."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from itertools import permutations
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from temporalio.client import WorkflowHistory
from temporalio.service import RPCError, RPCStatusCode

from holdfast.client import Holdfast
from holdfast.client.connection import Place
from holdfast.client.past import fetch, from_files
from holdfast.client.summary import Summary
from holdfast.past import Story, history_of, ledger_of
from tests.cli.text.test_listing import one as listed
from tests.past.test_archive import CONVERTER, LIFE, Shelf, read

pytestmark = pytest.mark.row("O6", level="pure")
*BEFORE, SIXTH, LAST = LIFE
WORKFLOW = "workload/dev/research/train"


def events_of(file: Path) -> list[dict[str, Any]]:
    return json.loads(file.read_text())["events"]


def run_of(events: Sequence[dict[str, Any]]) -> str:
    return events[0]["workflowExecutionStartedEventAttributes"]["originalExecutionRunId"]


A = run_of(events_of(SIXTH))


def terminated(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a run as a reset leaves it: with what it had done by then."""
    ended = {"eventId": "1000", "eventTime": "2026-11-21T06:00:00Z", "workflowExecutionTerminatedEventAttributes": {}}
    return [*events[:-6], {**ended, "eventType": "EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED"}]


def reset(events: list[dict[str, Any]], made: str, minute: int = 0) -> list[dict[str, Any]]:
    """Return the run that a reset makes of another one: with its first events, and its first and original ids."""
    cause = {"baseRunId": run_of(events), "newRunId": made, "cause": "WORKFLOW_TASK_FAILED_CAUSE_RESET_WORKFLOW"}
    failed = {
        "eventId": f"200{minute}",
        "eventTime": f"2026-11-21T06:0{minute}:00Z",
        "eventType": "EVENT_TYPE_WORKFLOW_TASK_FAILED",
        "workflowTaskFailedEventAttributes": cause,
    }
    return [*events[:3], failed, *events[3:]]


def after(events: list[dict[str, Any]], run_id: str) -> list[dict[str, Any]]:
    """Return a run as one that continues another."""
    return json.loads(json.dumps(events).replace(A, run_id))


RUNS = {
    A: terminated(events_of(SIXTH)),
    "again": reset(events_of(SIXTH), "again"),
    run_of(events_of(LAST)): after(events_of(LAST), "again"),
}
GOES_ON = [run_of(events_of(one)) for one in BEFORE] + ["again", run_of(events_of(LAST))]


def written(where: Path, runs: Sequence[list[dict[str, Any]]]) -> list[Path]:
    """Write histories to files whose names are in this order."""
    files = [where / f"{at}.json" for at in range(len(runs))]
    for file, events in zip(files, runs, strict=True):
        file.write_text(json.dumps({"events": events}))
    return files


def ids(story: Story) -> list[str]:
    return [run.run_id for run in story.runs]


@pytest.mark.parametrize("order", list(permutations(range(3))))
async def test_an_archive_and_files_tell_the_run_that_goes_on_whatever_their_order(
    order: tuple[int, ...], tmp_path: Path
):
    files = [*BEFORE, *written(tmp_path, [list(RUNS.values())[at] for at in order])]
    whole = history_of(await from_files(LIFE, CONVERTER))
    for story in (await from_files(files, CONVERTER), await read(Shelf(*files))):
        assert ids(story) == GOES_ON
        told = history_of(story)
        assert (told.phase, told.outcome, told.causes_total) == (whole.phase, whole.outcome, whole.causes_total)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
async def test_the_end_of_a_life_is_that_of_the_run_that_was_made_and_not_of_the_one_that_was_terminated(
    order: tuple[int, ...], tmp_path: Path
):
    base = events_of(LAST)
    runs = [terminated(base), reset(base, "again")]
    files = [*BEFORE, SIXTH, *written(tmp_path, [runs[at] for at in order])]
    for story in (await from_files(files, CONVERTER), await read(Shelf(*files))):
        assert (ids(story)[-1], story.runs[-1].closed) == ("again", "Completed")


async def test_the_files_of_what_goes_on_are_complete(tmp_path: Path):
    files = written(tmp_path, list(RUNS.values())[1:])
    assert ids(await from_files(files, CONVERTER)) == GOES_ON[-2:]


async def test_what_continued_a_run_that_was_reset_is_left_out_too(tmp_path: Path):
    lost = terminated(events_of(LAST))
    files = written(tmp_path, [events_of(SIXTH), lost, reset(events_of(SIXTH)[:-1], "again")])
    assert ids(await from_files(files, CONVERTER)) == ["again"]


async def test_of_two_resets_the_later_one_goes_on(tmp_path: Path):
    first, second = terminated(reset(events_of(SIXTH), "once")), reset(events_of(SIXTH), "again", minute=1)
    for runs in ([RUNS[A], first, second], [second, first, RUNS[A]]):
        assert ids(await from_files(written(tmp_path, runs), CONVERTER)) == ["again"]


class Temporal:
    """Temporal with the runs of one life; the run that was made by the reset has gone on."""

    data_converter = CONVERTER

    def __init__(self, first: str) -> None:
        self._runs = {run_of(events_of(one)): events_of(one) for one in BEFORE} | RUNS
        self._latest = SimpleNamespace(first_run_id=first)

    def get_workflow_handle(self, _workflow_id: str, run_id: str | None = None) -> Any:
        last = run_of(events_of(LAST))

        async def fetch_history() -> Any:
            if (run_id or last) not in self._runs:
                raise RPCError("it is not there", RPCStatusCode.NOT_FOUND, b"")
            return WorkflowHistory.from_json("run", json.dumps({"events": self._runs[run_id or last]}))

        async def describe() -> Any:
            return SimpleNamespace(run_id=last, raw_description=SimpleNamespace(workflow_execution_info=self._latest))

        return SimpleNamespace(fetch_history=fetch_history, describe=describe)


async def told_from(run_id: str, first: str) -> list[str]:
    story = await fetch(cast("Any", Temporal(first)), cast("Place", None), WORKFLOW, run_id)
    return ids(story)


async def test_the_run_that_was_terminated_leads_to_the_one_that_goes_on():
    assert await told_from(A, GOES_ON[0]) == GOES_ON
    assert await told_from("", GOES_ON[0]) == GOES_ON


async def test_a_later_submission_of_the_name_is_another_life():
    assert await told_from(A, "another's") == [*GOES_ON[:-2], A]


async def test_P5_a_life_that_was_reset_is_counted_once(monkeypatch: pytest.MonkeyPatch):
    lives = [
        listed("train", uid="u", run_id="again"),
        listed("train", uid="u", run_id=A, execution="Terminated"),
        listed("train", uid="an earlier submission's", run_id="earlier", execution="Completed"),
        listed("old", run_id="of a release that did not say whose it was", execution="Completed"),
    ]

    async def found(*_: object, **__: object) -> AsyncIterator[Summary]:
        for each in lives:
            yield each

    read = list[str]()
    story = await from_files(LIFE, CONVERTER)

    def run_of(_: Holdfast, one: Summary) -> Any:
        async def ledger() -> Any:
            read.append(one.run_id)
            return ledger_of(story, datetime(2026, 11, 22, tzinfo=UTC))

        return SimpleNamespace(ledger=ledger)

    monkeypatch.setattr(Holdfast, "list", found)
    monkeypatch.setattr(Holdfast, "run_of", run_of)
    account = await Holdfast(cast("Any", None), Place("here", "default"), "dev").account()
    assert sorted(read) == sorted(one.run_id for one in lives if one.run_id != A)
    assert len(account.workloads) == 3
