"""Compares the real decisions with another policy's decisions on the same observations, at the same times. Pure.

The other policy decides at each turn of the real life, with its own clocks and its own budget figures. Between two
turns it decides at each of its deadlines that comes before the real one. If it would have acted otherwise, the two
courses diverge there: the comparison continues on the real course, and keeps only the other policy's budget figures.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from holdfast.model import (
    ActionKind,
    Attempt,
    BudgetStatus,
    Failure,
    Model,
    Phase,
    Policy,
    RestartMode,
    Scope,
    Stage,
    State,
    Time,
    Unhealthy,
    Workload,
    format_duration,
)
from holdfast.past.cost import Change, Costs, costs
from holdfast.past.life import Turn
from holdfast.past.story import Story
from holdfast.policy.attempt.barrier import has_barrier
from holdfast.policy.attempt.health import LIVE, current, pause_of, timings
from holdfast.policy.attempt.replace import due_replacements, joined
from holdfast.policy.attempt.requeue import pause as paused
from holdfast.policy.failures.rules import rule_on, title_of
from holdfast.policy.loop.advance import Taken, decisions
from holdfast.policy.status.explain import budgets_of
from holdfast.policy.values.decision import (
    Cancel,
    Create,
    Decision,
    Fail,
    Look,
    Release,
    Replace,
    Restart,
    Resubmit,
    Retry,
    Succeed,
    Suspend,
    Wait,
)
from holdfast.policy.values.edit import edit
from holdfast.policy.verdicts.poison import hopeless

_ACTING: Final = (Create, Restart, Resubmit, Replace, Suspend, Fail, Succeed, Cancel, Release, Retry)
_SAME: Final = "same"
_AS_MODE: Final = {
    RestartMode.IN_PLACE: "in place, if all pods can; how that would have gone is not known",
    RestartMode.RECREATE: "with new pods; how that would have gone is not known",
}


class Point(Model):
    """One moment of a decision, by the real policy or by the other policy."""

    at: Time
    attempt: int
    real: str
    """The real decision; empty if there was none."""
    other: str
    """The other policy's decision; empty if there was none."""
    verdict: str
    """`same`; `earlier`, `later`, `instead` or `not at all`, from the other policy's view; `not really` if only the
    other policy would have acted."""
    note: str = ""
    budgets: tuple[BudgetStatus, ...]
    other_budgets: tuple[BudgetStatus, ...]


class Comparison(Model):
    """A real life, compared with another policy's decisions on it."""

    name: str
    points: tuple[Point, ...]
    parted_at: Time | None = None
    """When the two courses first diverged; the other policy would not have met the later events."""
    outcome: Phase | None = None
    other_outcome: Phase | None = None
    """None if unknown: the real workload ended where the other policy would have continued, or has not ended."""
    end: str
    costs: Costs
    """What both cost, by the ledger (row P6)."""
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class _Ahead:
    """An action that the other policy has taken, and the real one has not yet."""

    decision: Decision
    point: int
    """Its index in the list of points."""


def compared(story: Story, policy: Policy) -> Comparison:
    """Return another policy's decisions on a real life, point by point."""
    other = _Other.of(policy, story.runs[0].carried)
    for index, turn in enumerate(story.turns):
        after = story.turns[index + 1].at if index + 1 < len(story.turns) else turn.at
        raw = turn.folded
        for number, real in enumerate(turn.taken):
            done = turn.reset and number == 0
            other.judge(turn, real.before if done else raw, real)
            raw = raw if done else real.after
        other.wait(turn, raw, after)
    return _summed(story, other)


@dataclass(slots=True)
class _Other:
    """The other policy's own memory, next to the real one."""

    policy: Policy
    used: dict[str, int]
    member: dict[str, int] = field(default_factory=dict[str, int])
    """Budget use of the members, in the attempt below."""
    attempt: int = 0
    unhealthy: Unhealthy | None = None
    acted: dict[str, int] = field(default_factory=dict[str, int])
    ahead: _Ahead | None = None
    remade: dict[str, int] = field(default_factory=dict[str, int])
    """Components that only the other policy has replaced in the attempt below, each with the index of its point."""
    points: list[Point] = field(default_factory=list[Point])
    changes: list[Change] = field(default_factory=list[Change])
    """Where its course takes another time than the real one, or another way."""
    open: dict[int, Change] = field(default_factory=dict[int, Change])
    """For points that reality has not reached yet: what they come to if it never does."""
    parted: datetime | None = None
    failed: datetime | None = None
    unknown: bool = False
    """Whether one policy would have ended the workload where the other continued, if nothing had healed before."""
    reset: tuple[int, timedelta | None, bool] = (0, None, False)
    """The attempt that it reset last, the rule's own pause, and whether the reset requeued the workload."""

    @classmethod
    def of(cls, policy: Policy, carried: State | None) -> _Other:
        """Begin with the figures and the clock carried over from an earlier run that Temporal no longer keeps."""
        if carried is None:
            return cls(policy, {})
        other = cls(policy, dict(carried.used), acted=dict(carried.acted), unhealthy=carried.unhealthy)
        if carried.attempt is not None:
            other.attempt, other.member = carried.attempt.number, dict(carried.attempt.used)
        return other

    def judge(self, turn: Turn, raw: State, real: Taken) -> None:
        """Decide at the point of a real decision, and compare."""
        if self.remade:
            self._heal(turn, raw)
        taken = self._decide(turn.spec, raw, turn.at, looks=isinstance(real.decision, Look))
        self._keep(taken.before)
        was_ahead = self._was_ahead(turn.at, real)
        self.unknown = self.unknown or self._restarts_otherwise(turn.spec, real)
        if self.ahead is not None:
            self._catch_up(turn, real, self.ahead, healed=taken.before.unhealthy is None)
        elif not was_ahead:
            self._compare(turn, real, taken)
        if isinstance(real.decision, Retry) and real.before.outcome is not None:
            self.used, self.acted, self.failed = {}, {}, None  # A retry after the end starts all figures anew.

    def _compare(self, turn: Turn, real: Taken, taken: Taken) -> None:
        at = turn.at
        acted = isinstance(real.decision, _ACTING)
        if acted and isinstance(taken.decision, _ACTING):
            self._both(turn.spec, at, real, taken)
        elif acted:
            self._only_real(turn.spec, at, real, taken)
        elif isinstance(taken.decision, _ACTING):
            self._only_other(at, real.after, taken)

    def wait(self, turn: Turn, raw: State, until: datetime) -> None:
        """Process the other policy's own deadlines up to the next real turn."""
        last = turn.taken[-1].decision if turn.taken else None
        real = last.until if isinstance(last, Wait) else None
        if self.ahead is not None or isinstance(last, Look):
            return
        at = turn.at
        while True:
            decision = self._decide(turn.spec, raw, at, looks=False).decision
            if not isinstance(decision, Wait) or not at < decision.until < until:
                return
            if real is not None and decision.until >= real:
                return
            at = decision.until
            taken = self._decide(turn.spec, raw, at, looks=False)
            self._keep(taken.before)
            if isinstance(taken.decision, _ACTING):
                self._only_other(at, raw, taken)
                if self.ahead is not None:
                    return

    def _decide(self, spec: Workload, raw: State, at: datetime, *, looks: bool) -> Taken:
        """Return the other policy's decision; if it would read the cluster, assume that it sees the known state."""
        state = self._remaking(self._seen(raw))
        taken = next(decisions(spec, state, at))
        if isinstance(taken.decision, Look) and not looks:
            return next(decisions(spec, edit(state, looked_at=at, in_doubt=False), at))
        return taken

    def _seen(self, raw: State) -> State:
        """Return the real memory with the other policy, its clocks and its budget figures."""
        attempt = raw.attempt
        if attempt is not None and attempt.number != self.attempt:
            self.attempt, self.member, self.unhealthy, self.remade = attempt.number, {}, None, {}
        living = attempt is not None and attempt.stage in LIVE
        state = edit(
            raw,
            policy=self.policy,
            used=self.used,
            acted=self.acted,
            unhealthy=self.unhealthy if living else raw.unhealthy,
            attempt=edit(attempt, used=self.member, **self._paused(attempt)) if attempt is not None else None,
        )
        waits = timings(state)
        mine = state.attempt
        if raw.pause_until is not None and mine is not None and mine.gone_at is not None:
            state = edit(state, pause_until=mine.gone_at + paused(mine, pause_of(state, mine)))
        if raw.hold_until is not None or (living and raw.outcome in {Phase.SUCCEEDED, Phase.FAILED}):
            held = waits.success_ttl if raw.outcome is Phase.SUCCEEDED else waits.deletion_on_failure_grace_period
            state = edit(state, hold_until=raw.since + held if held is not None else None)
        return state

    def _remaking(self, state: State) -> State:
        """Return the memory with the components that only the other policy replaces marked as being replaced."""
        attempt = state.attempt
        if attempt is None or not self.remade:
            return state
        return edit(state, attempt=joined(attempt, self.remade))

    def _paused(self, attempt: Attempt) -> dict[str, Any]:
        """Return the fields of an attempt's end that the other policy decides: its pause, and whether it requeues."""
        number, pause, requeue = self.reset
        if not attempt.pause_after:
            return {}
        return {"pause": pause, "requeue": requeue} if number == attempt.number else {"pause": None, "requeue": False}

    def _keep(self, state: State) -> None:
        self.unhealthy, self.used, self.acted = state.unhealthy, state.used, state.acted
        if state.attempt is not None:
            self.member = state.attempt.used

    def _charge(self, taken: Taken, at: datetime) -> None:
        """Record the cost of the other policy's action, and whether it ended the workload."""
        self.used, self.acted = taken.after.used, taken.after.acted
        if taken.after.attempt is not None and taken.after.attempt.number == self.attempt:
            self.member = taken.after.attempt.used
        if isinstance(taken.decision, Fail) and self.failed is None:
            self.failed = at
        if isinstance(taken.decision, Restart):
            self.reset = (self.attempt, taken.decision.pause, taken.decision.requeue)

    def _restarts_otherwise(self, spec: Workload, real: Taken) -> bool:
        """Whether one policy restarts in place where the other one recreates, or might."""
        if not isinstance(real.decision, Restart) or real.before.policy.restart_mode is self.policy.restart_mode:
            return False
        return real.decision.in_place or has_barrier(spec, self.policy)

    def _both(self, spec: Workload, at: datetime, real: Taken, taken: Taken) -> None:
        otherwise = isinstance(taken.decision, Restart) and self._restarts_otherwise(spec, real)
        same = type(real.decision) is type(taken.decision) and not otherwise
        if not (same and isinstance(taken.decision, Fail)):
            self._charge(taken, at)
        note = ""
        if not same:
            self._part(at)
            note = _AS_MODE[self.policy.restart_mode] if otherwise else _words_of_failure(taken.decision)
            self._ends_or_parts(at, real.before, taken)
        self._add(at, real.after, _said(real), _said(taken), _SAME if same else "instead", note)

    def _only_real(self, spec: Workload, at: datetime, real: Taken, taken: Taken) -> None:
        """Record a real decision that the other policy would have taken later, or not at all."""
        self._part(at)
        other = taken.decision
        failure = real.decision.failure if isinstance(real.decision, Restart | Fail) else None
        cost, ends = self._later(spec, taken.before, failure) if failure is not None else ("", False)
        self.unknown = self.unknown or (failure is not None and ends != isinstance(real.decision, Fail))
        if isinstance(other, Wait):
            shift, fails = other.until - at, isinstance(real.decision, Fail)
            otherwise = not ends and (fails or self._restarts_otherwise(spec, real))
            if failure is not None and (taken.before.unhealthy is None or otherwise):
                # To the other policy it is no failure yet, or it would have restarted what really ended, or otherwise.
                self.changes.append(Change(at, real.before, unknown=True))
            elif failure is not None and ends and not fails:
                self.changes.append(Change(at, real.before, shift, ends=_failed(real.before, failure)))
            else:
                self.changes.append(Change(at, real.before, shift))
            text = f"not before {other.until:%H:%M:%S} ({other.why})"
            healed = "; whether it would have healed by then is not known" if failure is not None else ""
            self._add(at, real.after, _said(real), text, "later", f"{cost}{healed}".removeprefix("; "))
        else:
            self.changes.append(Change(at, real.before, unknown=True))
            self._add(at, real.after, _said(real), "", "not at all", getattr(other, "why", ""))

    def _later(self, spec: Workload, state: State, failure: Failure) -> tuple[str, bool]:
        """Charge the later cost of a failure; return the consequence in words, and whether it ends the workload."""
        ruling = rule_on(self.policy, failure)
        rule, action = ruling.rule, ruling.action
        if action.kind is ActionKind.IGNORE:
            return "", False
        if action.kind is ActionKind.FAIL:
            return "then it fails", True
        found = hopeless(spec, state, failure)
        if found is not None:
            return f"then it fails, since {found.why}", True
        acted = self.acted.get(rule, 0)
        if action.limit is not None and acted >= action.limit:
            return f"then it fails, since rule {rule} has acted as often as it may", True
        charged = "nothing"
        if action.charge is not None:
            budget = self.policy.budget(action.charge)
            of_member = budget.scope is Scope.MEMBER and bool(failure.component)
            figures, name = (self.member, failure.component) if of_member else (self.used, action.charge)
            used = figures.get(name, 0)
            if budget.limit is not None and used >= budget.limit:
                return f"then it fails, since its {action.charge} budget is used up", True
            if of_member:
                self.member = {**figures, name: used + 1}
            else:
                self.used = {**figures, name: used + 1}
            charged = action.charge
        if action.limit is not None:
            self.acted = {**self.acted, rule: acted + 1}
        self.reset = (self.attempt, action.pause, action.requeue)
        return f"then it resets, charged to {charged}", False

    def _only_other(self, at: datetime, state: State, taken: Taken) -> None:
        """Record that only the other policy acts now."""
        self._part(at)
        self._charge(taken, at)
        if isinstance(taken.decision, Fail):
            self.changes.append(Change(at, taken.before, failed=taken.decision.failure.time, ends=taken.after))
        elif not isinstance(taken.decision, Release):
            failed = taken.decision.failure.time if isinstance(taken.decision, Restart) else None
            self.open[len(self.points)] = Change(at, taken.before, failed=failed, unknown=True)
        if isinstance(taken.decision, Replace):
            self.remade |= dict.fromkeys(taken.decision.components, len(self.points))
        else:
            self.ahead = _Ahead(taken.decision, len(self.points))
        note = _words_of_failure(taken.decision)
        self._add(at, state, "", _said(taken), "not really", note)

    def _catch_up(self, turn: Turn, real: Taken, ahead: _Ahead, *, healed: bool) -> None:
        """Check whether the real course has reached the other policy's earlier action, or will not reach it."""
        if isinstance(real.decision, _ACTING):
            same = type(real.decision) is type(ahead.decision) and not self._restarts_otherwise(turn.spec, real)
            self._come(turn.at, real, ahead.point, same=same)
            self.ahead = None
        elif isinstance(ahead.decision, Restart | Fail) and healed:
            self._healed(turn.at, ahead.point)
            self.ahead = None

    def _was_ahead(self, at: datetime, real: Taken) -> bool:
        """Match a real decision with the other policy's earlier replacements; return whether they cover all of it."""
        decision = real.decision
        if not self.remade or not isinstance(decision, _ACTING):
            return False
        made = set(decision.components) if isinstance(decision, Replace) else set(self.remade)
        come = made & set(self.remade)
        for point in sorted({self.remade.pop(one) for one in come}):
            self._come(at, real, point, same=isinstance(decision, Replace))
        return come == made

    def _heal(self, turn: Turn, raw: State) -> None:
        """Record which components that only the other policy has replaced no longer need it."""
        state = next(decisions(turn.spec, self._seen(raw), turn.at)).before
        seen = current(state)
        if state.unhealthy is not None or seen is None:
            return
        due = {one.component for one in due_replacements(turn.spec, state, seen)}
        well = [one for one in self.remade if one not in due]
        for point in sorted({self.remade.pop(one) for one in well}):
            self._healed(turn.at, point)

    def _come(self, at: datetime, real: Taken, index: int, *, same: bool) -> None:
        point, early = self.points[index], self.open.pop(index, None)
        if early is not None:
            self.changes.append(Change(at, real.before, early.at - at, early.failed) if same else early)
        text = f"{_said(real)} at {at:%H:%M:%S}, {format_duration(_whole(at, point.at))} after"
        text, verdict = f"{point.real}; {text}".removeprefix("; "), "earlier" if same else "instead"
        self.points[index] = edit(point, real=text, verdict=verdict, budgets=budgets_of(real.after, at))

    def _healed(self, at: datetime, index: int) -> None:
        point = self.points[index]
        self.points[index] = edit(point, real=f"{point.real}; healed at {at:%H:%M:%S}".removeprefix("; "))

    def _ends_or_parts(self, at: datetime, before: State, taken: Taken) -> None:
        failed = isinstance(taken.decision, Fail)
        self.changes.append(Change(at, before, ends=taken.after if failed else None, unknown=not failed))

    def _part(self, at: datetime) -> None:
        self.parted = self.parted or at

    def _add(self, at: datetime, state: State, real: str, other: str, verdict: str, note: str) -> None:
        shadow = edit(state, policy=self.policy, used=self.used, acted=self.acted)
        if shadow.attempt is not None:
            shadow = edit(shadow, attempt=edit(shadow.attempt, used=self.member))
        self.points.append(
            Point(
                at=at,
                attempt=state.attempt.number if state.attempt is not None else 0,
                real=real,
                other=other,
                verdict=verdict,
                note=note,
                budgets=budgets_of(state, at),
                other_budgets=budgets_of(shadow, at),
            )
        )


def _whole(after: datetime, before: datetime) -> timedelta:
    return timedelta(seconds=round((after - before).total_seconds(), 1))


def _failed(state: State, failure: Failure) -> State:
    """Return the state in which the other policy has failed a workload that was really reset."""
    attempt = state.attempt
    keeps = timings(state).deletion_on_failure_grace_period != timedelta(0)
    if attempt is not None and not keeps:
        attempt = edit(attempt, stage=Stage.REMOVING)
    return edit(state, outcome=Phase.FAILED, outcome_failure=failure, unhealthy=None, attempt=attempt)


def _words_of_failure(decision: Decision) -> str:
    return decision.why if isinstance(decision, Fail) else ""


def _said(taken: Taken) -> str:
    """Describe a decision in a few words."""
    match taken.decision:
        case Create():
            number = taken.after.attempt.number if taken.after.attempt is not None else 0
            return f"create attempt {number}"
        case Restart(_, rule, charge):
            return f"reset ({title_of(rule)}, {f'charged to {charge}' if charge else 'uncharged'})"
        case Resubmit():
            return "make it anew"
        case Replace(components):
            return f"make again {', '.join(components)}"
        case Suspend():
            return "suspend"
        case Fail(reason):
            return f"fail ({reason.value})"
        case Succeed():
            return "succeed"
        case Cancel():
            return "cancel"
        case Release():
            return "remove what is held"
        case Retry():
            return "begin again"
        case _:
            return ""


def _summed(story: Story, other: _Other) -> Comparison:
    state, status = story.state, story.status
    outcome = state.outcome if state is not None else None
    if state is None and status is not None and status.phase.ended:
        outcome = status.phase
    real = f"really: {outcome.value}" if outcome is not None else "really: it has not ended yet"
    verdicts = {point.verdict for point in other.points}
    theirs = outcome
    if other.failed is not None:
        theirs = Phase.FAILED
        end = f"{real}; with the other policy: Failed at {other.failed:%Y-%m-%d %H:%M:%S}"
    elif other.parted is None:
        end = f"{real}; with the other policy: the same"
    elif verdicts <= {_SAME, "earlier", "later"} and not other.unknown:
        end = f"{real}; with the other policy: the same, as far as what really happened can tell"
    else:
        theirs = None
        end = f"{real}; with the other policy: not known, since reality took another way"
    return Comparison(
        name=story.spec.name,
        points=tuple(other.points),
        parted_at=other.parted,
        outcome=outcome,
        other_outcome=theirs,
        end=end,
        costs=costs(story, [*other.changes, *other.open.values()]),
        notes=tuple(_notes(story, other.policy)),
    )


def _notes(story: Story, policy: Policy) -> Iterator[str]:
    mine, theirs = story.spec.policy.timings, policy.timings
    if story.contradictions:
        yield f"Another release lived it, and decided otherwise: the rest is left out ({story.contradictions[0]})."
    if story.runs[0].carried is not None:
        yield "Its beginning is no longer kept: the other policy's budgets begin with the figures that were handed on."
    if any(turn.after.policy != story.spec.policy for turn in story.turns):
        yield "Its policy was changed on its way: the other policy stays as it is given."
    in_place = policy.restart_mode is RestartMode.IN_PLACE and policy.restart_mode is not story.spec.policy.restart_mode
    if in_place and not has_barrier(story.spec, policy):
        yield "Its pods cannot restart in place: each needs an in-place restart agent, and a gang has its rendezvous."
    if mine.forceful_deletion_grace_period != theirs.forceful_deletion_grace_period:
        yield "How long a removal has before force is no decision point: removals took as long as they really did."
    if mine.submission_timeout != theirs.submission_timeout:
        yield "How long a refused submission is borne is no decision point: it was borne as long as it really was."
