"""A workload's status in JobSet's format: the `status` that its users and tools read, with the texts of v0.12.0."""

from __future__ import annotations

import re
from datetime import UTC
from typing import Final

from holdfast.formats.jobset.checks import RULE_NAME
from holdfast.formats.text import Json
from holdfast.model import ActionKind, Component, CopyCounts, CopyRestarts, Phase, Reason, Scope, Status, Workload
from holdfast.model.spec.policy import DEFAULT_RULE
from holdfast.policy.failures.rules import rule_on, title_of
from holdfast.profiles.jobset import FAILED_JOB, NO_POLICY, NO_RULE
from holdfast.profiles.rules import RESTART

COMPLETED: Final = ("Completed", "AllJobsCompleted", "jobset completed successfully")
SUSPENDED: Final = ("Suspended", "SuspendedJobs", "jobset is suspended")
RESUMED: Final = ("Suspended", "ResumeJobs", "jobset is resumed")
RETRIED: Final = ("Failed", "RetryRequested", "jobset is tried again")
STARTING: Final = (
    "StartupPolicyInProgress",
    "InOrderStartupPolicyInProgress",
    "in order startup policy is in progress",
)
STARTED: Final = (
    "StartupPolicyCompleted",
    "InOrderStartupPolicyCompleted",
    "in order startup policy has completed",
)
RESTARTING: Final = ("RestartingJobSet", "Restarting", "jobset is restarting")
"""What is told of a restart whose rule is not one of the document's (row J17)."""
_BY_RULE: Final = re.compile(r"\(rule ([\w,:-]+)\)")
"""The rule in the message of a restart."""
_FIRST_FAILED: Final = re.compile(r"[a-z0-9-]+(?=: )")
"""The Job in the message of a restart for a Job's failure."""
_RESTARTED: Final[dict[Phase, tuple[str, str, str]]] = {
    Phase.RUNNING: (RESTARTING[0], "JobsReady", "all jobs are ready"),
    Phase.SUSPENDING: (RESTARTING[0], "JobSetSuspended", SUSPENDED[2]),
    Phase.SUSPENDED: (RESTARTING[0], "JobSetSuspended", SUSPENDED[2]),
    Phase.SUCCEEDED: (RESTARTING[0], "JobSetCompleted", COMPLETED[2]),
    Phase.FAILED: (RESTARTING[0], "JobSetFailed", "jobset failed"),
}
"""What is told, as False, of a JobSet that restarted before, by its phase."""
REACHED_MAXIMUM: Final = ("ReachedMaxRestarts", "jobset failed due to reaching max number of restarts")
_OWN_ENDS: Final = (
    Reason.RULE_LIMIT_EXCEEDED,
    Reason.SUCCESS_UNREACHABLE,
    Reason.POISON_STEP,
    Reason.EXECUTIONS_EXCEEDED,
)
"""Ends for which JobSet has no reason: a rule's own limit, ignored failures, and what progress ends (row P4)."""
_SUSPENSIONS: Final = (Reason.SUSPEND_REQUESTED, Reason.PREEMPTED)
_RESTARTS: Final = (Reason.RESETTING, Reason.REQUEUED)


def status(workload: Workload, status: Status) -> Json:
    """Return the `v1alpha2` status of a JobSet; zero and empty fields are omitted, as JobSet does.

    Args:
        workload: The submitted workload.
        status: The workload's status.
    """
    alone = _alone(status)
    # Restarts of single Jobs are counted apart from those of all Jobs, although both count towards one maximum.
    counted = next((budget.used for budget in status.budgets if budget.name == RESTART), 0)
    counted = max(0, counted - sum(one.charged for one in alone))
    conditions = _conditions(workload, status)
    found: Json = {"conditions": conditions} if conditions else {}
    found["restarts"] = _restarts(status)
    if counted:
        found["restartsCountTowardsMax"] = counted
    found |= _in_place(status)
    if status.phase in {Phase.SUCCEEDED, Phase.FAILED}:
        found["terminalState"] = "Completed" if status.phase is Phase.SUCCEEDED else "Failed"
    found["replicatedJobsStatus"] = [
        {
            "name": one.name,
            **counts(status, one).model_dump(include={"ready", "succeeded", "failed", "active", "suspended"}),
            **_job_restarts(status, one),
        }
        for one in _replicated_jobs(workload)
    ]
    return found


def _alone(status: Status) -> list[CopyRestarts]:
    return [one for known in status.copy_restarts.values() for one in known.values()]


def _restarts(status: Status) -> int:
    """Return how often all Jobs were restarted."""
    return status.restarts - sum(one.restarts for one in _alone(status))


def _in_place(status: Status) -> Json:
    """Return the in-place restart attempt to leave behind, and the one at which programs may run (row J24)."""
    if status.barrier is None:
        return {}
    now = status.barrier.attempt
    found = {"previousInPlaceRestartAttempt": now - 1, "currentInPlaceRestartAttempt": now}
    if not status.barrier.is_lifted:
        found["currentInPlaceRestartAttempt"] = now - 1
    return {name: number for name, number in found.items() if number >= 0}


def counts(status: Status, component: Component) -> CopyCounts:
    """Return the counts of a replicated job's Jobs by state; all zero if nothing has been seen."""
    return status.copies.get(component.name, CopyCounts())


def _job_restarts(status: Status, component: Component) -> Json:
    """Return how often each Job was restarted alone, by its index; empty where none was (row J23)."""
    known = status.copy_restarts.get(component.name)
    found: Json = {}
    if known:
        each = [known.get(index) for index in range(component.copies or 0)]
        found["jobRestarts"] = [one.restarts if one is not None else 0 for one in each]
        charged = [one.charged if one is not None else 0 for one in each]
        if any(charged):
            found["jobRestartsCountTowardsMax"] = charged
    return found


def failed(workload: Workload, status: Status) -> tuple[str, str, str]:
    """Return the condition of a failed JobSet: type, reason, message (rows J1 to J3)."""
    failure = status.failure
    if failure is not None and failure.reason == Reason.POD_RESTARTED and status.reason is Reason.RETRY_LIMIT_EXCEEDED:
        return "Failed", *REACHED_MAXIMUM  # No Job has failed.
    if failure is None or failure.scope is not Scope.COMPONENT or status.reason is Reason.CREATE_FAILED:
        return "Failed", status.reason.value, status.message or status.reason.value
    ruling = rule_on(workload.policy, failure)
    if status.reason in _OWN_ENDS:
        reason, message = status.reason.value, status.message
    elif status.reason is Reason.RETRY_LIMIT_EXCEEDED:
        reason, message = REACHED_MAXIMUM
    elif ruling.rule == NO_POLICY.name or ruling.action.kind is not ActionKind.FAIL:
        reason, message = "FailedJobs", "jobset failed due to one or more job failures"
    else:
        reason, message = "FailJobSetFailurePolicyAction", "applying FailJobSet failure policy action"
    return "Failed", reason, f"{message} (first failed job: {failure.subject})"


def _conditions(workload: Workload, status: Status) -> list[Json]:
    found: list[tuple[tuple[str, str, str], bool]] = []
    # Once a set has ended, the counts no longer say how far it had started: what was ready is deleted.
    untold = {Phase.SUSPENDING, Phase.SUSPENDED, Phase.FAILED}
    if _in_order(workload) and status.attempt and status.phase not in untold:
        started = all(_started(status, one) for one in _replicated_jobs(workload))
        if started or status.phase is not Phase.SUCCEEDED:
            found.append((STARTING, not started))
        if started:
            found.append((STARTED, True))
    suspended = status.phase in {Phase.SUSPENDING, Phase.SUSPENDED} or status.reason in _SUSPENSIONS
    if suspended or any(cause.reason in _SUSPENSIONS for cause in status.causes):
        found.append((SUSPENDED if suspended else RESUMED, suspended))
    found += _restarting(workload, status)
    if status.phase is Phase.SUCCEEDED:
        found.append((COMPLETED, True))
    if status.phase is Phase.FAILED:
        found.append((failed(workload, status), True))
    since = status.since.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return [
        {
            "type": type_,
            "status": "True" if value else "False",
            "reason": reason,
            "message": message,
            "lastTransitionTime": since,
        }
        for (type_, reason, message), value in found
    ]


def _restarting(workload: Workload, status: Status) -> list[tuple[tuple[str, str, str], bool]]:
    """Return whether all Jobs are restarting; nothing before their first restart (row J17)."""
    if _restarts(status) <= 0:
        return []
    if status.phase in _RESTARTED:
        return [(_RESTARTED[status.phase], False)]
    if status.phase is Phase.RESUMING and all(_is_ready(status, one) for one in _replicated_jobs(workload)):
        return [(_RESTARTED[Phase.RUNNING], False)]
    if status.phase not in {Phase.PENDING, Phase.RESUMING, Phase.RESETTING}:
        return []
    decided = [one.reason for one in status.causes if one.reason in (*_RESTARTS, *_SUSPENSIONS)]
    if decided and decided[-1] in _SUSPENSIONS:
        return [(_RESTARTED[Phase.SUSPENDED], False)]  # It is being resumed.
    why = next((one.message for one in reversed(status.causes) if one.reason in _RESTARTS), "")
    return [(restarting(workload, why), True)]


def restarting(workload: Workload, message: str) -> tuple[str, str, str]:
    """Return the condition of a restart from the message of its cause: reason and message are as published.

    Where a rule restarts all Jobs by an action that is not published, the message is that of the cause.
    """
    kind, reason, told = RESTARTING
    rule = next(reversed(_BY_RULE.findall(message)), "")
    if (
        not rule
        and title_of(DEFAULT_RULE) in message
        and any(one.name == DEFAULT_RULE for one in workload.policy.rules)
    ):
        rule = DEFAULT_RULE
    told = _applied(workload, rule, message) or message or told
    if rule == NO_RULE.name:
        return kind, "DefaultFailurePolicy", told
    # Rules of Holdfast's own have hyphens, which a reason may not have.
    return kind, f"FailurePolicy_{rule}" if RULE_NAME.fullmatch(rule) else reason, told


def _applied(workload: Workload, rule: str, message: str) -> str:
    """Return the published message of a rule that restarts all Jobs for the failure of one; empty if it is none."""
    found = next((one for one in workload.policy.rules if one.name == rule), None)
    first = _FIRST_FAILED.match(message)
    if found is None or first is None:
        return ""
    of_job = (found.match.classes, found.match.scopes) == (FAILED_JOB.classes, FAILED_JOB.scopes)
    if not of_job or (found.action.kind, found.action.unit) != (ActionKind.RESTART, Scope.WORKLOAD):
        return ""
    action = "RestartJobSet" if found.action.charge is not None else "RestartJobSetAndIgnoreMaxRestarts"
    return f"applying {action} failure policy action (first failed job: {first[0]})"


def _replicated_jobs(workload: Workload) -> tuple[Component, ...]:
    return tuple(one for one in workload.components if one.copies is not None)


def _started(status: Status, component: Component) -> bool:
    """Whether all Jobs of a replicated job have started, as the startup policy counts them."""
    found = counts(status, component)
    return found.ready + found.succeeded + found.failed == component.copies


def _is_ready(status: Status, component: Component) -> bool:
    """Whether all Jobs of a replicated job are ready or have succeeded, by their own statuses."""
    found = counts(status, component)
    return found.ready + found.succeeded == component.copies


def _in_order(workload: Workload) -> bool:
    """Whether each replicated job waits for the one before it to be ready: the reader turns InOrder into this."""
    jobs = _replicated_jobs(workload)
    if len(jobs) < 2:
        return False
    waits = [[(one.component, str(one.status), one.created_suspended) for one in job.after] for job in jobs]
    return waits == [[], *([(before.name, "Ready", True)] for before in jobs[:-1])]
