"""A workload's whole life as text: its causes line by line, the gaps in them, and where its time went. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from holdfast.cli.common.render import phase_word, submitter
from holdfast.cli.common.screen import table
from holdfast.model import BudgetStatus, Cause, format_duration
from holdfast.model.life.history import History
from holdfast.model.life.ledger import Account, Bucket, Charge, Ledger
from holdfast.model.words import counted
from holdfast.past.cost import Costs
from holdfast.past.other import Comparison

_CLOSED = {"ContinuedAsNew": "known until", "Terminated": "terminated", "TimedOut": "timed out"}
"""What is said of a life, by how Temporal closed its last run; of others it is over."""


def history(life: History) -> str:
    """List the causes, oldest first, with gaps where causes are unknown; then the workload's state, and notes."""
    rows = [(cause.number, _row(cause)) for cause in life.causes]
    rows += [
        (gap.first, ("?", "", "", "", f"{_causes(gap.last - gap.first + 1)} not known: {gap.why}")) for gap in life.gaps
    ]
    text = table(("RECORDED (UTC)", "ATTEMPT", "IN PHASE", "REASON", "WHAT HAPPENED"), [row for _, row in sorted(rows)])
    parts = [life.phase.value] if life.phase is not None else []
    parts += [counted(life.executions, "attempt"), counted(life.restarts, "restart")]
    parts += [budget.in_full() for budget in life.budgets]
    last = life.runs[-1] if life.runs else None
    known, ended = last.ended_at if last else life.ended_at, "its Temporal workflow is still open"
    if known is not None:
        ended = f"{_CLOSED.get(last.closed if last else '', 'over since')} {instant(known)} UTC"
    lines = [text, "", f"{life.name}  {', '.join(parts)}; {ended}", f"submitter: {submitter(life.by)}"]
    return "\n".join([*lines, *(f"note: {note}" for note in life.notes)])


def _row(cause: Cause) -> tuple[str, ...]:
    return (instant(cause.time), str(cause.attempt or "-"), phase_word(cause), cause.reason.value, cause.message)


def ledger(told: Ledger) -> str:
    """List what a workload's time was spent on, then what each cause cost on each node, then notes."""
    size = ", ".join(
        (counted(told.pods, "pod"), *(f"{amount} {name}" for name, amount in sorted(told.devices.items())))
    )
    over = f"ended {instant(told.until)} UTC" if told.ended else f"not over at {instant(told.until)} UTC"
    attempts = f"{counted(told.executions, 'attempt')} of {size}"
    head = f"{told.name}  {_span(told.age)} since {instant(told.begun_at)} UTC, {over}; {attempts}"
    head += _good(told.goodput)
    return "\n".join([head, *_time(told.milliseconds), *_charges(told.charges), *_noted(told)])


def account(told: Account) -> str:
    """List what the time of several workloads was spent on, then causes, then the workloads, then notes."""
    named = (("queue", told.queue), ("node", told.node), ("cause", told.cause))
    of = ", ".join(f"{what} {name}" for what, name in named if name)
    if not told.workloads:
        return "\n".join([f"{of}: no time of any workload", *_noted(told)])
    rows = [
        (
            f"{one.namespace}/{one.name}",
            _span(sum(one.milliseconds.values())),
            _span(one.milliseconds[Bucket.PRODUCTIVE]),
            _span(one.milliseconds[Bucket.LOST]),
        )
        for one in told.workloads
    ]
    lines = [
        f"{of}: {counted(len(rows), 'workload')}{_good(told.goodput)}",
        *_time(told.milliseconds),
        *_charges(told.charges),
        "",
        table(("WORKLOAD", "TIME", "PRODUCTIVE", "LOST"), rows),
    ]
    return "\n".join([*lines, *_noted(told)])


def _good(goodput: float | None) -> str:
    return f"; goodput {100 * goodput:.1f}% (time queued or suspended does not count)" if goodput is not None else ""


def _time(spent: Mapping[Bucket, int]) -> list[str]:
    whole = sum(spent.values()) or 1
    rows = [(bucket.value, _span(length), f"{100 * length / whole:.1f}%") for bucket, length in spent.items()]
    return ["", table(("BUCKET", "TIME", "SHARE"), rows)]


def _charges(charges: Sequence[Charge]) -> list[str]:
    if not charges:
        return []
    rows = [(one.cause, one.node or "-", one.bucket.value, _span(one.milliseconds)) for one in charges]
    return ["", table(("CAUSE", "NODE", "BUCKET", "TIME"), rows)]


def _noted(told: Ledger | Account) -> list[str]:
    return [f"note: {note}" for note in told.notes]


def _causes(count: int) -> str:
    return counted(count, "cause is", "causes are")


def _span(milliseconds: int) -> str:
    return format_duration(timedelta(milliseconds=milliseconds))


def instant(at: datetime) -> str:
    """Format an instant in UTC, to the second."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def comparison(result: Comparison) -> str:
    """List the points of a real life next to the other policy's decisions, then how both end."""
    rows = [
        (
            instant(point.at),
            str(point.attempt or "-"),
            point.verdict,
            point.real or "-",
            f"{point.other or '-'}: {point.note}" if point.note else point.other or "-",
            f"{_spent(point.budgets)} / {_spent(point.other_budgets)}",
        )
        for point in result.points
    ]
    heads = ("TIME (UTC)", "ATTEMPT", "OTHER IS", "REALLY", "WITH THE OTHER POLICY", "BUDGETS REAL / OTHER")
    lines = table(heads, rows).splitlines()
    parted = next((index for index, point in enumerate(result.points) if point.verdict != "same"), None)
    if parted is not None:
        lines.insert(parted + 2, _PARTED)
    notes = [f"note: {note}" for note in result.notes]
    return "\n".join([*lines, "", f"{result.name}  {result.end}", "", *_costs(result.costs), *notes])


def _costs(costs: Costs) -> list[str]:
    """List what both policies cost, by the ledger: the rows that are not nothing for both."""
    real, other = costs.real, costs.other
    more = other.attempts - real.attempts
    rows = [("attempts", str(real.attempts), str(other.attempts), f"{more:+d}" if more else "0")]
    for bucket in Bucket:
        spent, mine = real.milliseconds[bucket], other.milliseconds[bucket]
        if spent or mine:
            rows.append((bucket.value, _span(spent), _span(mine), _more(mine - spent)))
    for name, spent in real.idle_hours.items():
        mine = other.idle_hours[name]
        hours = round(mine - spent, 3)
        what = f"{name.removesuffix('s')}-hours idle"
        rows.append((what, f"{spent:.3f}", f"{mine:.3f}", f"{hours:+.3f}" if hours else "0"))
    end, mine = real.to_end, other.to_end
    sooner = _more(mine - end) if end is not None and mine is not None else "-"
    rows.append(("time to the end", _known(end), _known(mine), sooner))
    until = f", up to {instant(costs.known_until)}: what came then is not known" if costs.known_until else ""
    return [f"what it cost{until}", table(("", "REALLY", "OTHER POLICY", "DIFFERENCE"), rows)]


def _known(milliseconds: int | None) -> str:
    return _span(milliseconds) if milliseconds is not None else "not known"


def _more(milliseconds: int) -> str:
    return ("+" if milliseconds > 0 else "") + _span(milliseconds)


_PARTED = "--- from here reality took another way: each point is judged as it really came, only budgets go on ---"


def _spent(budgets: Sequence[BudgetStatus]) -> str:
    return ", ".join(budget.sentence() for budget in budgets) or "none"
