"""The workflow's loop, as in `workflows/workload.py`, over the pure engine: inbox, one operation, one timer, replay.

It logs whatever it took in, so that its memory can be thrown away and made again from the log, as a replay does.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from holdfast.model import Observation, Phase, State, Workload
from holdfast.policy.attempt.checkpoint import is_of_earlier
from holdfast.policy.loop.fold import fold
from holdfast.policy.loop.measures import Counted, Lasted, measures
from holdfast.policy.loop.turn import Act, Begin, Continue, Leave, Rest, Turn, landed, turn
from holdfast.policy.status.ledger import Moment
from holdfast.policy.values.edit import edit
from holdfast.policy.values.events import Event, Observed, OperationEnd, OperationInterrupted
from holdfast.policy.values.steps import Step
from tests.fakes.ledger import TICK, Cluster
from tests.policy.lives.carried import Activities, Ended
from tests.policy.lives.hands import Given, Request
from tests.policy.lives.life import START

RESTARTS = {"restart", "requeue", "replace"}
"""The decisions that count as restarts of a workload."""


@dataclass(frozen=True, slots=True)
class Task:
    """One workflow task: what it took in, and when."""

    now: datetime
    inbox: tuple[Event, ...]
    ended: OperationEnd | Observation | None
    full: bool


@dataclass(slots=True)
class Work:
    """An activity under way on some worker."""

    given: Given
    steps: Generator[Request, None, Ended]
    request: Request | None = None
    """What it is about to send."""
    tries: int = 1


@dataclass
class Flow:
    """One workload's workflow."""

    spec: Workload
    cluster: Cluster
    activities: Activities
    state: State
    inbox: list[Event] = field(default_factory=list[Event])
    work: Work | None = None
    result: OperationEnd | Observation | None = None
    timer: datetime | None = None
    step: Step | None = None
    full: bool = False
    ended: Phase | None = None
    task: Task | None = None
    """The last one."""
    began: State | None = None
    """What the log begins with."""
    log: list[Task] = field(default_factory=list[Task])
    result_at: datetime = START
    """When the activity that ended last had ended."""
    tries: int = 0
    """How often the activity that ended last had been tried."""
    advances: int = 0
    moments: list[Moment] = field(default_factory=list[Moment])
    """Its states over time, around each decision, as its ledger takes them."""

    def __post_init__(self) -> None:
        self.began = self.state

    # --- tasks

    @property
    def due(self) -> bool:
        """Whether a workflow task is to be done."""
        if self.ended is not None:
            return False
        woken = self.timer is not None and self.cluster.now >= self.timer
        return self.step is None or bool(self.inbox) or self.result is not None or woken

    def wake(self) -> State:
        """Do a workflow task; return the state before it. Time moves between any two."""
        self.cluster.pass_time(TICK)
        before = self.state
        task = Task(self.cluster.now, tuple(self.inbox), self.result, self.full)
        self.inbox, self.result, self.timer = [], None, None
        if task.ended is not None and self.work is not None:
            self.tries, self.work = self.work.tries, None
        self.log.append(task)
        self.task = task
        lived = self._decided(before, task)
        self.state, self.step = lived.state, lived.step
        states = [state for taken in lived.taken for state in (taken.before, taken.after)]
        self.moments += [Moment(task.now, self.spec, state) for state in (*states, lived.state)]
        self._carry_out(lived.act, task)
        return before

    def _decided(self, state: State, task: Task) -> Turn:
        """Return what a task comes to: nothing else goes into it, so a replay comes to the same."""
        self.advances += 1
        before = state
        for event in task.inbox:
            state = fold(state, event, task.now)
        if task.ended is not None:
            end = OperationInterrupted() if is_of_earlier(state, task.ended) else task.ended
            state = landed(state, end, task.now)
        lived = turn(self.spec, state, task.now, full=task.full)
        _check_measures(self.spec, before, state, lived, task.now)
        return lived

    def _carry_out(self, act: Act, task: Task) -> None:
        match act:
            case Begin():
                assert self.state.operation is not None
                given = Given.of(self.state, self.state.operation, task.now)
                self.work = Work(given, self.activities.start(given))
            case Rest(until):
                self.timer = until
            case Continue():
                self._continue()
            case Leave(outcome):
                self.ended = outcome

    def _continue(self) -> None:
        """Continue as new: all that is carried over is the state, as JSON has it."""
        state = edit(self.state, runs=self.state.runs + 1)
        self.state = State.model_validate_json(state.model_dump_json(by_alias=True))
        if self.state != state:
            raise AssertionError("the state is not what it was once it was written and read back")
        self.began, self.log, self.full, self.step = self.state, [], False, None

    def replayed(self) -> State:
        """Return the memory made again from the log, with everything it took in as JSON has it."""
        assert self.began is not None
        state = self.began
        for task in self.log:
            inbox = tuple(Observed(_wire(one.observation)) if isinstance(one, Observed) else one for one in task.inbox)
            ended = _wire(task.ended) if isinstance(task.ended, Observation) else task.ended
            state = self._decided(state, Task(task.now, inbox, ended, task.full)).state
        return state

    def restored(self, memory: State) -> None:
        """Temporal is a copy from before: what has happened since is not remembered, though it was done."""
        self.state, self.began, self.log = memory, memory, []
        self.work = self.result = self.timer = self.step = None

    # --- the activity under way

    @property
    def interrupted(self) -> bool:
        operation = self.state.operation
        return operation is not None and operation.interrupted and self.work is not None

    def cancel_lands(self) -> None:
        """The activity learns that it is to break off, before its end."""
        if self.interrupted and self.result is None and self.work is not None:
            self.work.steps.close()
            self.result = OperationInterrupted()

    def request(self) -> Request | None:
        """Return what the activity is about to send, if it is under way."""
        if self.work is None or self.result is not None:
            return None
        if self.work.request is None:
            self._go_on()
        return self.work.request if self.work is not None and self.result is None else None

    def act(self) -> bool:
        """Let the activity send its next request and learn its answer; return whether it could."""
        if self.request() is None:
            return False
        self._go_on()
        return True

    def _go_on(self) -> None:
        assert self.work is not None
        try:
            self.work.request = next(self.work.steps)
        except StopIteration as end:
            self.result, self.result_at = end.value, self.cluster.now

    def worker_dies(self) -> Work | None:
        """The worker is gone: its activity is tried again from the beginning; return what it leaves under way."""
        work = self.work
        if work is None or self.result is not None:
            return None
        tries = work.tries + 1
        self.work = Work(work.given, self.activities.start(work.given, tries), tries=tries)
        return work


def _wire(observation: Observation) -> Observation:
    return Observation.model_validate_json(observation.model_dump_json(by_alias=True))


def _check_measures(spec: Workload, before: State, after: State, lived: Turn, now: datetime) -> None:
    """Whatever a life comes to, no span of its metrics is negative, and each restart counts as a failure."""
    found = list(measures(spec, before, after, lived.taken, now))
    assert all(one.span >= timedelta(0) for one in found if isinstance(one, Lasted))
    restarts = [one for one in found if isinstance(one, Counted) and one.labels.get("decision") in RESTARTS]
    assert bool(restarts) is (lived.state.restarts > before.restarts), found
