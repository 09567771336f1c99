"""The status and the explanation as values, and the page that the Temporal UI shows (rows U11, U6)."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.model import BudgetStatus, Phase, PodCounts, Reason
from holdfast.policy.status.explain import CAUSES_SHOWN, explain_of, markdown, status_of
from holdfast.policy.status.report import conditions
from holdfast.policy.values.edit import edit
from holdfast.policy.values.events import Suspended
from tests.policy.lives.life import START, Life, workload
from tests.policy.lives.moments import moment
from tests.policy.verdicts.test_budgets import fails, spec

ROW = pytest.mark.row


def test_a_status_tells_all_that_programs_ask_for():
    life = moment("a pod has failed")
    status = status_of(life.spec, life.state, life.now, "uid-1")
    assert (status.name, status.namespace, status.cluster, status.uid) == ("train-llm", "default", "dev", "uid-1")
    assert (status.phase, status.reason, status.message) == (
        Phase.RUNNING,
        Reason.SUFFICIENT_PODS_READY,
        "all expected pods run",
    )
    assert (status.attempt, status.executions, status.restarts, status.since) == (1, 1, 0, START)
    assert status.budgets == (BudgetStatus(name="restart", limit=3, used=0),)
    assert status.conditions == conditions(life.spec, life.state)
    assert status.pods == PodCounts(expected=2, running=1, failed=1)
    assert status.failure is None
    assert (status.causes, status.causes_total) == (life.state.causes, len(life.state.causes))
    assert status.next is not None
    assert (status.next.at, status.next.what) == (
        life.now + timedelta(minutes=1),
        "failure grace: train-0 exited 1 on node-7",
    )


def test_before_anything_is_seen_a_status_tells_the_pods_that_are_expected():
    life = Life()
    status = status_of(life.spec, life.state, life.now, "uid")
    assert (status.attempt, status.pods, status.next) == (0, PodCounts(expected=2), None)
    assert status.resumed_from == ""


def test_a_settled_status_names_its_failure():
    life = moment("failed")
    status = status_of(life.spec, life.state, life.now, "uid")
    assert (status.phase, status.attempt, status.restarts, status.executions) == (Phase.FAILED, 4, 3, 4)
    assert status.failure == life.state.outcome_failure
    assert status.failure is not None
    assert status.failure.reason == "BackoffLimitExceeded"


@ROW("U11", level="pure")
def test_U11_an_explanation_has_phase_reason_since_attempt_and_the_last_five_causes():
    life = moment("failed and kept")
    told = explain_of(life.spec, life.state, life.now)
    assert (told.name, told.phase, told.reason) == ("train-llm", Phase.FAILED, Reason.RETRY_LIMIT_EXCEEDED)
    assert (told.attempt, told.next_attempt, told.since) == (4, None, life.state.since)
    assert told.budgets == (BudgetStatus(name="restart", limit=3, used=3),)
    assert CAUSES_SHOWN == 5
    assert told.causes == life.state.causes[-5:]
    assert explain_of(Life().spec, Life().state, START).attempt == 0


@ROW("U11", level="pure")
def test_U11_the_next_attempt_is_told_only_while_there_will_be_one():
    assert explain_of(workload(), moment("pausing").state, START).next_attempt == 2
    assert explain_of(workload(), moment("running").state, START).next_attempt is None
    without = edit(Life().state, phase=Phase.RESETTING)
    assert explain_of(workload(), without, START).next_attempt is None


@ROW("U10", level="pure")
def test_U10_health_goes_on_after_the_last_decision_and_counts_when_somebody_asks():
    life = fails(Life(spec=spec()).runs())
    asked = life.now + timedelta(days=1)
    assert [one.used for one in status_of(life.spec, life.state, life.now, "uid").budgets] == [1]
    assert [one.used for one in status_of(life.spec, life.state, life.now, "uid", asked).budgets] == [0]
    assert [one.used for one in explain_of(life.spec, life.state, life.now).budgets] == [1]
    assert [one.used for one in explain_of(life.spec, life.state, life.now, asked).budgets] == [0]


RESETTING = """\
### train-llm: Resetting (Resetting)
attempt 1 → 2 · budgets: restart 1 of 3 · since 2026-01-01 00:00:00 UTC

- **why** train: BackoffLimitExceeded; pod train-0 exited 1 on node-7 (rule component)
- **now** pausing before the next attempt; its quota is kept
- **next** 2026-01-01 00:01:30 UTC retry pause ends
- **next** 2026-01-01 00:01:30 UTC attempt 2 is created
- **to unblock** \\`holdfast retry default/train-llm\\` skips the pause

| time (UTC) | attempt | reason | what happened |
|---|---|---|---|
| 01-01 00:00:00 | 1 | DeletionComplete | attempt 1 is proven gone |
| 01-01 00:00:00 | 1 | Resetting | train: BackoffLimitExceeded; pod train-0 exited 1 on node-7 (rule component) |
| 01-01 00:00:00 | 1 | SufficientPodsReady | attempt 1 runs |
| 01-01 00:00:00 | 1 | SubmissionSucceeded | attempt 1 is created (submission owner-1) |"""

SUBMITTED = """\
### train-llm: Pending (Queued)
attempt 0 · budgets: restart 0 of 3, spare 0, no limit · since 2026-01-01 00:00:00 UTC

- **why** Queued
- **now**"""


def test_the_page_shows_the_explanation_whole():
    life = moment("pausing")
    assert markdown(explain_of(life.spec, life.state, life.now)) == RESETTING


@ROW("E9", level="pure")
def test_E9_the_page_of_a_workload_that_runs_again_says_at_its_top_why_it_did_not():
    life = moment("pausing").after(minutes=2).runs()
    heading, cause, empty, *rest = markdown(explain_of(life.spec, life.state, life.now)).splitlines()
    assert heading == "### train-llm: Running (SufficientPodsReady)"
    failure = "train: BackoffLimitExceeded; pod train-0 exited 1 on node-7 (rule component)"
    assert cause == f"**last cause** Resetting: {failure} (2026-01-01 00:00:00 UTC, attempt 1)"
    assert empty == ""
    assert rest[0].startswith("attempt 2 · budgets: restart 1 of 3")


@ROW("E9", level="pure")
def test_E9_the_page_of_a_workload_to_which_nothing_happened_has_no_last_cause():
    life = Life().runs()
    assert "last cause" not in markdown(explain_of(life.spec, life.state, life.now))


@ROW("E9", level="pure")
def test_E9_the_page_says_on_which_day_a_time_comes_and_what_ends_then():
    kept = Life(spec=workload(timings={"success_ttl": timedelta(days=7)})).runs().sees(succeeded=2, complete=True)
    text = markdown(explain_of(kept.spec, kept.state, kept.now))
    assert "- **next** 2026-01-08 00:00:00 UTC success TTL ends" in text
    ill = Life().runs().sees(running=1, failed=1)
    text = markdown(explain_of(ill.spec, ill.state, ill.now))
    assert "- **next** 2026-01-01 00:01:00 UTC failure grace ends (train-0 exited 1 on node-7)" in text


def test_the_page_leaves_out_what_there_is_not():
    policy = moment("a pod has failed, unlimited").spec.policy
    life = Life(spec=workload(policy=policy))
    assert markdown(explain_of(life.spec, life.state, life.now)).rstrip() == SUBMITTED


def test_a_bar_in_a_message_does_not_break_the_table():
    life = Life().runs().tell(Suspended(note="a | b"))
    assert r"| SuspendRequested | suspend was asked for: a \| b |" in markdown(
        explain_of(life.spec, life.state, life.now)
    )


def test_a_forced_removal_that_is_not_under_way_yet_is_told_without_a_time():
    life = moment("forcing")
    told = explain_of(life.spec, edit(life.state, operation=None), life.now)
    assert [(each.at, each.what) for each in told.next] == [
        (life.now, "once all is gone: the workload's quota is released, and the workload waits for resume")
    ]
