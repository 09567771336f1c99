"""A workload's whole life as text: its causes line by line, and the gaps in them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from holdfast.cli.common.screen import table
from holdfast.model import BudgetStatus
from holdfast.model.life.history import History
from holdfast.past.other import Comparison


def history(life: History) -> str:
    """List the causes, oldest first, with gaps where causes are unknown; then the workload's state, and notes."""
    rows = [
        (cause.number, (instant(cause.time), str(cause.attempt), cause.phase.value, cause.reason.value, cause.message))
        for cause in life.causes
    ]
    rows += [
        (gap.first, ("?", "", "", "", f"{gap.last - gap.first + 1} causes are not known: {gap.why}"))
        for gap in life.gaps
    ]
    text = table(("TIME (UTC)", "ATTEMPT", "PHASE", "REASON", "WHAT HAPPENED"), [row for _, row in sorted(rows)])
    budgets = "".join(f", {budget.sentence()}" for budget in life.budgets)
    ended = f"over since {instant(life.ended_at)}" if life.ended_at is not None else "its workflow is running"
    attempts = f"{life.executions} attempt{'' if life.executions == 1 else 's'}"
    phase = life.phase.value if life.phase is not None else "?"
    asked = f"asked for by {life.by}" if life.by else "who asked for it is unverified"
    lines = [text, "", f"{life.name}  {phase}, {attempts}, {life.restarts} restarts{budgets}; {ended}; {asked}"]
    return "\n".join([*lines, *(f"note: {note}" for note in life.notes)])


def instant(at: datetime) -> str:
    """Format an instant in UTC, to the second."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def comparison(result: Comparison) -> str:
    """List the points of a real life next to the other policy's decisions, then how both end."""
    rows = [
        (
            instant(point.at),
            str(point.attempt),
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
    return "\n".join([*lines, "", f"{result.name}  {result.end}", *(f"note: {note}" for note in result.notes)])


_PARTED = "--- from here reality took another way: each point is judged as it really came, only budgets go on ---"


def _spent(budgets: Sequence[BudgetStatus]) -> str:
    return ", ".join(budget.sentence() for budget in budgets) or "none"
