"""Terminal output for people, as pure functions from values to text. Times are UTC, as in every message."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

from holdfast.cli.common import gang_text
from holdfast.cli.common import silence as silent
from holdfast.cli.common.screen import packed, table
from holdfast.client.summary import Summary
from holdfast.client.views import ExplanationView, StatusView, abnormal, restart_budget
from holdfast.model import (
    BudgetStatus,
    Cause,
    Condition,
    ConditionType,
    Deadline,
    Explanation,
    Phase,
    PodCounts,
    Reason,
    Status,
    format_duration,
)
from holdfast.model.quantity import format_bytes
from holdfast.model.words import counted, with_note

_LABEL: Final = 11
UNVERIFIED: Final = "unverified (submitted through Temporal)"
_NEXT_STALE: Final = "nothing happens until a worker answers"
_IDLE: Final = "Holdfast acts on this once a worker answers"
_PHASES_REASON: Final = {ConditionType.QUOTA_RESERVED, ConditionType.RESOURCES_DEPLOYED, ConditionType.SUBMITTED}
"""Conditions that have the phase's reason, which says nothing about them."""
_ADMITS: Final = {Reason.QUEUED: "its queue", Reason.BLOCKED: "its graph"}


def explanation(view: ExplanationView, now: datetime) -> str:
    """Return an explanation for a person woken at night (ux.md): why, now, next."""
    told = view.explanation
    arrow = f" → {told.next_attempt}" if told.next_attempt is not None else ""
    attempt = f"  attempt {told.attempt}{arrow}" if told.attempt else ""
    lines = _stale(view)
    lines.append(f"{told.name}  {phase_word(told)}{attempt}      {_budget(told.budgets)}".rstrip())
    lines.append(_sentences("why", told.why))
    if told.now != told.why:
        lines.append(_sentences("now", told.now))
    for activity in view.activities:
        sentence = activity.sentence(now)
        if sentence and sentence not in told.now:
            lines.append(_sentences("", sentence))
    if view.gang is not None:
        lines.append(_labelled("gang", gang_text.gang(view.gang)))
    if view.queue:
        lines.append(_labelled("queue", view.queue))
    lines += [_labelled("away", each) for each in view.entities]
    if told.next or not (view.fresh or view.closed):
        lines.append(_labelled("next", _next(told.next, view, now, told.why)))
    elif not told.phase.ended and view.activities:
        lines.append(_labelled("next", "goes on by itself as soon as that is done"))
    elif not told.phase.ended:
        lines.append(_labelled("next", _idle(told)))
    if told.kept:
        lines.append(_sentences("kept", told.kept))
    lines.append(_labelled("submitter", submitter(told.by)))
    if told.unblock:
        lines.append(_sentences("unblock", told.unblock))
    return "\n".join(lines)


def _next(coming: Sequence[Deadline], view: StatusView | ExplanationView, now: datetime, said: str) -> str:
    """Return what comes next; while no worker answers, no time is counted down, since nothing acts when it comes."""
    if view.fresh or view.closed:
        return deadlines(coming, now, said)
    if not coming:
        return _NEXT_STALE
    return f"{deadlines(coming, now, said, counted_down=False)}\n{_IDLE}"


def _idle(told: Explanation) -> str:
    """Say what it waits for, if no time ends the wait."""
    if told.reason in _ADMITS:
        return f"begins by itself once {_ADMITS[told.reason]} admits it"
    return "nothing happens by itself" + ("" if told.unblock else ": it waits for the cluster or a command")


def _stale(view: StatusView | ExplanationView) -> list[str]:
    """Return a notice that the rest is stale, if no worker answered: since when, and what happens once one does."""
    if view.fresh or view.closed:
        return []
    if view.silence is None:
        return [_labelled("stale", f"no worker answered: {silent.READ}")]
    return [_labelled("stale", silent.text(view.silence, silent.READ))]


def deadlines(coming: Sequence[Deadline], now: datetime, why: str = "", *, counted_down: bool = True) -> str:
    """Return the coming deadlines: `02:24:10 UTC (in 9m20s) forceful deletion · then retry pause 90s`.

    Args:
        coming: The deadlines; those of one time follow from each other.
        now: The time of the command.
        why: What has been said before, and is not repeated.
        counted_down: Whether to say how soon each is due; if not, what is past is overdue.
    """
    parts: list[str] = []
    before: datetime | None = None
    for each in coming:
        name, _, cause = each.what.removeprefix("then, ").removeprefix("then ").partition(": ")
        overdue = not counted_down and each.at <= now and each.at != before
        spans = name.endswith(("grace", "pause")) or name.startswith("wait in queue")
        name += " ends" if spans and not overdue else ""
        what = name if not cause or cause in why else f"{name} ({cause})" if spans else f"{name}: {cause}"
        if overdue:
            late = f"{_clock(each.at, now)} ({ago(each.at, now)})"
            parts.append(f"{what} ended at {late}" if spans else f"overdue since {late}: {what}")
        elif each.at != before:
            near = f" (in {age(each.at - now)})" if counted_down and each.at > now else ""
            parts.append(f"{_clock(each.at, now)}{near} {what}")
        else:
            what = what if counted_down or each.at > now else what.replace(" by then", "")
            parts.append(what if what.startswith(("if ", "once ", "unless ")) else f"then {what}")
        before = each.at
    return packed(parts, " · ")


_ENDED: Final = {"Terminated": "terminated", "TimedOut": "timed out", "Canceled": "cancelled"}


class Phased(Protocol):
    """Anything that has been in a phase of an attempt: a status, a summary, a cause, a line of a simulation."""

    @property
    def phase(self) -> str:
        """The phase."""
        ...

    @property
    def attempt(self) -> int:
        """The number of the attempt; 0 before the first."""
        ...

    @property
    def reason(self) -> str:
        """The reason for the phase."""
        ...


def phase_word(of: Phased) -> str:
    """Return the phase for people: the first start of a workload is Starting, although Kubernetes' word is Resuming."""
    first = of.phase == Phase.RESUMING and of.attempt <= 1 and of.reason != Reason.RESUMED
    return "Starting" if first else str(of.phase)


def status(view: StatusView, now: datetime, *, wide: bool = False) -> str:
    """Return the status of a workload; a wide one has all conditions, and counts that others imply."""
    told, amiss = view.status, abnormal(view.status)
    reason = amiss[0].reason if amiss else told.reason
    because = f" ({reason.value})" if reason.value != told.phase.value else ""
    lines = [
        *_stale(view),
        f"{told.name}  {phase_word(told)}{because}  {_budget(told.budgets)}".rstrip(),
        _labelled("where", f"ns {told.namespace} on cluster {told.cluster}, uid {told.uid or '-'}"),
        _labelled("since", f"{_clock(told.since, now)} ({ago(told.since, now)})"),
    ]
    lines.append(_labelled("submitter", submitter(told.by)))
    if told.message and not amiss:
        lines.append(_sentences("message", told.message))
    counts = f", restarts {told.restarts}, executions {told.executions}" if wide else ""
    lines.append(_labelled("attempt", f"{told.attempt or '-'}{counts}"))
    for one in told.data:
        text = f"{one.mount}: {counted(one.files, 'file')}, {format_bytes(one.bytes)}, version {one.digest}"
        lines.append(_labelled("data", text))
    if told.claims is not None:
        lines.append(_labelled("kept", told.claims.sentence()))
    # Of what was refused nothing was made, unless pods were seen.
    unseen = PodCounts(expected=told.pods.expected if told.reason is Reason.REFUSED else 0)
    if told.pods != unseen:
        lines.append(_labelled("pods", told.pods.sentence()))
    if told.steps:
        lines.append(_labelled("steps", told.steps))
    lines += [_labelled("waits", one.sentence()) for one in told.waiting]
    if view.gang is not None:
        lines.append(_labelled("gang", gang_text.gang(view.gang)))
    for condition in told.conditions if wide else amiss:
        lines.append(_labelled("", _condition(condition, told)))
    if told.failure is not None and (told.failure.message or told.failure.sentence()) not in told.message:
        lines.append(_labelled("failure", told.failure.sentence()))
    if told.next is not None:
        said = "; ".join((told.message, *(one.message for one in amiss)))
        lines.append(_labelled("next", _next((told.next, *told.later), view, now, said)))
    if told.unblock:
        lines.append(_sentences("unblock", told.unblock))
    return "\n".join(lines)


def _condition(condition: Condition, told: Status) -> str:
    """Return a condition with its reason, unless that is only the phase's, and with its message; each fact once."""
    mark, said = "yes" if condition.status else "no", condition.message.removeprefix(f"{condition.reason.value}: ")
    own = condition.type not in _PHASES_REASON or condition.reason not in {told.reason, Reason.SUBMITTED}
    reason = f" ({condition.reason.value})" if own and condition.reason.value not in said else ""
    return with_note(f"{condition.type.value} {mark}{reason}", said)


def submitter(by: str) -> str:
    """Name the user who submitted a workload, as the API server verified it, or say that it is unknown (row F13)."""
    return by or UNVERIFIED


def summaries(told: Sequence[Summary], now: datetime, *, wide: bool = False) -> str:
    """Return a table of workloads, one a line; a wide one also has their cluster, queue and last message.

    Of several clusters, the cluster is always shown: a name is one workload in each of them.
    """
    if not told:
        return "no workloads"
    several = wide or len({each.cluster for each in told}) > 1
    rows = [
        (
            each.namespace,
            each.name,
            _kind(each.kind),
            listed_phase(each),
            each.reason,
            str(each.attempt or "-"),
            str(each.restarts),
            age(now - each.since),
            *((each.cluster,) if several else ()),
            *((each.queue, each.message) if wide else ()),
        )
        for each in told
    ]
    heads = ("NAMESPACE", "NAME", "KIND", "PHASE", "REASON", "ATTEMPT", "RESTARTS", "AGE")
    return table((*heads, *(("CLUSTER",) if several else ()), *(("QUEUE", "MESSAGE") if wide else ())), rows)


def transition(before: Status | None, after: Status) -> str:
    """Return the line that `watch` prints for a change."""
    text = after.message or after.reason.value
    moved = before is not None and before.attempt != after.attempt and "attempt" not in text
    return line(after.since, phase_word(after), f"attempt {after.attempt}: {text}" if moved else text)


def caused(cause: Cause) -> str:
    """Return the line that `watch` prints for a cause, before the transition that results from it."""
    return line(cause.time, "", f"{cause.message} ({cause.reason.value})")


def line(at: datetime, phase: str, text: str) -> str:
    """Lay out a line of `watch`: time, phase, text."""
    return f"{at.astimezone(UTC):%H:%M:%S}Z  {phase:<13} {text}".rstrip()


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


def _sentences(label: str, text: str) -> str:
    """Lay out a text whose clauses are parted by semicolons, as few lines as there are with at most 100 characters."""
    return _labelled(label, "\n".join(packed(line.split("; "), "; ") for line in text.splitlines()))


def _clock(instant: datetime, now: datetime) -> str:
    there, here = instant.astimezone(UTC), now.astimezone(UTC)
    near = abs(there - here) < timedelta(hours=12)
    return f"{there:%H:%M:%S} UTC" if near else f"{there:%Y-%m-%d %H:%M:%S} UTC"


def _kind(kind: str) -> str:
    """Return the kind of a workload's document for people; plain manifests, a List in Temporal, have none."""
    return "Manifests" if kind == "List" else kind


def ended_outside(each: Summary) -> str:
    """Return how its workflow was ended from outside, so that its last phase is no longer true; empty: it was not."""
    carried_out = each.execution == "Canceled" and each.phase == Phase.CANCELLED
    return "" if carried_out else _ENDED.get(each.execution, "")


def listed_phase(each: Summary) -> str:
    """Return the phase of a workload in a list, or how its workflow was ended from outside."""
    phase, ended = phase_word(each) or "?", ended_outside(each)
    return f"workflow {ended} (was {phase})" if ended else phase
