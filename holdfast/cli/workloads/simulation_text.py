"""A simulation as text for the terminal: the timeline, then the summary."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from holdfast.cli.common.render import phase_word
from holdfast.cli.common.screen import table
from holdfast.model import BudgetStatus, Phase, format_duration
from holdfast.model.words import counted
from holdfast.simulation import Entry, EntryKind, Expected, Simulation, Summary

_MARKS = {EntryKind.EVENT: "!", EntryKind.DECISION: ">", EntryKind.WAIT: "."}
_LEGEND = "! something happens   > Holdfast decides   . it waits"
_SUBMISSION: Final = re.compile(r" \(submission owner-\d+\)")
"""A submission's id, which is made up here."""
_AT_ONCE: Final = 500
"""So many lines of one moment are more than a workload comes to in which time passes."""
_INSTANTS = ("forceful deletion", "another round of forceful deletion", "end of the checkpoint")
"""What happens at a deadline; any other deadline ends a span of time."""


def simulation_text(simulation: Simulation) -> str:
    """Return the whole simulation as text."""
    rows: list[tuple[str, ...]] = []
    reason = ""
    for entry in simulation.entries:
        reason = entry.reason if entry.kind is EntryKind.DECISION else reason
        rows.append(_row(entry, reason))
    head = f"{simulation.workload}, under profile {simulation.profile}; times count from the submission"
    lines = [head, _LEGEND, "", table(("TIME", "PHASE", "ATTEMPT", "USED OF BUDGET", "", "WHAT"), rows), ""]
    if simulation.truncated:
        lines += [_broken_off(simulation.entries), ""]
    if simulation.left_out:
        lines += ["NOT SIMULATED", *(f"- {one}" for one in simulation.left_out), ""]
    return "\n".join(lines + _summary(simulation, [row[1] for row in rows]))


def _broken_off(entries: Sequence[Entry]) -> str:
    """Say why a simulation ends early, and what helps."""
    text, last = f"broken off after {counted(len(entries), 'line')}", entries[-1].at
    if len(entries) > _AT_ONCE and entries[-_AT_ONCE].at == last:
        return f"{text}: at {_at(last)} it goes on without end, since nothing takes time: see pods, retryPausePeriod"
    return f"{text}: too much happens; end it sooner with --until, or let it have fewer pods"


def _row(entry: Entry, reason: str) -> tuple[str, ...]:
    """Lay out an entry; `reason` is that of the last decision, which its phase results from."""
    text = _SUBMISSION.sub("", " ".join(entry.text.split()))
    if entry.kind is EntryKind.WAIT and entry.until is not None:
        text = _until(text, _at(entry.until))
    elif entry.reason and entry.reason not in text:
        text = f"{text} ({entry.reason})"
    used = _used(entry.budgets)
    phase = phase_word(entry.model_copy(update={"reason": reason}))
    return (_at(entry.at), phase, str(entry.attempt or "-"), used, _MARKS[entry.kind], text)


def _used(budgets: Sequence[BudgetStatus]) -> str:
    return ", ".join(f"{budget.name}: {budget.share()}" for budget in budgets)


def _until(text: str, due: str) -> str:
    """Put the time of a deadline after its name: `failure grace until +2m10s: worker-0 exited 137 on node-1`."""
    name = next((one for one in _INSTANTS if text.startswith(one)), text.partition(": ")[0])
    return f"{name} {'at' if name in _INSTANTS else 'until'} {due}{text.removeprefix(name)}"


def _at(span: timedelta) -> str:
    return f"+{format_duration(span)}"


def _summary(simulation: Simulation, words: Sequence[str]) -> list[str]:
    """Return the summary; `words` are the phases of the timeline as people read them."""
    summary = simulation.summary
    last = simulation.entries[-1].model_copy(update={"phase": summary.phase, "reason": summary.reason})
    where = summary.outcome.value if summary.outcome is not None else f"none yet, it is {phase_word(last)}"
    why = f" ({summary.reason}: {summary.message})" if summary.message else f" ({summary.reason})"
    end = ("simulated", "until {at}") if summary.finished else ("not over", "at {at}, where the simulation ends")
    charged = f"{summary.restarts} ({summary.charged} charged, {summary.uncharged} uncharged)"
    rows = [
        ("outcome", f"{where}{why}"),
        (end[0], end[1].format(at=_at(summary.ended_at))),
        ("attempts", str(summary.attempts)),
        ("restarts", charged),
        ("budgets", f"{_used(summary.budgets)} used" if summary.budgets else "none"),
        ("running", format_duration(summary.running)),
        ("not running", _lost(summary, words)),
    ]
    if summary.replacements:
        rows.insert(4, ("made again", f"{counted(summary.replacements, 'time')} within an attempt"))
    lines = ["SUMMARY", *(f"{label:<13}{text}" for label, text in rows)]
    if summary.deadlines:
        lines += ["", "DEADLINES", _deadlines(summary)]
    return lines


def _lost(summary: Summary, words: Sequence[str]) -> str:
    starts = " and ".join(one for one in ("Starting", Phase.RESUMING.value) if one in words)
    parts = [
        f"{starts if phase is Phase.RESUMING else phase.value} {format_duration(span)}"
        for phase, span in summary.phases.items()
        if span and phase.value != "Running"
    ]
    return format_duration(summary.lost) + (f" ({', '.join(parts)})" if parts else "")


def _outcome(one: Expected) -> str:
    if one.open:
        return "still to come"
    if one.what.endswith("deletion"):
        return "done" if one.fell_due else "not needed"
    return "ran out" if one.fell_due else "ended early"


def _deadlines(summary: Summary) -> str:
    rows: Sequence[tuple[str, ...]] = [
        (
            one.what,
            str(one.attempt or "-"),
            _at(one.set_at),
            _at(one.due),
            _outcome(one),
        )
        for one in summary.deadlines
    ]
    return table(("WHAT", "ATTEMPT", "SET AT", "DUE AT", "OUTCOME"), rows)
