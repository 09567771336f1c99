"""Records the timeline while a simulation runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from holdfast.model import BudgetStatus, Cause, OperationKind, Phase, Reason, State, format_duration
from holdfast.policy.values.steps import Run, Sleep, Step
from holdfast.policy.verdicts.budgets import used_of
from holdfast.simulation.script.clock import START, Clock
from holdfast.simulation.timeline import Entry, EntryKind, Expected, Summary

_FORCE, _FORCE_AGAIN = "forceful deletion", "another round of forceful deletion"
_CHECKPOINT = "end of the checkpoint"


@dataclass(slots=True)
class _Deadline:
    attempt: int
    what: str
    text: str
    set_at: datetime
    due: datetime
    unseen: timedelta
    """How long the cluster could not be observed since the deadline was set, as far as `due` allows for it."""


@dataclass(slots=True)
class Recorder:
    """The timeline so far."""

    clock: Clock
    state: State
    entries: list[Entry] = field(default_factory=list[Entry])
    causes: list[Cause] = field(default_factory=list[Cause])
    """All causes; a state keeps only the latest."""
    _deadline: _Deadline | None = None
    _told: tuple[int, str, datetime] | None = None
    _past: list[Expected] = field(default_factory=list[Expected])
    _charged: int = 0
    _replacements: int = 0
    _spent: dict[Phase, timedelta] = field(default_factory=dict[Phase, timedelta])
    _since: datetime = START

    # --- what happens

    def event(self, text: str) -> None:
        """Record an event of the script or the cluster."""
        self._write(EntryKind.EVENT, self.state.phase, text)

    def task(self, before: State, after: State, step: Step) -> None:
        """Record the decisions of one step of the workload."""
        if after.phase is not before.phase and None in {before.outcome, after.outcome}:
            self._spend(before.phase)
        self.state = after
        fresh = after.causes_total - before.causes_total
        causes = after.causes[-fresh:] if fresh else ()
        self.causes += causes
        renewed = any(cause.reason is Reason.BUDGET_RENEWED for cause in causes)
        spent = sum(after.used.values()) - (0 if renewed else sum(before.used.values()))
        self._charged += min(max(0, spent), after.restarts - before.restarts)
        phase = before.phase
        begins = _number(after) != _number(before)
        for index, cause in enumerate(causes):
            # A cause holds the phase that it ended; the phase that it led to is in the next cause.
            last = index + 1 == len(causes)
            phase = causes[index + 1].phase if not last else cause.phase if begins else after.phase
            self._replacements += cause.reason is Reason.REPLACING
            self._write(EntryKind.DECISION, phase, cause.message, cause.reason, attempt=cause.attempt)
        if before.unhealthy is not None and after.unhealthy is None and not causes and after.phase is before.phase:
            text = f"healthy again; no restart: {before.unhealthy.failure.sentence()}"
            self._write(EntryKind.DECISION, phase, text, Reason.HEALED)
        if after.phase is not phase or begins:
            self._write(EntryKind.DECISION, after.phase, after.message or after.reason.value, after.reason)
        self._expect(step)

    def at_rest(self) -> None:
        """Record the current wait, once nothing more happens at this time."""
        waits = self._deadline
        if waits is None:
            return
        told = (waits.attempt, waits.what, waits.due)
        if told != self._told and waits.due > self.clock.now:
            text = waits.text
            if waits.unseen and self._told is not None and self._told[:2] == told[:2]:
                text += f"; {format_duration(waits.unseen)} without news of the cluster does not count"
            self._told = told
            self._write(EntryKind.WAIT, self.state.phase, text, until=waits.due)

    def _expect(self, step: Step) -> None:
        match step:
            case Sleep(until, why) if until is not None:
                self._set(why.partition(": ")[0], why, until)
            case Run(OperationKind.CHECKPOINT, _, until) if until is not None:
                self._set(_CHECKPOINT, f"{_CHECKPOINT}, unless all have saved by then", until)
            case Run(kind, _, until) if until is not None:
                what = _FORCE_AGAIN if kind is OperationKind.FORCE_REMOVE else _FORCE
                self._set(what, f"{what}, unless all is gone by then", until)
            case Run(OperationKind.OBSERVE):
                return  # What the look finds decides: if it finds that nothing was observed, the deadline moves.
            case Sleep() if self.state.operation is not None and self.state.operation.until is not None:
                return  # The running removal continues.
            case _:
                self._close()

    def _set(self, what: str, text: str, due: datetime) -> None:
        attempt = _number(self.state)
        same = self._deadline
        if same is not None and (same.attempt, same.what) == (attempt, what):
            same.due, same.text, same.unseen = due, text, self._unseen(same.set_at)
            return
        self._close()
        now = self.clock.now
        self._deadline = _Deadline(attempt, what, text, now, due, self._unseen(now))

    def _unseen(self, since: datetime) -> timedelta:
        """Return how long the cluster could not be observed since a time."""
        spans = (span.end - max(span.begin, since) for span in self.state.blind if span.end > since)
        return sum(spans, timedelta(0))

    def _close(self, *, at_end: bool = False) -> None:
        """Close the current deadline: it was reached, or its reason has passed.

        One whose time passed while the cluster could not be observed was not reached: that time does not count.
        """
        past, self._deadline = self._deadline, None
        if past is None or past.due <= past.set_at:
            return
        due = past.due + self._unseen(past.set_at) - past.unseen
        self._past.append(
            Expected(
                attempt=past.attempt,
                what=past.what,
                set_at=past.set_at - START,
                due=due - START,
                fell_due=self.clock.now >= due,
                open=at_end and self.clock.now < due,
            )
        )

    def _write(
        self,
        kind: EntryKind,
        phase: Phase,
        text: str,
        reason: str = "",
        *,
        until: datetime | None = None,
        attempt: int | None = None,
    ) -> None:
        number = _number(self.state)
        self.entries.append(
            Entry(
                at=self.clock.passed,
                kind=kind,
                phase=phase,
                attempt=number if attempt is None else attempt,
                reason=reason,
                text=text,
                until=until - START if until is not None else None,
                budgets=self._budgets(),
            )
        )

    # --- the result

    def _budgets(self) -> tuple[BudgetStatus, ...]:
        state, now = self.state, self.clock.now
        return tuple(
            BudgetStatus(name=one.name, limit=one.limit, used=used_of(state, one, now)) for one in state.policy.budgets
        )

    def _spend(self, phase: Phase) -> None:
        spent = self.clock.now - self._since
        if spent:
            self._spent[phase] = self._spent.get(phase, timedelta(0)) + spent
        self._since = self.clock.now

    def summary(self, *, finished: bool) -> Summary:
        """Return the summary of the simulation."""
        state = self.state
        if state.outcome is None:
            self._spend(state.phase)
        self._close(at_end=True)
        running = self._spent.get(Phase.RUNNING, timedelta(0))
        return Summary(
            outcome=state.outcome,
            phase=state.phase,
            reason=state.reason.value,
            message=state.message,
            ended_at=self.clock.passed,
            finished=finished,
            attempts=state.executions,
            restarts=state.restarts,
            charged=self._charged,
            uncharged=state.restarts - self._charged,
            replacements=self._replacements,
            budgets=self._budgets(),
            running=running,
            lost=sum(self._spent.values(), timedelta(0)) - running,
            phases=dict(self._spent),
            deadlines=tuple(self._past),
        )


def _number(state: State) -> int:
    return state.attempt.number if state.attempt is not None else 0
