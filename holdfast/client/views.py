"""The values that the client returns: a status and its freshness, a list entry, an explanation and its activities."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, ValidationError

from holdfast.client.silence import Silence
from holdfast.model import BudgetStatus, Condition, ConditionType, Explanation, Payload, Phase, Status, Time
from holdfast.model.gang.status import GangStatus

if TYPE_CHECKING:
    from holdfast.model.calls.cluster import Progress


class StatusView(Payload):
    """A status, and whether a worker has just returned it."""

    status: Status
    fresh: bool
    """False: no worker answered, and this is the status that the workflow last recorded."""
    gang: Annotated[GangStatus | None, Field(exclude_if=lambda value: value is None)] = None
    """The status of its gang, from its rendezvous; None if it has no gang, or the rendezvous did not answer."""
    closed: bool = False
    """Whether the workflow is over: nothing is held or removed any more."""
    silence: Annotated[Silence | None, Field(exclude_if=lambda value: value is None)] = None
    """Since when no worker answers, if `Run.status` got no answer (row D36)."""

    @property
    def phase(self) -> Phase:
        """The phase of the workload."""
        return self.status.phase

    def __str__(self) -> str:
        """Say it in one line (row E12)."""
        return f"{self.status}" if self.fresh or self.closed else f"{self.status} (as last recorded)"

    def __repr__(self) -> str:
        return f"<StatusView {self}>"


class ActivityView(Payload):
    """An activity that the workflow waits for, as Temporal reports it."""

    type: str
    state: str
    """Started, Scheduled, CancelRequested, ..."""
    attempt: int
    since: Time | None = None
    heartbeat: tuple[Any, ...] = ()
    """The details of the activity's last heartbeat."""
    last_failure: str = ""
    next_attempt_at: Time | None = None

    @property
    def progress(self) -> tuple[Progress, ...]:
        """What its last heartbeat says of its progress, if it says so."""
        from holdfast.model.calls.cluster import Progress

        found: list[Progress] = []
        for value in self.heartbeat:
            with suppress(ValidationError):
                found.append(Progress.model_validate(value))
        return tuple(found)

    def sentence(self, now: datetime) -> str:
        """Return one line that says what it is doing; empty if there is nothing worth saying."""
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
        parts.extend(_progress_text(one) for one in self.progress)
        return " · ".join(part for part in parts if part)


class ExplanationView(Payload):
    """An explanation, whether a worker has just returned it, and what is under way."""

    explanation: Explanation
    fresh: bool
    closed: bool = False
    silence: Annotated[Silence | None, Field(exclude_if=lambda value: value is None)] = None
    """Since when no worker answers, if none answered (row D36)."""
    gang: Annotated[GangStatus | None, Field(exclude_if=lambda value: value is None)] = None
    queue: Annotated[str, Field(exclude_if=lambda value: not value)] = ""
    """Its place in its queue and why it is not admitted, as a sentence, while it waits there."""
    activities: tuple[ActivityView, ...] = ()
    entities: Annotated[tuple[str, ...], Field(exclude_if=lambda value: not value)] = ()
    """What is wrong with the workflows that it depends on, such as its queue's: a sentence each (row D2)."""


def explanation_from(status: Status) -> Explanation:
    """Build an explanation from a status alone, for when no worker answers.

    The message of a status tells of its phase. Where something is amiss, its condition and its pods tell more.
    """
    # Resuming is not recorded: the last cause is of what came before (record 0007).
    latest = status.causes[-1].message if status.causes and status.phase is not Phase.RESUMING else ""
    told = status.message or status.reason.value
    why, now = latest or told, told
    for condition in abnormal(status)[:1]:
        why = condition.message or condition.reason.value
        now = status.pods.sentence() if status.pods.expected else told
    return Explanation(
        name=status.name,
        phase=status.phase,
        reason=status.reason,
        since=status.since,
        attempt=status.attempt,
        budgets=status.budgets,
        why=why,
        now=now,
        next=(status.next, *status.later) if status.next is not None else (),
        unblock=status.unblock,
        causes=status.causes,
    )


def abnormal(told: Status) -> list[Condition]:
    """Return the condition that the phase does not imply: unhealthy; or else running without pods that are ready."""
    unhealthy = [one for one in told.conditions if one.type is ConditionType.UNHEALTHY and one.status]
    unready = [one for one in told.conditions if one.type is ConditionType.PODS_READY and not one.status]
    return unhealthy or (unready if told.phase is Phase.RUNNING else [])


def restart_budget(budgets: tuple[BudgetStatus, ...]) -> BudgetStatus | None:
    """Return the budget that restarts are charged to, if there is one."""
    return next((budget for budget in budgets if budget.name == "restart"), budgets[0] if budgets else None)


def _seconds(span: timedelta) -> str:
    return f"{int(span.total_seconds())}s"


def _progress_text(progress: Progress) -> str:
    if not progress.remaining:
        return progress.doing
    more = progress.remaining_total - len(progress.remaining[:3])
    return f"{progress.doing}: {'; '.join(progress.remaining[:3])}" + (f"; and {more} more" if more > 0 else "")
