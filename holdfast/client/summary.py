"""One workload in a list, as Temporal's visibility store knows it. A list loads this and no other model (row E13)."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, cast

from temporalio.client import WorkflowExecution
from temporalio.common import SearchAttributeKey

from holdfast import names
from holdfast.activities.entities.executions import word_for
from holdfast.errors import Undecodable
from holdfast.model import Payload, Time


class Summary(Payload):
    """One workload in a list, from the visibility store, which may be a second behind."""

    workflow_id: str
    run_id: str
    cluster: str
    namespace: str
    name: str
    uid: str = ""
    kind: str = ""
    queue: str = ""
    phase: str = ""
    reason: str = ""
    message: str = ""
    attempt: int = 0
    restarts: int = 0
    labels: dict[str, str] = {}
    """The labels of the workload, as submitted."""
    submitted_at: Time | None = None
    """When it was submitted, as its workflow last recorded; None: no worker has taken it yet."""
    started_at: Time
    """When the latest run of its workflow began."""
    closed_at: Time | None = None
    spec_hash: str = ""
    execution: str
    """Temporal's own status of the workflow: Running, Completed, Failed, ..."""

    @property
    def since(self) -> datetime:
        """When it was submitted; a long life has several runs, which begin later."""
        return self.submitted_at or self.started_at


def abandoned(word: str) -> str:
    """Say what became of a workload whose workflow was ended from outside, and what to do about it.

    Args:
        word: How it was ended: `terminated`, `timed out`, `cancelled`.
    """
    return (
        f"its workflow was {word} in Temporal; its pods may still run, and nothing restarts them: "
        "`holdfast sweep` removes them"
    )


def _texts(labels: object) -> dict[str, str]:
    """Return a memo's labels as far as they are texts: anyone may have written the memo."""
    given = cast("dict[object, object]", labels) if isinstance(labels, dict) else {}
    return {key: value for key, value in given.items() if isinstance(key, str) and isinstance(value, str)}


def _time(given: object) -> datetime | None:
    """Return a memo's time, in UTC; None if it is none, or has no zone: anyone may have written the memo."""
    with suppress(ValueError, OverflowError):
        when = datetime.fromisoformat(str(given))
        return when.astimezone(UTC) if when.tzinfo is not None else None
    return None


async def summarize(execution: WorkflowExecution) -> Summary | None:
    """Return a workload's summary; None if the workflow is not Holdfast's and only has the same type."""
    try:
        cluster, namespace, name = names.parse_workflow_id(execution.id)
    except ValueError:
        return None
    unreadable = ""
    try:
        memo = await execution.memo()
    except Exception as error:  # The codec is the user's and may raise any error.
        memo = dict[str, Any]()
        unreadable = str(error) if isinstance(error, Undecodable) else ""
    attributes = execution.typed_search_attributes
    recorded = memo.get(names.MEMO_STATUS)
    status = cast("dict[str, Any]", recorded) if isinstance(recorded, dict) else {}
    labels = memo.get(names.MEMO_LABELS)

    def keyword(key: str) -> str:
        return attributes.get(SearchAttributeKey.for_keyword(key)) or ""

    return Summary(
        workflow_id=execution.id,
        run_id=execution.run_id,
        cluster=cluster,
        namespace=namespace,
        name=name,
        uid=str(memo.get(names.MEMO_UID, "")),
        kind=keyword(names.SA_KIND) or str(memo.get(names.MEMO_KIND, "")),
        queue=keyword(names.SA_QUEUE),
        phase=keyword(names.SA_PHASE) or str(status.get("phase", "")),
        reason=keyword(names.SA_REASON) or str(status.get("reason", "")),
        message=str(status.get("message", "")) or unreadable,
        attempt=attributes.get(SearchAttributeKey.for_int(names.SA_ATTEMPT)) or 0,
        restarts=attributes.get(SearchAttributeKey.for_int(names.SA_RESTARTS)) or 0,
        labels=_texts(labels),
        submitted_at=_time(status.get("submittedAt")),
        started_at=execution.start_time,
        closed_at=execution.close_time,
        spec_hash=str(memo.get(names.MEMO_SPEC_HASH, "")),
        execution=word_for(execution),
    )
