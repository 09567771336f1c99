"""The status that JobSet's users read, given back in JobSet's terms: words and fields as the published controller's."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast.formats.jobset import status as jobset_status
from holdfast.model import (
    BudgetStatus,
    Cause,
    CopyCounts,
    CopyRestarts,
    Failure,
    FailureClass,
    Phase,
    Reason,
    Scope,
    Status,
    Workload,
)
from tests.formats.documents import Json
from tests.formats.jobset.jobsets import jobset_of, one, replicated

SINCE = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
IN_ORDER = {"startupPolicyOrder": "InOrder"}
ANY = jobset_of(replicated("a", replicas=2), replicated("b"))


def told(phase: Phase = Phase.RUNNING, reason: Reason = Reason.SUFFICIENT_PODS_READY, **fields: Any) -> Status:
    values = {"name": "train", "namespace": "default", "cluster": "dev", "uid": "u", "since": SINCE, "attempt": 1}
    return Status(**{**values, "phase": phase, "reason": reason, **fields})


def shown(document: Json, status: Status) -> Json:
    return jobset_status.status(one(document), status)


def conditions(document: Json, status: Status) -> list[tuple[str, str, str, str]]:
    found = shown(document, status).get("conditions", [])
    assert all(each["lastTransitionTime"] == "2026-01-02T03:04:05Z" for each in found)
    return [(each["type"], each["status"], each["reason"], each["message"]) for each in found]


def failed_job(name: str = "train-a-1", reason: str = "BackoffLimitExceeded", component: str = "a") -> Failure:
    return Failure(
        cls=FailureClass.APP, scope=Scope.COMPONENT, reason=reason, time=SINCE, component=component, subject=name
    )


def ended_by(failure: Failure, reason: Reason = Reason.FAILED_COMPONENT) -> Status:
    return told(Phase.FAILED, reason, failure=failure)


def test_a_running_set_tells_how_its_jobs_stand() -> None:
    copies = {"a": CopyCounts(expected=2, ready=1, succeeded=1, active=1)}
    assert shown(ANY, told(copies=copies)) == {
        "restarts": 0,
        "replicatedJobsStatus": [
            {"name": "a", "ready": 1, "succeeded": 1, "failed": 0, "active": 1, "suspended": 0},
            {"name": "b", "ready": 0, "succeeded": 0, "failed": 0, "active": 0, "suspended": 0},
        ],
    }


@pytest.mark.row("J4", level="pure")
def test_J4_restarts_are_told_twice_over() -> None:
    budgets = (BudgetStatus(name="restart", limit=3, used=2),)
    found = shown(ANY, told(restarts=5, budgets=budgets))
    assert (found["restarts"], found["restartsCountTowardsMax"]) == (5, 2)


@pytest.mark.row("J17", level="pure")
def test_J17_completed() -> None:
    status = told(Phase.SUCCEEDED, Reason.COMPLETED)
    assert conditions(ANY, status) == [("Completed", "True", "AllJobsCompleted", "jobset completed successfully")]
    assert shown(ANY, status)["terminalState"] == "Completed"


@pytest.mark.row("J1", level="pure")
def test_J1_failed_without_a_policy_names_the_first_failed_job() -> None:
    status = ended_by(failed_job())
    assert conditions(ANY, status) == [
        (
            "Failed",
            "True",
            "FailedJobs",
            "jobset failed due to one or more job failures (first failed job: train-a-1)",
        )
    ]
    assert shown(ANY, status)["terminalState"] == "Failed"


@pytest.mark.row("J2", level="pure")
def test_J2_failed_by_a_rule() -> None:
    document = jobset_of(replicated("a"), failurePolicy={"rules": [{"action": "FailJobSet"}]})
    assert conditions(document, ended_by(failed_job())) == [
        (
            "Failed",
            "True",
            "FailJobSetFailurePolicyAction",
            "applying FailJobSet failure policy action (first failed job: train-a-1)",
        )
    ]


@pytest.mark.row("J3", level="pure")
def test_J3_failed_at_the_last_restart() -> None:
    document = jobset_of(replicated("a"), failurePolicy={"maxRestarts": 2})
    assert conditions(document, ended_by(failed_job(), Reason.RETRY_LIMIT_EXCEEDED)) == [
        (
            "Failed",
            "True",
            "ReachedMaxRestarts",
            "jobset failed due to reaching max number of restarts (first failed job: train-a-1)",
        )
    ]


def test_a_job_that_was_let_fail_leaves_failed_jobs() -> None:
    document = jobset_of(replicated("a"), failurePolicy={"rules": [{"action": "FailJob"}]})
    assert conditions(document, ended_by(failed_job()))[0][2] == "FailedJobs"


@pytest.mark.row("J19", level="pure")
@pytest.mark.parametrize("action", ["RestartReplicatedJob", "FailJob"])
@pytest.mark.parametrize("reason", [Reason.RULE_LIMIT_EXCEEDED, Reason.SUCCESS_UNREACHABLE])
def test_J19_an_end_by_what_is_not_published_is_told_in_our_words(action: str, reason: Reason) -> None:
    document = jobset_of(replicated("a"), failurePolicy={"rules": [{"name": "part", "action": action}]})
    status = ended_by(failed_job(), reason).model_copy(update={"message": "rule part has acted"})
    assert conditions(document, status) == [
        ("Failed", "True", reason.value, "rule part has acted (first failed job: train-a-1)")
    ]


def test_what_jobset_has_no_word_for_is_told_in_ours() -> None:
    status = told(Phase.FAILED, Reason.REFUSED, message="spec.replicatedJobs[0]: no")
    assert conditions(ANY, status) == [("Failed", "True", "Refused", "spec.replicatedJobs[0]: no")]


def test_suspended_and_resumed() -> None:
    suspended = ("Suspended", "True", "SuspendedJobs", "jobset is suspended")
    assert conditions(ANY, told(Phase.SUSPENDED, Reason.SUSPEND_REQUESTED)) == [suspended]
    assert conditions(ANY, told(Phase.SUSPENDING, Reason.PREEMPTED)) == [suspended]
    cause = Cause(time=SINCE, attempt=1, phase=Phase.SUSPENDING, reason=Reason.SUSPEND_REQUESTED, message="")
    assert conditions(ANY, told(causes=(cause,))) == [("Suspended", "False", "ResumeJobs", "jobset is resumed")]


RESTARTING = ("RestartingJobSet", "True", "Restarting", "jobset is restarting")


@pytest.mark.row("J17", level="pure")
@pytest.mark.parametrize("phase", [Phase.RESETTING, Phase.PENDING, Phase.RESUMING])
def test_J17_a_set_restarts_until_all_its_jobs_are_ready(phase: Phase) -> None:
    assert conditions(ANY, told(phase, Reason.RESETTING, restarts=1)) == [RESTARTING]
    assert not conditions(ANY, told(phase, Reason.RESETTING)), "its first start is no restart"


@pytest.mark.row("J17", level="pure")
@pytest.mark.parametrize(
    ("phase", "reason", "message"),
    [
        (Phase.RUNNING, "JobsReady", "all jobs are ready"),
        (Phase.SUSPENDED, "JobSetSuspended", "jobset is suspended"),
        (Phase.SUCCEEDED, "JobSetCompleted", "jobset completed successfully"),
        (Phase.FAILED, "JobSetFailed", "jobset failed"),
    ],
)
def test_J17_why_a_set_that_restarted_no_longer_does(phase: Phase, reason: str, message: str) -> None:
    status = told(phase, Reason.SUSPEND_REQUESTED, restarts=1)
    assert ("RestartingJobSet", "False", reason, message) in conditions(ANY, status)


@pytest.mark.row("J17", level="pure")
def test_J17_a_resumption_is_no_restart_and_a_restart_after_it_is_one() -> None:
    def cause(reason: Reason) -> Cause:
        return Cause(time=SINCE, attempt=1, phase=Phase.RUNNING, reason=reason, message="")

    restarted, suspended = cause(Reason.RESETTING), cause(Reason.SUSPEND_REQUESTED)
    resuming = told(Phase.RESUMING, Reason.CREATING, restarts=1, causes=(restarted, suspended))
    assert ("RestartingJobSet", "False", "JobSetSuspended", "jobset is suspended") in conditions(ANY, resuming)
    again = told(Phase.RESUMING, Reason.CREATING, restarts=2, causes=(suspended, restarted))
    assert RESTARTING in conditions(ANY, again)


@pytest.mark.row("J23", level="pure")
def test_J23_a_restart_of_a_single_job_is_none_of_all() -> None:
    alone = {"a": {0: CopyRestarts(restarts=1, attempt=1, launches=1, at=SINCE)}}
    assert not conditions(ANY, told(restarts=1, copy_restarts=alone))


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (CopyCounts(), CopyCounts(), [("StartupPolicyInProgress", "True")]),
        (CopyCounts(ready=1), CopyCounts(), [("StartupPolicyInProgress", "True")]),
        (
            CopyCounts(ready=1, succeeded=1),
            CopyCounts(failed=1),
            [("StartupPolicyInProgress", "False"), ("StartupPolicyCompleted", "True")],
        ),
    ],
)
def test_the_startup_policy(first: CopyCounts, second: CopyCounts, expected: list[tuple[str, str]]) -> None:
    document = jobset_of(replicated("a", replicas=2), replicated("b"), startupPolicy=IN_ORDER)
    found = conditions(document, told(copies={"a": first, "b": second}))
    assert [each[:2] for each in found] == expected
    assert not conditions(ANY, told(copies={"a": first, "b": second}))
    messages = {
        "StartupPolicyInProgress": ("InOrderStartupPolicyInProgress", "in order startup policy is in progress"),
        "StartupPolicyCompleted": ("InOrderStartupPolicyCompleted", "in order startup policy has completed"),
    }
    assert all(messages[type_] == (reason, message) for type_, _, reason, message in found)


@pytest.mark.row("J13", level="pure")
@pytest.mark.row("J17", level="pure")
def test_J13_what_is_deleted_at_the_end_does_not_count_as_not_started() -> None:
    document = jobset_of(replicated("a", replicas=2), replicated("b"), startupPolicy=IN_ORDER)
    cleared = {"a": CopyCounts(expected=2, succeeded=1), "b": CopyCounts(expected=1)}
    assert [each[0] for each in conditions(document, told(Phase.SUCCEEDED, copies=cleared))] == ["Completed"]
    complete = {"a": CopyCounts(expected=2, succeeded=2), "b": CopyCounts(expected=1, succeeded=1)}
    ended = conditions(document, told(Phase.SUCCEEDED, copies=complete))
    assert [each[:2] for each in ended][:2] == [
        ("StartupPolicyInProgress", "False"),
        ("StartupPolicyCompleted", "True"),
    ]
    for copies in (cleared, complete):
        assert [each[0] for each in conditions(document, told(Phase.FAILED, copies=copies))] == ["Failed"]


@pytest.mark.parametrize("phase", Phase)
def test_every_phase_can_be_told(phase: Phase) -> None:
    workload: Workload = one(ANY)
    found = jobset_status.status(workload, told(phase))
    assert set(found) >= {"restarts", "replicatedJobsStatus"}
    assert ("terminalState" in found) == (phase in {Phase.SUCCEEDED, Phase.FAILED})


@pytest.mark.row("J23", level="pure")
def test_J23_restarts_of_single_jobs_are_told_by_index_and_not_as_restarts_of_all() -> None:
    def restarts(count: int, charged: int = 0) -> CopyRestarts:
        return CopyRestarts(restarts=count, charged=charged, attempt=1, launches=1, at=SINCE)

    budgets = (BudgetStatus(name="restart", limit=9, used=4),)
    found = shown(
        jobset_of(replicated("a", replicas=3), replicated("b"), replicated("c")),
        told(
            restarts=6,
            budgets=budgets,
            copy_restarts={"a": {0: restarts(1, 1), 2: restarts(2, 1)}, "b": {0: restarts(1)}},
        ),
    )
    assert (found["restarts"], found["restartsCountTowardsMax"]) == (2, 2)
    assert [
        (one.get("jobRestarts"), one.get("jobRestartsCountTowardsMax")) for one in found["replicatedJobsStatus"]
    ] == [
        ([1, 0, 2], [1, 0, 1]),
        ([1], None),
        (None, None),
    ]
