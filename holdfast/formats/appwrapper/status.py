"""A workload's status in AppWrapper's format: the `status` that its users and Kueue read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, assert_never

from holdfast.formats.condition import condition, timed
from holdfast.formats.text import Json
from holdfast.model import ConditionType, Phase, Reason, Report, Status, Workload
from holdfast.profiles.rules import RESTART


def status(
    workload: Workload, status: Status, *, previous: Mapping[str, Any] | None = None, now: datetime | None = None
) -> Json:
    """Return the `v1beta2` status of an AppWrapper.

    Args:
        workload: The submitted workload; its components determine `componentStatus`.
        status: The workload's status.
        previous: The AppWrapper's status so far: a condition that has not changed keeps its transition time.
        now: The transition time of conditions that have changed; by default the time at which the phase was entered.
    """
    used = next((budget.used for budget in status.budgets if budget.name == RESTART), 0)
    return {
        "phase": phase(status),
        "resettingCount": used,
        "conditions": timed(_conditions(status), previous or {}, None, now or status.since),
        "componentStatus": component_status(workload),
    }


def reported(components: Sequence[Json], report: Report, previous: Mapping[str, Any], now: datetime) -> Json:
    """Return the status of an AppWrapper in the cluster for a report that is about to be written to it (row F2).

    Args:
        components: Their `componentStatus`.
        report: The report to write.
        previous: The AppWrapper's status so far.
        now: The transition time of conditions that have changed.
    """
    return {
        "phase": phase(report),
        "resettingCount": report.used.get(RESTART, 0),  # As AppWrapper does, without resets that charge no budget.
        "conditions": timed([*_conditions(report), condition(report)], previous, report.generation, now),
        "componentStatus": list(components),
    }


def component_status(workload: Workload) -> list[Json]:
    """Return `componentStatus`: each component with its pod sets, in the order of the AppWrapper."""
    return [
        {
            "name": component.template["metadata"].get("name") or component.template["metadata"]["generateName"],
            "kind": component.template["kind"],
            "apiVersion": component.template["apiVersion"],
            "podSets": [{"path": each.path, "replicas": each.replicas} for each in component.pod_sets],
        }
        for component in workload.components
    ]


def phase(status: Status | Report) -> str:
    """Return AppWrapper's phase.

    In AppWrapper, Resuming ends once all components are created; PodsReady shows pods that are still starting.
    """
    match status.phase:
        case Phase.PENDING:
            # AppWrapper's phase is empty until its first reconciliation, and Suspended while it waits for admission.
            return "Suspended" if status.conditions else ""
        case Phase.RESUMING:
            submitted = any(one.type is ConditionType.SUBMITTED and one.status for one in status.conditions)
            return "Running" if submitted else "Resuming"
        case Phase.RUNNING | Phase.FINISHING | Phase.CHECKPOINTING:
            return "Running"
        case Phase.RESETTING:
            return "Resetting"
        case Phase.SUSPENDING:
            return "Suspending"
        case Phase.SUSPENDED:
            return "Suspended"
        case Phase.TERMINATING | Phase.CANCELLED:
            return "Terminating"
        case Phase.SUCCEEDED:
            return "Succeeded"
        case Phase.FAILED:
            return "Failed"
        case _:
            assert_never(status.phase)


def reason(reason: Reason) -> str:
    """Return AppWrapper's reason for a reason of ours."""
    match reason:
        case Reason.BLOCKED | Reason.QUEUED | Reason.STAGING | Reason.HELD | Reason.ADMITTED:
            return "Suspended"
        case Reason.STAGED | Reason.STORAGE_UNAVAILABLE | Reason.SUSPEND_REQUESTED | Reason.PREEMPTED:
            return "Suspended"
        case Reason.SUBMITTED | Reason.SUBMISSION_SUCCEEDED | Reason.CREATING | Reason.RESUMED:
            return "Resuming"
        case Reason.STARTING | Reason.AUDITED:
            return "Resuming"
        case Reason.SUFFICIENT_PODS_READY:
            return "SufficientPodsReady"
        case Reason.INSUFFICIENT_PODS_READY | Reason.PODS_NOT_ADMITTED | Reason.PODS_NOT_RUNNING:
            return "InsufficientPodsReady"
        case Reason.FOUND_FAILED_PODS | Reason.NODE_DOWN | Reason.NODE_STILL_DOWN | Reason.NODE_LOST:
            return "FoundFailedPods"
        case Reason.PROBE_FAILED | Reason.NO_PROGRESS:
            return "FoundFailedPods"
        case Reason.MISSING_COMPONENT:
            return "MissingComponent"
        case Reason.FAILED_COMPONENT:
            return "FailedComponent"
        case Reason.CREATE_FAILED | Reason.REFUSED | Reason.SUBMISSION_FAILED | Reason.SUBMISSION_TIMEOUT:
            return "CreateFailed"
        case Reason.RETRY_LIMIT_EXCEEDED | Reason.LAUNCH_LIMIT_EXCEEDED:
            return "Failed"
        case Reason.RULE_LIMIT_EXCEEDED | Reason.SUCCESS_UNREACHABLE | Reason.STAGING_FAILED:
            return "Failed"
        case Reason.MAX_REQUEUE_EXCEEDED | Reason.PROLOGUE_FAILURE_MAX_RETRIES | Reason.WALLTIME_EXCEEDED:
            return "Failed"
        case Reason.MAX_RESTARTS_EXHAUSTED | Reason.MAX_ROUNDS_EXHAUSTED | Reason.EXIT_BARRIER_TIMEOUT:
            return "Failed"
        case Reason.POISON_STEP | Reason.EXECUTIONS_EXCEEDED:
            return "Failed"
        case Reason.JOIN_TIMEOUT | Reason.MEMBER_FAILED:
            return "Failed"
        case Reason.MEMBER_LOST:
            return "FoundFailedPods"
        case Reason.CANCEL_REQUESTED | Reason.ANCHOR_DELETED | Reason.DEPENDENCY_UNSATISFIABLE:
            return "Terminating"
        case Reason.DELETION_INITIATED | Reason.DELETION_FORCED | Reason.DELETION_BLOCKED | Reason.FINALIZERS_STRIPPED:
            return "DeletionInitiated"
        case Reason.RESTARTED_IN_PLACE:
            return "Resuming"
        case Reason.POD_RESTARTED:
            return "FoundFailedPods"
        case Reason.SUSPENDED_IN_PLACE:
            return "Suspended"
        case Reason.DELETION_COMPLETE:
            return "DeletionComplete"
        case Reason.RESETTING | Reason.RETRY_REQUESTED | Reason.REQUEUED | Reason.REQUEUE_REQUESTED:
            return "Resetting"
        case Reason.COMPLETED | Reason.TTL_EXPIRED:
            return "Succeeded"
        case Reason.HEALED:
            return "FoundNoFailedPods"
        case Reason.POLICY_CHANGED | Reason.CONFIGURATION_CHANGED | Reason.BUDGET_RENEWED | Reason.WALLTIME_EXTENDED:
            return "PolicyChanged"
        case Reason.SCALED | Reason.SIGNAL_NOT_UNDERSTOOD:
            return "PolicyChanged"
        case Reason.CHECKPOINT_REQUESTED | Reason.CHECKPOINT_EXTENDED | Reason.CHECKPOINT_COMPLETE:
            return "SufficientPodsReady"
        case Reason.CHECKPOINT_PARTIAL | Reason.CHECKPOINT_DISCARDED:
            return "SufficientPodsReady"
        case Reason.REPLACING:
            return "InsufficientPodsReady"
        case _:
            assert_never(reason)


def _conditions(told: Status | Report) -> list[Json]:
    return [
        {
            "type": condition.type.value,
            "status": "True" if condition.status else "False",
            "reason": reason(condition.reason),
            "message": condition.message,
        }
        for condition in told.conditions
        if condition.type is not ConditionType.SUBMITTED  # AppWrapper shows this by its phase.
    ]
