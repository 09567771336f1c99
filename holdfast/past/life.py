"""Replays a run: the loop of the workload's workflow, driven by the inputs in its history. Pure.

It mirrors `holdfast.workflows.workload` step by step, and runs the engine's decisions again; a test compares the two.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, assert_never

from holdfast import names
from holdfast.model import Cause, Observation, State, Workload
from holdfast.model.calls.cluster import Probed, Rehearsed, Scaled
from holdfast.model.calls.progress import Followed
from holdfast.model.entities.graph import GraphOrder
from holdfast.model.entities.queue import QueueNews, QueueOrder
from holdfast.model.gang.orders import GangOutcome
from holdfast.past.tasks import CancelAsked, Finished, Fired, Heard, Signalled, Task, Updated
from holdfast.policy.attempt.checkpoint import CheckpointAsk
from holdfast.policy.attempt.park import begins_suspended
from holdfast.policy.loop.advance import Taken
from holdfast.policy.loop.change import (
    ComponentsChange,
    PolicyChange,
    changed,
    check_changeable,
    differing,
    reconfigured,
)
from holdfast.policy.loop.fold import fold
from holdfast.policy.loop.reset import carried_out
from holdfast.policy.loop.results import refusal
from holdfast.policy.loop.submission import submitted
from holdfast.policy.loop.turn import Begin, Continue, Leave, Rest, landed, turn
from holdfast.policy.sides.gang import GangScale, scaled, unsized
from holdfast.policy.status import blocked, queued
from holdfast.policy.values import events
from holdfast.policy.values.addressee import misdirected
from holdfast.policy.values.edit import edit
from holdfast.policy.values.events import RequeueRequest
from holdfast.policy.values.steps import Run, Step
from holdfast.policy.verdicts.strip import StripRequest
from holdfast.policy.verdicts.walltime import WalltimeExtension, extended, extension

_CANCELLED: Final = "cancelled through Temporal"
_BESIDE: Final = {
    names.ACTIVITY_REHEARSE,
    names.ACTIVITY_PROBE,
    names.ACTIVITY_FOLLOW,
    names.ACTIVITY_BEGIN_GANG,
    names.ACTIVITY_SCALE,
}
"""Activities that may run in parallel with the one operation."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of the workflow's loop: the known state, the decisions, the step carried out."""

    event: int
    """The id of the event that started its workflow task."""
    at: datetime
    spec: Workload
    folded: State
    """The state after the inbox was folded in, and before any decision."""
    taken: tuple[Taken, ...]
    after: State
    step: Step | None
    """None if the turn only folded in the inbox, to pass it to the next run."""
    reset: bool = False
    """Whether its first decision is a restart that a reset has carried out: `folded` has it already (record 0086)."""


@dataclass(slots=True)
class Life:
    """The memory of one run, from one workflow task to the next."""

    spec: Workload
    uid: str
    state: State | None
    """None before the first task of the first run: the state begins at that task's time."""
    causes: dict[int, Cause] = field(default_factory=dict[int, Cause])
    """Causes that were added in this run, by number, from 1 on."""
    _turned: bool = False
    _inbox: list[events.Event] = field(default_factory=list[events.Event])
    _busy: bool = False
    _finished: Finished | None = None
    _timer: int | None = None
    """The id of the event that started the current timer; 0 for a timer that this task has set."""
    _until: datetime | None = None
    _cancelled: bool = False
    _leaving: Continue | Leave | None = None
    """The exit that waits until all handlers have finished."""
    _left: bool = False
    _telling: set[int] = field(default_factory=set[int])
    """Pending signals to its graph or its queue, by the ids of the events that initiated them."""
    _heard: list[events.Event] = field(default_factory=list[events.Event])
    """News that its queue has received: the queue received it before it sent what is in the inbox."""
    _begun: list[str] = field(default_factory=list[str])
    _changes: list[ComponentsChange] = field(default_factory=list[ComponentsChange])
    """Changes that are not in force yet; the first of them is being validated by the API server."""

    def live(self, task: Task) -> list[Turn]:
        """Replay one workflow task, and return its turns.

        Raises:
            ValueError: if the history differs from what this release would have done.
        """
        if self.state is None:
            self.state = submitted(self.spec, task.at)
        turns: list[Turn] = []
        self._begun = []
        first, self._turned, timer = not self._turned, True, self._timer
        if first:
            waits = names.PATCH_WAITS in task.patches
            resets = waits or names.PATCH_RESETS in task.patches
            creates = resets or names.PATCH_CREATES in task.patches
            self.state = edit(self.state, creates_at_once=creates, resets_at_once=resets, shows_waits=waits)
            if begins_suspended(self.spec, edit(self.state, begins_suspended=True)):
                self.state = edit(self.state, begins_suspended=names.PATCH_SLEEPS in task.patches)
        for wish in task.wishes:
            self._wish(wish, task)
        # The SDK runs the workflow on signals and updates before it delivers the rest; not so in the first task.
        if self._inbox and not (first or task.batched):
            turns += self._turns(task)
        woken = first or bool(self._inbox)
        for result in task.results:
            woken = self._result(result, timer) or woken
        if woken:
            turns += self._turns(task)
        if self._timer == 0:
            self._timer = task.timers[-1] if task.timers else None
        self._telling |= set(task.telling)
        self._check(task)
        return turns

    def _wish(self, wish: Signalled | Updated, task: Task) -> None:
        match wish:
            case Signalled():
                event = _signal(wish, self.uid)
                self._inbox += [event] if event is not None else []
            case Updated(change):
                assert self.state is not None
                if isinstance(change, PolicyChange):
                    policy = changed(self.state.policy, change)
                    self.state = edit(self.state, policy=policy)
                    self._inbox.append(events.PolicyChanged(policy, change.note))
                    return
                if isinstance(change, StripRequest):
                    self._inbox.append(events.StripAsked(change.note))
                    return
                if isinstance(change, CheckpointAsk):
                    self._inbox.append(events.CheckpointAsked(change.note))
                    return
                if isinstance(change, GangScale):
                    after = scaled(self.spec, self.state, change)
                    if after != self.spec and after.gang is not None:
                        self.spec = after
                        self._inbox.append(events.GangScaled(after.gang, change.note))
                    return
                if isinstance(change, WalltimeExtension):
                    total = extension(self.spec, self.state, change)
                    self.state = extended(self.state, total)
                    self._inbox.append(events.WalltimeExtended(total, change.note))
                    return
                # An older release put changes in force without validation by the API server.
                if self._changes or names.ACTIVITY_REHEARSE in task.begun:
                    self._changes.append(change)
                    self._consider()
                else:
                    self._reconfigure(change)
            case _:
                assert_never(wish)

    def _reconfigure(self, change: ComponentsChange) -> None:
        before, self.spec = self.spec, reconfigured(self.spec, change)
        again = differing(before, self.spec)
        if again:
            self._inbox.append(events.Reconfigured(again, change.note))

    def _consider(self) -> None:
        """Process changes up to the first that makes a difference: that one waits for the API server's validation."""
        assert self.state is not None
        while self._changes:
            try:
                check_changeable(self.state)
                after = reconfigured(self.spec, self._changes[0])
                if differing(self.spec, after):
                    return
                self.spec = after
            except ValueError:
                pass  # Its author got the error, and nothing changed.
            self._changes.pop(0)

    def _rehearsed(self, finished: Finished) -> bool:
        """Put the change that the API server validated in force, if the API server accepted it."""
        assert self.state is not None
        if not self._changes:
            raise ValueError(f"{finished.activity} came back, and no change waited for it")
        change = self._changes.pop(0)
        if isinstance(finished.result, Rehearsed) and not finished.result.refusal:
            with suppress(ValueError):  # The workload ended meanwhile: the author got the error.
                check_changeable(self.state)
                self._reconfigure(change)
        self._consider()
        return bool(self._inbox) or self._leaving is not None

    def _result(self, result: Finished | Fired | Heard | CancelAsked, timer: int | None) -> bool:
        """Record a result; return whether it wakes the loop."""
        match result:
            case Heard(news, telling, missed):
                self._telling.discard(telling)
                if isinstance(news, QueueNews):
                    self._heard.append(queued.after_sending(self.spec, news, missed=missed))
                else:
                    self._inbox.append(blocked.after_sending(self.spec, news, missed=missed))
                return True
            case Finished(names.ACTIVITY_REHEARSE):
                return self._rehearsed(result)
            case Finished(names.ACTIVITY_PROBE):
                if isinstance(result.result, Probed) and result.attempt is not None:
                    said = result.result
                    self._inbox.append(events.ProbeEnded(result.attempt, said.failure, dict(said.failing)))
                return True
            case Finished(names.ACTIVITY_FOLLOW):
                if isinstance(result.result, Followed) and result.attempt is not None:
                    self._inbox.append(events.StepsRead(result.attempt, result.result.record, result.result.failure))
                return True
            case Finished(names.ACTIVITY_BEGIN_GANG | names.ACTIVITY_SCALE):
                self._inbox += self._met(result)
                return True
            case Finished():
                if not self._busy:
                    raise ValueError(f"{result.activity} came back, and nothing was under way")
                self._finished = result
                return True
            case Fired(number):
                if number != timer or self._timer != timer:
                    return False  # It was cancelled in the same task.
                self._timer, self._until = None, None
                return True
            case CancelAsked():
                self._cancelled = True
                self._inbox.append(events.Cancelled(_CANCELLED))
                return True
            case _:
                assert_never(result)

    def _met(self, finished: Finished) -> list[events.Event]:
        """Return the events from a gang activity's end; a cancelled one may or may not have reached the rendezvous."""
        number = finished.attempt
        if number is None:
            living = self.state.attempt if self.state is not None else None
            number = living.number if living is not None else 0
        if finished.activity == names.ACTIVITY_BEGIN_GANG:
            return [events.GangBegun(number)]
        if not isinstance(finished.result, Scaled) or self.spec.gang is None:
            return []
        if finished.result.done:
            members = self.spec.members
            return [events.GangResized(number, self.spec.gang, members.name if members is not None else "")]
        refused = events.GangUnsized(number, self.spec.gang, finished.result.refused)
        if self.state is not None:
            self.spec = unsized(self.spec, self.state, refused)
        return [refused]

    def _turns(self, task: Task) -> list[Turn]:
        if self._left:
            return []
        turns = [self._turn(task)]
        # An activity that was cancelled before it could start has ended at once.
        while self._busy and self._finished is not None and self._leaving is None:
            turns.append(self._turn(task))
        return turns

    def _turn(self, task: Task) -> Turn:
        """Run one turn of the loop: fold in the inbox, decide, and return what is carried out."""
        assert self.state is not None
        now, spec = task.at, self.spec
        if self._leaving is not None:
            return self._stay(task)
        state = self._take_in(self.state, now)
        if self._cancelled and not state.intent.cancel:
            state = self._noted(state, fold(state, events.Cancelled(_CANCELLED), now))
        folded, reset = state, carried_out(self.state, state)
        lived = turn(spec, state, now, full=task.suggested)
        for one in lived.taken:
            state = self._noted(state, one.after)
        self.state = state = self._noted(state, lived.state)
        match lived.act:
            case Begin():
                assert isinstance(lived.step, Run)
                self._busy = True
                self._begun.append(lived.step.kind.value)
                self._set_timer(None)
            case Rest(until, _, breaks):
                if breaks:
                    self._break_off()
                self._set_timer(until)
            case Leave() if self._telling or blocked.owed(spec, state, self.uid) or queued.owed(spec, state, self.uid):
                self._set_timer(None)
            case Continue() | Leave():
                self._leaving = lived.act
        if self._continues(task):
            self.state, self._left = edit(self.state, runs=self.state.runs + 1), True
        taken = lived.taken if reset is None else (reset, *lived.taken)
        return Turn(task.event, now, spec, folded, taken, self.state, lived.step, reset is not None)

    def _continues(self, task: Task) -> bool:
        return isinstance(self._leaving, Continue) and task.ended is not None

    def _stay(self, task: Task) -> Turn:
        """Wait for handlers to finish; the inbox of that time is folded in when the run passes on its memory."""
        assert self.state is not None
        folded = self.state
        if self._continues(task):
            folded = self._take_in(self.state, task.at)
            self.state, self._left = edit(folded, runs=folded.runs + 1), True
        return Turn(task.event, task.at, self.spec, folded, (), self.state, None)

    def _take_in(self, state: State, now: datetime) -> State:
        inbox, self._inbox, self._heard = [*self._heard, *self._inbox], [], []
        for event in inbox:
            state = self._noted(state, fold(state, event, now))
        operation, finished = state.operation, self._finished
        if finished is None or operation is None:
            return state
        self._busy, self._finished = False, None
        if not finished.broken_off:
            return self._noted(state, landed(state, finished.result, now))
        done = None
        if finished.error is not None:
            done = refusal(operation, finished.error, finished.message, finished.details)
        return self._noted(state, landed(state, done or events.OperationInterrupted(), now))

    def _noted(self, before: State, after: State) -> State:
        """Keep the causes that were added."""
        fresh = after.causes_total - before.causes_total
        for offset, cause in enumerate(after.causes[len(after.causes) - fresh :] if fresh else ()):
            self.causes[before.causes_total + offset + 1] = cause
        return after

    def _break_off(self) -> None:
        assert self.state is not None
        operation = self.state.operation
        if not self._busy or operation is None:
            return
        activity = operation.kind.value
        if activity in self._begun and self._finished is None:
            self._begun.remove(activity)
            self._finished = Finished(activity, broken_off=True)

    def _set_timer(self, until: datetime | None) -> None:
        if until == self._until and (until is None) == (self._timer is None):
            return
        self._timer, self._until = (None, None) if until is None else (0, until)

    def _check(self, task: Task) -> None:
        # The start of a parallel activity changes nothing: only its result counts.
        begun = [one for one in task.begun if one not in _BESIDE]
        if self._begun != begun:
            ours, theirs = (", ".join(each) or "nothing" for each in (self._begun, begun))
            raise ValueError(f"it began {theirs}, where this release would have begun {ours}")
        if task.ended is not None and task.ended.how != "other" and self._leaving is None:
            raise ValueError(f"it {task.ended.how}, where this release would have gone on")


def _signal(signal: Signalled, uid: str) -> events.Event | None:
    name, value = signal.name, signal.value
    why = misdirected(signal.uid, uid)
    if why:
        return events.NotUnderstood(name, why)
    if isinstance(value, RequeueRequest):
        return events.RequeueAsked(value)
    if isinstance(value, GraphOrder):
        return events.GraphOrdered(value) if value.workload_uid == uid else None
    if isinstance(value, QueueOrder):
        return events.QueueOrdered(value) if value.again or value.uid == uid else None
    if isinstance(value, GangOutcome):
        return events.GangTold(value) if value.workload_uid == uid else None
    if isinstance(value, Observation):
        return events.Observed(value) if value.workload_uid == uid else None
    match name:
        case names.SIGNAL_PREEMPT:
            return events.Suspended(value, preempted=True, within=signal.within)
        case names.SIGNAL_CANCEL:
            return events.Cancelled(value, phases=signal.phases)
        case _:
            return events.WISHES[name](value) if name in events.WISHES else None
