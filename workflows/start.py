"""The start options of a workload's workflow, so that lists and the UI show it at once. Pure values."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from temporalio.common import (
    SearchAttributeKey,
    SearchAttributePair,
    TypedSearchAttributes,
    WorkflowIDConflictPolicy,
    WorkflowIDReusePolicy,
)

from holdfast import names
from holdfast.model import BudgetStatus, Phase, Reason, Status, Workload, format_duration
from holdfast.model.words import counted
from holdfast.policy.loop.submission import identity
from holdfast.policy.values.events import WISHES
from holdfast.workflows import patches

_SUMMARY_BYTES = 380


def stamped(workload: Workload) -> Workload:
    """Return the workload stamped for this submission, with a new uid and the current time.

    The workflow would fill an empty uid; a uid from the document would make two submissions look like one. A client
    never submits a custom resource, whatever the document says, so `source.generation` and `source.by` are cleared.
    """
    source = workload.source.model_copy(update={"generation": None, "by": ""})
    return workload.started_only().model_copy(
        update={"uid": str(uuid.uuid4()), "submitted_at": datetime.now(UTC), "source": source}
    )


def options(workload: Workload, *, again: bool) -> dict[str, Any]:
    """Return the arguments with which a client starts a workload's workflow, except the workflow's name.

    Args:
        workload: as it is submitted.
        again: whether a new workflow may reuse the id of one that has ended.
    """
    reuse = WorkflowIDReusePolicy.ALLOW_DUPLICATE if again else WorkflowIDReusePolicy.REJECT_DUPLICATE
    return {
        "arg": document(workload),
        "id": workload.workflow_id,
        "task_queue": names.QUEUE_WORKFLOWS,
        "id_reuse_policy": reuse,
        "id_conflict_policy": WorkflowIDConflictPolicy.FAIL,
        "memo": memo(workload),
        "search_attributes": search_attributes(workload),
        "static_summary": summary(workload),
        "static_details": details(workload),
    }


def document(workload: Workload) -> dict[str, Any]:
    """Return the workflow's input: one JSON document, the same for every SDK and for the `temporal` CLI."""
    return workload.model_dump(mode="json")


def first_status(workload: Workload) -> Status:
    """Return the status of a workload that no worker has looked at yet."""
    submitted = workload.submitted_at or datetime.now(UTC)
    return Status(
        name=workload.name,
        namespace=workload.namespace,
        cluster=workload.cluster,
        uid=workload.uid,
        phase=Phase.PENDING,
        reason=Reason.QUEUED,
        message="submitted; no worker has taken it yet",
        since=submitted,
        budgets=tuple(BudgetStatus(name=b.name, limit=b.limit, used=0) for b in workload.policy.budgets),
    )


def memo(workload: Workload) -> dict[str, Any]:
    """Return the memo at the start: identity, what was submitted, and a status to show while no worker answers."""
    told = identity(workload, workload.uid) | {
        names.MEMO_SPEC_HASH: workload.spec_hash(),
        names.MEMO_STATUS: first_status(workload).model_dump(mode="json"),
    }
    if workload.source.generation is not None:
        told[names.MEMO_APPLIED] = True
    return told


def readable_by(release: str, workload: Workload) -> Workload:
    """Return the workload without fields that it can do without, if an earlier release must read it (row O4).

    That is what only `list` needs, and in which order a suspended workload is created.
    """
    if not release:
        return workload
    earliest = patches.release(release)
    if earliest < patches.release("0.3"):
        workload = workload.started_only()
    if earliest < patches.release("0.2"):
        workload = workload.model_copy(update={"source": workload.source.model_copy(update={"labels": {}})})
    return workload


def search_attributes(workload: Workload) -> TypedSearchAttributes:
    """Return the list columns of the Temporal UI at the start."""
    columns = {
        names.SA_PHASE: Phase.PENDING.value,
        names.SA_REASON: Reason.QUEUED.value,
        names.SA_CLUSTER: workload.cluster,
        names.SA_NAMESPACE: workload.namespace,
        names.SA_NAME: workload.name,
        names.SA_KIND: workload.source.kind,
        names.SA_QUEUE: workload.queue,
    }
    numbers = [SearchAttributePair(SearchAttributeKey.for_int(key), 0) for key in (names.SA_ATTEMPT, names.SA_RESTARTS)]
    submitted = SearchAttributePair(SearchAttributeKey.for_bool(names.SA_SUBMITTED), False)
    return TypedSearchAttributes([*keywords(columns), *numbers, submitted])


def keywords(columns: Mapping[str, str]) -> TypedSearchAttributes:
    """Return search attributes of type Keyword, by name."""
    return TypedSearchAttributes(
        [SearchAttributePair(SearchAttributeKey.for_keyword(key), value) for key, value in columns.items()]
    )


def summary(workload: Workload) -> str:
    """Say in one line what it is: `AppWrapper train-llm: 1 Job, 64 pods, in namespace research on cluster dev`."""
    pods, kind = workload.made_pods, workload.source.kind
    named = workload.name if kind == "List" else f"{kind} {workload.name}"
    size = f", {counted(pods, 'pod')}" if pods else ""
    where = f"in namespace {workload.namespace} on cluster {workload.cluster}"
    text = f"{named}: {contents(workload)}{size}, {where}"
    encoded = text.encode()
    return text if len(encoded) <= _SUMMARY_BYTES else encoded[: _SUMMARY_BYTES - 3].decode(errors="ignore") + "..."


def contents(workload: Workload) -> str:
    """List the kinds of its components, with their numbers: `1 Service, 4 Jobs`."""
    kinds = Counter[str]()
    for component in workload.components:
        kinds[str(component.template["kind"])] += 1 if component.copies is None else component.copies
    return ", ".join(counted(count, kind) for kind, count in kinds.items())


def details(workload: Workload) -> str:
    """Say in Markdown what was asked for, and how to steer it."""
    timings = workload.policy.timings
    members, gang = workload.members, workload.gang
    rows = "\n".join(
        f"| {one.name} | {one.template['kind']} | {gang.pods if gang and one is members else one.expected_pods} |"
        for one in workload.components[:20]
    )
    more = f"\n\n... and {len(workload.components) - 20} more" if len(workload.components) > 20 else ""
    budgets = ", ".join(
        f"{budget.name} {'no limit' if budget.limit is None else budget.limit}" for budget in workload.policy.budgets
    )
    return (
        f"**{workload.source.kind} {workload.namespace}/{workload.name}** on cluster {workload.cluster}, "
        f"profile {workload.policy.profile}, uid `{workload.uid}`\n\n"
        f"| component | kind | pods |\n|---|---|---|\n{rows}{more}\n\n"
        f"Budgets: {budgets}. Failure grace {format_duration(timings.failure_grace_period)}, "
        f"warm-up {format_duration(timings.warmup_grace_period)}, "
        f"retry pause {format_duration(timings.retry_pause_period)}, "
        f"forced deletion after {format_duration(timings.forceful_deletion_grace_period)}.\n\n"
        f"Signals: {', '.join(f'`{name}`' for name in (*WISHES, names.SIGNAL_PREEMPT))}. "
        f"Why it is where it is: `holdfast explain {workload.namespace}/{workload.name}`."
    )
