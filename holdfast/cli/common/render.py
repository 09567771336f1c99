"""Terminal output for people, as pure functions from values to text. Times are UTC, as in every message."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from holdfast.cli.common import gang_text
from holdfast.cli.common import silence as silent
from holdfast.client.views import ExplanationView, StatusView, Summary, restart_budget
from holdfast.model import BudgetStatus, Cause, Deadline, PodCounts, Status, format_duration
from holdfast.policy.sides.staging import size_of

_LABEL: Final = 11
_UNVERIFIED: Final = "unverified: who asked for it is known only for what kubectl created (docs/how-to/appwrappers.md)"
_NEXT_STALE: Final = "nothing is decided until a worker answers; then what has happened meanwhile is acted on"


def explanation(view: ExplanationView, now: datetime) -> str:
    """Return an explanation for a person woken at night (ux.md): why, now, next."""
    told = view.explanation
    arrow = f" → {told.next_attempt}" if told.next_attempt is not None else ""
    lines = _stale(view)
    lines.append(
        f"{told.name}  {told.phase.value}  attempt {told.attempt}{arrow}      {_budget(told.budgets)}".rstrip()
    )
    lines.append(_labelled("why", told.why))
    lines.append(_labelled("now", told.now))
    for activity in view.activities:
        sentence = activity.sentence(now)
        if sentence and sentence not in told.now:
            lines.append(_labelled("", sentence))
    if view.gang is not None:
        lines.append(_labelled("gang", gang_text.gang(view.gang)))
    if view.queue:
        lines.append(_labelled("queue", view.queue))
    lines += [_labelled("away", each) for each in view.entities]
    if not (view.fresh or view.closed):
        due = f" (recorded as next: {deadlines(told.next, now)})" if told.next else ""
        lines.append(_labelled("next", _NEXT_STALE + due))
    elif told.next:
        lines.append(_labelled("next", deadlines(told.next, now)))
    elif not told.phase.ended and view.activities:
        lines.append(_labelled("next", "goes on by itself as soon as that is done"))
    elif not told.phase.ended:
        lines.append(_labelled("next", "nothing happens by itself: it waits for the cluster, its queue, or a signal"))
    if told.kept:
        lines.append(_labelled("kept", told.kept))
    lines.append(_labelled("by", told.by or _UNVERIFIED))
    if told.unblock:
        lines.append(_labelled("unblock", told.unblock))
    return "\n".join(lines)


def _stale(view: StatusView | ExplanationView) -> list[str]:
    """Return a notice that the rest is stale, if no worker answered: since when, and what happens once one does."""
    if view.fresh or view.closed:
        return []
    if view.silence is None:
        return [_labelled("stale", f"no worker answered: {silent.READ}")]
    return [_labelled("stale", silent.text(view.silence, silent.READ))]


def deadlines(coming: Sequence[Deadline], now: datetime) -> str:
    """Return the coming deadlines in one line: `02:24:10 forceful deletion · then retry pause 90s`."""
    parts: list[str] = []
    before: datetime | None = None
    for each in coming:
        if each.at != before:
            parts.append(f"{_clock(each.at, now)} {each.what.removeprefix('then, ')}")
        else:
            parts.append(f"then {each.what.removeprefix('then, ').removeprefix('then ')}")
        before = each.at
    return " · ".join(parts)


def status(view: StatusView, now: datetime) -> str:
    """Return the full status of a workload."""
    told = view.status
    lines = [
        *_stale(view),
        f"{told.name}  {told.phase.value} ({told.reason.value})  {_budget(told.budgets)}".rstrip(),
        _labelled("where", f"ns {told.namespace} on cluster {told.cluster}, uid {told.uid or '-'}"),
        _labelled("since", f"{_clock(told.since, now)} ({ago(told.since, now)})"),
    ]
    lines.append(_labelled("by", told.by or _UNVERIFIED))
    if told.message:
        lines.append(_labelled("message", told.message))
    lines.append(_labelled("attempt", f"{told.attempt}, restarts {told.restarts}, executions {told.executions}"))
    for one in told.data:
        text = f"{one.mount}: {one.files} files, {size_of(one.bytes)}, version {one.digest}"
        lines.append(_labelled("data", text))
    if told.claims is not None:
        lines.append(_labelled("kept", told.claims.sentence()))
    if told.pods != PodCounts():
        lines.append(_labelled("pods", pods(told.pods)))
    lines += [_labelled("waits", one.sentence()) for one in told.waiting]
    if view.gang is not None:
        lines.append(_labelled("gang", gang_text.gang(view.gang)))
    for condition in told.conditions:
        mark = "yes" if condition.status else "no"
        note = f": {condition.message}" if condition.message else ""
        lines.append(_labelled("", f"{condition.type.value} {mark} ({condition.reason.value}){note}"))
    if told.failure is not None:
        lines.append(_labelled("failure", told.failure.sentence()))
    if told.next is not None:
        lines.append(_labelled("next", deadlines((told.next,), now)))
    return "\n".join(lines)


def pods(counts: PodCounts) -> str:
    """Return the pod counts: `3 of 4 running, 1 pending`."""
    named = {
        "succeeded": counts.succeeded,
        "pending": counts.pending,
        "failed": counts.failed,
        "terminating": counts.terminating,
    }
    rest = "".join(f", {count} {word}" for word, count in named.items() if count)
    return f"{counts.running} of {counts.expected} running{rest}"


def summaries(told: Sequence[Summary], now: datetime, *, wide: bool = False) -> str:
    """Return a table of workloads, one a line; a wide one also has their cluster, queue and last message."""
    if not told:
        return "no workloads"
    rows = [
        (
            each.namespace,
            each.name,
            each.kind,
            _phase(each),
            each.reason,
            str(each.attempt),
            str(each.restarts),
            age(now - each.since),
            *((each.cluster, each.queue, each.message) if wide else ()),
        )
        for each in told
    ]
    heads = ("NAMESPACE", "NAME", "KIND", "PHASE", "REASON", "ATTEMPT", "RESTARTS", "AGE")
    return table((*heads, "CLUSTER", "QUEUE", "MESSAGE") if wide else heads, rows)


def transition(before: Status | None, after: Status, *, told: bool = False) -> str:
    """Return the line that `watch` prints for a change; `told` leaves out a message that a cause has already given."""
    text = "" if told else after.message or after.reason.value
    moved = before is not None and before.attempt != after.attempt and "attempt" not in text
    return line(after.since, after.phase.value, f"attempt {after.attempt}: {text}".rstrip(": ") if moved else text)


def caused(cause: Cause) -> str:
    """Return the line that `watch` prints for a cause, before the transition that results from it."""
    return line(cause.time, "", f"{cause.message} ({cause.reason.value})")


def line(at: datetime, phase: str, text: str) -> str:
    """Lay out a line of `watch`: time, phase, text."""
    return f"{at.astimezone(UTC):%H:%M:%S}  {phase:<13} {text}".rstrip()


def is_transition(before: Status | None, after: Status) -> bool:
    """Whether a change is worth a line for a person; pod counts alone are not."""
    if before is None:
        return True
    return (before.phase, before.reason, before.message, before.attempt) != (
        after.phase,
        after.reason,
        after.message,
        after.attempt,
    )


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Lay out columns with two spaces between them; the last column is not padded."""
    widths = [max(len(line[column]) for line in (heads, *rows)) for column in range(len(heads))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in (heads, *rows)
    )


def age(span: timedelta) -> str:
    """Format an age in its one or two largest units: `41s`, `3m12s`, `5h2m`, `12d`."""
    seconds = max(0, int(span.total_seconds()))
    if seconds >= 2 * 86400:
        return f"{seconds // 86400}d"
    if seconds >= 3600:
        return format_duration(timedelta(seconds=seconds - seconds % 60))
    return format_duration(timedelta(seconds=seconds))


def ago(instant: datetime, now: datetime) -> str:
    """Format how long ago an instant was."""
    return f"{age(now - instant)} ago"


def _budget(budgets: Sequence[BudgetStatus]) -> str:
    budget = restart_budget(tuple(budgets))
    if budget is None:
        return ""
    return budget.sentence().replace("restart ", "restarts ", 1)


def _labelled(label: str, text: str) -> str:
    first, *rest = text.splitlines() or [""]
    return "\n".join([f"{label:<{_LABEL}}{first}", *(" " * _LABEL + line for line in rest)])


def _clock(instant: datetime, now: datetime) -> str:
    there, here = instant.astimezone(UTC), now.astimezone(UTC)
    return f"{there:%H:%M:%S}" if abs(there - here) < timedelta(hours=12) else f"{there:%Y-%m-%d %H:%M:%S}"


def _phase(each: Summary) -> str:
    note = {"Terminated": " (terminated)", "TimedOut": " (timed out)", "Canceled": " (cancelled from outside)"}
    return (each.phase or "?") + note.get(each.execution, "")
