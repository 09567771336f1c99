"""The crash harness without a cluster: it runs every point once, tells what it has not shown, and what is broken."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client, WorkflowQueryFailedError

from holdfast.activities.kube.errors import Unreachable
from holdfast.model import Status
from holdfast.worker.failpoints import EXIT_CRASHED, Passing
from holdfast.worker.runtime.settings import ENV_FAILPOINT
from tests.audited import BEGUN, Log, reset
from tests.e2e.crash import failpoints
from tests.e2e.crash.asking import Asking
from tests.e2e.crash.failpoints import SLICES, Outcome, pairs_of, share, summary
from tests.e2e.crash.test_failpoints import SAMPLE
from tests.e2e.ground.site import Site
from tests.e2e.lives.scenarios import BY_NAME, SCENARIOS, Scenario
from tests.e2e.witness import invariants
from tests.e2e.witness.ledger import read

POINTS = [Passing(f"http.create.pods.{when}", number) for number in (1, 2, 3, 4) for when in ("before", "after")]


def test_slices_run_every_point_and_every_pair_once():
    runs = [crashes for index in range(SLICES) for crashes in share(POINTS, index, SLICES)]
    assert sorted(run[0] for run in runs if len(run) == 1) == sorted(POINTS)
    assert sorted(run for run in runs if len(run) == 2) == sorted(pairs_of(POINTS))
    assert len(runs) == len(POINTS) + failpoints.PAIRS


def test_the_second_crash_of_a_pair_is_counted_from_the_second_start():
    trace = [Passing("a", 1), Passing("b", 1), Passing("a", 2), Passing("b", 2)]
    assert set(pairs_of(trace)) == {
        (trace[0], Passing("b", 1)),
        (trace[0], Passing("a", 1)),
        (trace[0], Passing("b", 2)),
        (trace[1], Passing("a", 1)),
        (trace[1], Passing("b", 1)),
        (trace[2], Passing("b", 1)),
    }
    assert pairs_of(POINTS, 5) == pairs_of(POINTS, 5)


def test_the_sample_is_of_scenarios_that_exist_and_points_that_can_be():
    assert {name for name, _ in SAMPLE} <= set(BY_NAME)
    assert all(str(Passing.parse(point)) == point for _, point in SAMPLE)
    assert len(BY_NAME) == len(SCENARIOS)


HELD = Outcome("one", "http.create.pods.before:1", 1, 1, 9.0)
MISSED = dataclasses.replace(HELD, happened=0)
BROKEN = dataclasses.replace(HELD, problem="created twice\nwithin one attempt")
PAIR = dataclasses.replace(HELD, wanted=2, happened=2)


def test_the_sum_says_what_held_what_was_not_reached_and_what_broke():
    lines, fine = summary([HELD, MISSED, PAIR, dataclasses.replace(HELD, scenario="two")])
    assert fine
    assert "one: 3 runs: 2 held, 1 not reached" in lines
    assert "not reached: one with http.create.pods.before:1" in lines
    assert "points by scenario: one 2, two 1" in lines
    assert lines[-1] == "3 failpoints and 1 pairs of 2 scenarios: 4 runs, 1 not reached, 0 broke an invariant"
    lines, fine = summary([HELD, BROKEN])
    assert not fine
    assert "broken: one with http.create.pods.before:1: created twice" in lines
    assert lines[-1].endswith("2 runs, 0 not reached, 1 broke an invariant")


@pytest.mark.parametrize("outcomes", [[], [MISSED], [HELD, dataclasses.replace(MISSED, scenario="two")]])
def test_what_was_never_reached_shows_nothing(outcomes: list[Outcome]):
    assert not summary(outcomes)[1]


def test_a_scenario_that_was_not_run_is_missed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(failpoints, "REPORTS", tmp_path)
    failpoints.record([dataclasses.replace(HELD, scenario=one) for one in list(BY_NAME)[1:]], "some")
    assert failpoints.main() == 1
    assert f"not run: {next(iter(BY_NAME))}" in capsys.readouterr().out
    rest = [dataclasses.replace(HELD, scenario=one) for one in (next(iter(BY_NAME)), failpoints.ROUNDS)]
    failpoints.record(rest[:1], "rest")
    assert failpoints.main() == 1
    assert f"not run: {failpoints.ROUNDS}" in capsys.readouterr().out
    failpoints.record(rest, "rest")
    assert failpoints.main() == 0


class Watched:
    """A site that notes with which environments its workers are started."""

    def __init__(self) -> None:
        self.started: list[dict[str, str]] = []

    def launch(self, *, kubeconfig: None, **environment: str) -> object:
        self.started.append(environment)
        return object()


def test_a_worker_is_started_with_what_its_scenario_sets_and_where_it_dies():
    site = Watched()
    failpoints.Mortal(cast("Site", site), (POINTS[0],), settings={"HOLDFAST_NODE_DOWN": "6s"})
    assert site.started[0]["HOLDFAST_NODE_DOWN"] == "6s"
    assert site.started[0][ENV_FAILPOINT] == str(POINTS[0])


class Queried:
    """A Temporal namespace in which one workflow runs, has a timer that is due soon, and cannot be asked."""

    def __init__(self, clock: list[str], refusal: str) -> None:
        self.clock, self.refusal = clock, refusal

    async def list_workflows(self, query: str) -> AsyncIterator[object]:
        yield SimpleNamespace(id="queue/c/gpus")

    def get_workflow_handle(self, workflow_id: str) -> Queried:
        self.clock.append(f"handle of {workflow_id}")
        return self

    async def query(self, name: str, rpc_timeout: timedelta) -> None:
        self.clock.append("asked")
        raise WorkflowQueryFailedError(self.refusal)

    async def fetch_history(self) -> object:
        await asyncio.sleep(0)
        event = HistoryEvent(event_type=EventType.EVENT_TYPE_TIMER_STARTED)
        event.event_time.FromDatetime(datetime.now(UTC))
        event.timer_started_event_attributes.timer_id = "1"
        event.timer_started_event_attributes.start_to_fire_timeout.FromTimedelta(timedelta(seconds=0.2))
        return SimpleNamespace(events=[event])


@pytest.mark.parametrize(("refusal", "fine"), [("ask again", True), ("Nondeterminism", False)])
async def test_between_death_and_restart_each_workflow_is_asked_and_a_timer_falls_due(refusal: str, fine: bool):
    clock: list[str] = []
    asking = Asking(cast("Client", Queried(clock, refusal)), ())
    begun = time.monotonic()
    await asking.between()
    assert time.monotonic() - begun >= 0.2
    assert (asking.due, "asked" in clock) == (1, True)
    if fine:
        await asking.answered()
    else:
        with pytest.raises(AssertionError, match=r"queue/c/gpus: Nondeterminism"):
            await asking.answered()


async def test_a_worker_of_an_entity_is_started_again_only_once_all_were_asked():
    order: list[str] = []

    class Dead:
        process = SimpleNamespace(poll=lambda: EXIT_CRASHED)

    class Lives:
        process = SimpleNamespace(poll=lambda: 1)
        log = SimpleNamespace(read_text=lambda: "it has ended")

    class Deadly(Watched):
        def launch(self, *, kubeconfig: None, **environment: str) -> object:
            super().launch(kubeconfig=None, **environment)
            order.append("started")
            return Dead() if len(self.started) == 1 else Lives()

    class Noted:
        async def between(self) -> None:
            order.append("asked")

    mortal = failpoints.Mortal(cast("Site", Deadly()), (POINTS[0],), asking=cast("Asking", Noted()))
    with pytest.raises(AssertionError, match="it has ended"):
        await mortal.watch_over()
    assert order == ["started", "asked", "started"]


@pytest.mark.parametrize(("failures", "problem"), [(1, ""), (2, "no answer")])
async def test_a_life_in_which_the_harness_could_not_ask_is_lived_once_more(
    monkeypatch: pytest.MonkeyPatch, failures: int, problem: str
):
    lives: list[int] = []

    async def live(*_: object) -> int:
        lives.append(1)
        if len(lives) <= failures:
            raise Unreachable(0, "", "no answer")
        return 1

    monkeypatch.setattr(failpoints, "live", live)
    outcome = await failpoints.run(cast("Site", Watched()), BY_NAME["lattice-probe"], (POINTS[0],))
    assert len(lives) == 2
    assert problem in outcome.problem
    assert bool(outcome.problem) == bool(problem)


# --- the invariants that a log can show


def _twice(log: Log) -> None:
    log.create("pods", "first-x", 2, 20)


def _in_the_background(log: Log) -> None:
    sent = {"preconditions": {"uid": log.uid("owner-2")}, "propagationPolicy": "Background"}
    log.delete("attempts", "owner-2", 20, sent=sent)


def _without_uid(log: Log) -> None:
    log.delete("pods", "first-2", 20, sent={"gracePeriodSeconds": 0})


def _too_early(log: Log) -> None:
    log.create("pods", "first-3", 3, 16)


def _without_trace(log: Log) -> None:
    log.lines[:] = log.lines[:3]


@pytest.mark.parametrize(
    ("check", "wrong", "told"),
    [
        (invariants.check_nothing_twice, _twice, "created twice within one attempt"),
        (invariants.check_the_law, _too_early, "first-2"),
        (invariants.check_the_law, _without_trace, "no reset is in the audit log"),
        (invariants.check_deletions, _in_the_background, "deleted in the background"),
        (invariants.check_deletions, _without_uid, "deleted without a uid"),
    ],
)
def test_each_invariant_holds_and_can_break(check: Callable[[object], None], wrong: Callable[[Log], None], told: str):
    log = reset()
    check(read(log.lines))
    wrong(log)
    with pytest.raises(AssertionError, match=told):
        check(read(log.lines))


RESTART = {"name": "restart", "limit": 3, "used": 1}


def _submission(crash: float) -> tuple[Log, list[datetime]]:
    """Return the log of a submission of two pods, and a crash in it."""
    log = Log()
    log.create("attempts", "owner-1", 1, 0)
    log.create("pods", "first-1", 1, 1)
    return log, [BEGUN + timedelta(seconds=crash)]


def test_a_submission_that_is_interrupted_is_neither_gone_on_with_nor_taken_for_whole():
    log, crash = _submission(2)
    log.delete("attempts", "owner-1", 4)
    with pytest.raises(AssertionError, match="not made anew"):
        invariants.check_nothing_filled_up(read(log.lines), crash)
    log.create("attempts", "owner-2", 2, 5)
    invariants.check_nothing_filled_up(read(log.lines), crash)
    log.submit("owner-1", 6)
    with pytest.raises(AssertionError, match="marked submitted"):
        invariants.check_nothing_filled_up(read(log.lines), crash)
    log.create("pods", "second-1", 1, 3)
    with pytest.raises(AssertionError, match="filled up"):
        invariants.check_nothing_filled_up(read(log.lines), crash)


def test_a_submission_that_had_begun_nothing_or_was_whole_goes_on():
    log, crash = _submission(0.5)
    log.create("pods", "second-1", 1, 3)
    log.submit("owner-1", 4)
    invariants.check_nothing_filled_up(read(log.lines), crash)
    log, crash = _submission(5)
    log.create("pods", "second-1", 1, 2)
    log.submit("owner-1", 3)
    invariants.check_nothing_filled_up(read(log.lines), crash)


@pytest.mark.parametrize(
    ("change", "attempts", "held"),
    [
        ({}, 2, True),
        ({}, 3, False),
        ({"phase": "Failed"}, 2, False),
        ({"restarts": 2}, 2, False),
        ({"budgets": [{"name": "restart", "limit": 3, "used": 2}]}, 2, False),
        (
            {"budgets": [{"name": "restart", "limit": 3, "used": 1}, {"name": "launch", "limit": 3, "used": 1}]},
            2,
            False,
        ),
    ],
)
def test_a_charge_for_a_crash_is_seen(change: dict[str, object], attempts: int, held: bool):
    told = {
        "name": "train",
        "namespace": "ns",
        "cluster": "c",
        "uid": "u",
        "phase": "Succeeded",
        "reason": "Completed",
        "since": BEGUN.isoformat(),
        "restarts": 1,
        "budgets": [RESTART],
    }
    status = Status.model_validate(told | change)
    with contextlib.nullcontext() if held else pytest.raises(AssertionError):
        scenario = BY_NAME["appwrapper-reset"]
        assert isinstance(scenario, Scenario)
        invariants.check_charges(scenario, status, attempts)


def test_a_forced_removal_may_delete_an_owner_at_once_if_it_began_in_the_foreground():
    log = reset()
    log.begin_deletion("attempts", "owner-2", 2, 20, finalizers=["foregroundDeletion"])
    log.delete("attempts", "owner-2", 21, sent={"preconditions": {"uid": "x"}, "gracePeriodSeconds": 0})
    invariants.check_deletions(read(log.lines))
