"""What the client hands out: a status and how fresh it is, a line of the list, an explanation and its activities."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any

from pydantic import Field, ValidationError

from holdfast.client.silence import Silence
from holdfast.model import BudgetStatus, Cause, Explanation, Payload, Phase, Status, Time
from holdfast.model.calls.cluster import Progress
from holdfast.model.gang.orders import GangStatus


class StatusView(Payload):
    """A status, and whether a worker has just given it."""

    status: Status
    fresh: bool
    """False: no worker answered, and this is what the workflow last wrote down."""
    gang: Annotated[GangStatus | None, Field(exclude_if=lambda value: value is None)] = None
    """Where its gang stands, by its rendezvous; None where it has none, or nobody could say."""
    closed: bool = False
    """Whether the workflow is over: nothing is held or removed any more."""
    silence: Annotated[Silence | None, Field(exclude_if=lambda value: value is None)] = None
    """Since when no worker answers, where `status` was asked for and none did (row D36)."""

    @property
    def phase(self) -> Phase:
        """Where the workload's life stands."""
        return self.status.phase


class Summary(Payload):
    """One workload in a list, as the visibility store has it (which may be a second behind)."""

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
    started_at: Time
    closed_at: Time | None = None
    spec_hash: str = ""
    execution: str
    """Temporal's own word for the workflow: Running, Completed, Failed, ..."""


class ActivityView(Payload):
    """Something the workflow waits for right now, as Temporal has it."""

    type: str
    state: str
    """Started, Scheduled, CancelRequested, ..."""
    attempt: int
    since: Time | None = None
    heartbeat: tuple[Any, ...] = ()
    """What the activity last said of itself."""
    last_failure: str = ""
    next_attempt_at: Time | None = None

    def sentence(self, now: datetime) -> str:
        """Say what it is doing in one line, or return an empty text where there is nothing worth saying."""
        parts: list[str] = []
        due = self.next_attempt_at or self.since
        if self.state == "Scheduled" and due is not None:
            waited = now - due
            if waited > timedelta(seconds=5):
                parts.append(
                    f"{self.type}: no worker of this cluster has taken it for {_seconds(waited)}: "
                    "is `holdfast worker` running there?"
                )
        if self.last_failure:
            parts.append(f"{self.type}: try {self.attempt}: {self.last_failure}")
        parts.extend(_heartbeat_text(value) for value in self.heartbeat)
        return " · ".join(part for part in parts if part)


class ExplanationView(Payload):
    """An explanation, whether a worker has just given it, and what is under way."""

    explanation: Explanation
    fresh: bool
    closed: bool = False
    silence: Annotated[Silence | None, Field(exclude_if=lambda value: value is None)] = None
    """Since when no worker answers, where none did (row D36)."""
    gang: Annotated[GangStatus | None, Field(exclude_if=lambda value: value is None)] = None
    queue: Annotated[str, Field(exclude_if=lambda value: not value)] = ""
    """Its place in its queue and why it is not let in, in words, while it waits there."""
    activities: tuple[ActivityView, ...] = ()
    entities: Annotated[tuple[str, ...], Field(exclude_if=lambda value: not value)] = ()
    """What is wrong with the workflows that it depends on, its queue's for one: a sentence each (row D2)."""


def explanation_from(status: Status) -> Explanation:
    """Say what a status alone lets one say, where no worker is there to explain."""
    latest = status.causes[-1].message if status.causes else ""
    return Explanation(
        name=status.name,
        phase=status.phase,
        reason=status.reason,
        since=status.since,
        attempt=status.attempt,
        budgets=status.budgets,
        why=latest or status.message or status.reason.value,
        now=status.message or status.reason.value,
        next=(status.next,) if status.next is not None else (),
        causes=status.causes,
    )


def restart_budget(budgets: tuple[BudgetStatus, ...]) -> BudgetStatus | None:
    """Return the budget that restarts are charged to, where there is one."""
    return next((budget for budget in budgets if budget.name == "restart"), budgets[0] if budgets else None)


def latest_causes(causes: tuple[Cause, ...], after: datetime | None) -> tuple[Cause, ...]:
    """Return the causes later than an instant, or all."""
    return tuple(cause for cause in causes if after is None or cause.time > after)


def _seconds(span: timedelta) -> str:
    return f"{int(span.total_seconds())}s"


def _heartbeat_text(value: Any) -> str:
    try:
        progress = Progress.model_validate(value)
    except ValidationError:
        return ""
    if not progress.remaining:
        return progress.doing
    more = progress.remaining_total - len(progress.remaining[:3])
    return f"{progress.doing}: {'; '.join(progress.remaining[:3])}" + (f"; and {more} more" if more > 0 else "")
