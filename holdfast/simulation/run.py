"""The workload's loop on virtual time: it decides as the workflow does, because it runs the same code."""

from __future__ import annotations

from datetime import datetime, timedelta

from holdfast.model import Limits, Observation, Phase, Reason, Stage, Workload
from holdfast.policy.attempt.checkpoint import is_of_earlier
from holdfast.policy.loop.fold import fold
from holdfast.policy.loop.submission import submitted
from holdfast.policy.loop.turn import Begin, Continue, Leave, Rest, landed, turn
from holdfast.policy.values.edit import edit
from holdfast.policy.values.events import Event, Observed, OperationInterrupted
from holdfast.simulation.cluster.probing import Asking
from holdfast.simulation.cluster.views import observe
from holdfast.simulation.cluster.world import World
from holdfast.simulation.effects import happen
from holdfast.simulation.limits import left_out
from holdfast.simulation.operations import Activity, Ended
from holdfast.simulation.recorder import Recorder
from holdfast.simulation.requests import passed_over, wish
from holdfast.simulation.script.clock import START, Clock
from holdfast.simulation.script.events import Asked
from holdfast.simulation.script.read import UNTIL, Script, names_of
from holdfast.simulation.script.read import Event as Scripted
from holdfast.simulation.timeline import Simulation

ENTRIES_MAXIMUM = 5_000
WORK_MAXIMUM = 200_000_000
"""How much a simulation may do before it is broken off, in glances at a pod: some two minutes."""
WORK_PER_PAIR = 20
"""The same for each pod, beside each other one: to start n pods takes 4 n² glances."""
_STEP, _TASK, _SEEN = 200, 2_000, 20
"""The work of a step of the cluster, of a step of the workload, and of a pod in a snapshot."""


def simulate(
    spec: Workload, script: Script, *, until: timedelta | None = None, limits: Limits | None = None
) -> Simulation:
    """Return the course of a workload under the events of a script. Pure: the same input gives the same result.

    Args:
        spec: The workload, with the policy to evaluate.
        script: The events; `script.problems(spec)` tells whether it fits the workload.
        until: When to end at the latest; overrides `until` of the script.
        limits: The operator's limits, as a worker would report them.
    """
    return _Play(spec, script, script.until if until is None else until, limits or Limits()).play()


class _Play:
    """One simulation."""

    def __init__(self, spec: Workload, script: Script, until: timedelta | None, limits: Limits) -> None:
        self._spec = spec
        self._script = script
        self._asked_until = until
        self._end = START + (UNTIL if until is None else until)
        self._limits = limits
        self._clock = Clock()
        self._state = edit(submitted(spec, START), shows_waits=True)  # As every run does that begins now.
        self._recorder = Recorder(self._clock, self._state)
        self._world = World(spec, self._clock, script.pods, script.nodes, self._recorder.event)
        self._inbox: list[Event] = []
        self._asking = Asking(spec, self._world, self._inbox.append)
        self._activity: Activity | None = None
        self._result: Ended | None = None
        self._timer: datetime | None = None
        self._fresh = True
        self._seen: Observation | None = None
        self._marked: set[tuple[int, str]] = set()
        self._ended: Phase | None = None
        self._work, self._work_maximum = 0, max(WORK_MAXIMUM, WORK_PER_PAIR * spec.expected_pods**2)
        self._names = names_of(spec)

    def play(self) -> Simulation:
        """Run the simulation to its end."""
        for event in self._script.events:
            if event.attempt is None:
                self._schedule(event)
        while True:
            self._instant()
            self._recorder.at_rest()
            after = [each for each in (self._clock.next, self._timer) if each is not None]
            if self._ended is not None or self._full or not after or min(after) > self._end:
                break
            self._clock.now = max(self._clock.now, min(after))
        if self._asked_until is not None and self._ended is None and not self._full:
            self._clock.now = self._end
        return Simulation(
            workload=self._spec.name,
            profile=self._spec.policy.profile,
            entries=tuple(self._recorder.entries),
            causes=tuple(self._recorder.causes),
            truncated=self._full,
            left_out=left_out(self._spec),
            summary=self._recorder.summary(finished=self._ended is not None),
        )

    @property
    def _full(self) -> bool:
        """Whether too much has happened to go on."""
        return len(self._recorder.entries) >= ENTRIES_MAXIMUM or self._work >= self._work_maximum

    def _instant(self) -> None:
        """Do everything that is due at this time; that may be without end where nothing takes time."""
        while not self._full:
            self._work += _TASK + _SEEN * len(self._world.blind)
            while not self._full and (action := self._clock.take()) is not None:
                action()
                self._work += _STEP + self._world.size
            self._carry_on()
            if self._result is None:
                self._watch()
            if self._due():
                self._task()
            elif self._clock.next is None or self._clock.next > self._clock.now:
                return

    # --- the script

    def _schedule(self, event: Scripted) -> None:
        if event.every is not None:
            self._clock.repeat(event.every, event.times or 0, lambda: self._happens(event))
        elif event.at is not None and self._clock.now + event.at <= self._end:
            self._clock.after(event.at, lambda: self._happens(event))

    def _happens(self, event: Scripted) -> None:
        name, what = event.what
        if not isinstance(what, Asked):
            # Its effects follow it in the timeline.
            self._recorder.event(happen(self._world, what, self._named))
            return
        try:
            self._state, wished = wish(self._spec, self._state, name, what)
        except ValueError as error:
            self._recorder.event(f"{name} is refused: {error}")
            return
        late = passed_over(self._state, wished)
        if late:
            self._recorder.event(late)
        self._inbox.append(wished)

    def _named(self, component: str | None) -> str | None:
        return self._names[component] if component is not None else None

    def _mark(self) -> None:
        """Schedule the events whose mark the attempt has reached: it is created, its pods run, or it is gone."""
        attempt = self._state.attempt
        if attempt is None:
            return
        marks = {"created": attempt.begun_at, "running": attempt.ready_at, "gone": attempt.gone_at}
        for since in [name for name, reached in marks.items() if reached is not None]:
            if (attempt.number, since) in self._marked:
                continue
            self._marked.add((attempt.number, since))
            for event in self._script.events:
                if event.attempt in {attempt.number, "each"} and (event.since or "running") == since:
                    self._schedule(event)

    # --- the workload's loop

    def _due(self) -> bool:
        if self._ended is not None:
            return False
        woken = self._timer is not None and self._clock.now >= self._timer
        return self._fresh or bool(self._inbox) or self._result is not None or woken

    def _task(self) -> None:
        """Fold in pending events, decide, and begin what was decided, as the workflow's loop does."""
        now, before, self._fresh = self._clock.now, self._state, False
        state = before
        inbox = [*self._inbox]
        self._inbox.clear()
        for event in inbox:
            state = fold(state, event, now)
        result, self._result = self._result, None
        if result is not None and state.operation is not None:
            self._activity = None
            state = landed(state, OperationInterrupted() if is_of_earlier(state, result) else result, now)
        lived = turn(self._spec, state, now, full=False)
        state, self._timer = lived.state, None
        match lived.act:
            case Begin():
                assert state.operation is not None
                self._activity = Activity(self._spec, state, state.operation, self._world, self._limits)
            case Rest(until):
                self._timer = until
            case Leave(outcome):
                self._ended = outcome
            case Continue():
                raise AssertionError("no history is kept, so none is full")
        self._state = state
        self._recorder.task(before, state, lived.step)
        self._asking.follow(state)
        self._mark()

    def _carry_on(self) -> None:
        """Let the running operation do what it can now."""
        operation = self._state.operation
        if self._activity is not None and self._result is None and operation is not None:
            self._result = self._activity.go_on(interrupted=operation.interrupted)

    def _watch(self) -> None:
        """Report changes to the workload, as the watch does: only for a submitted attempt that is not being removed."""
        attempt = self._state.attempt
        if not self._world.changed or self._world.dark or attempt is None or attempt.stage is not Stage.SUBMITTED:
            return
        self._world.changed = False
        owner = self._world.owners.get(attempt.number)
        if owner is None or owner.deleting is not None:
            return
        self._work += _SEEN * self._world.size
        seen = observe(self._world, attempt.number, live=False)
        if self._seen is None or meaning(seen) != meaning(self._seen):
            self._seen = seen
            self._inbox.append(Observed(seen))


def meaning(seen: Observation) -> Observation:
    """Return the content of a snapshot, without the time at which it was taken."""
    failures = tuple(
        edit(one, time=START) if one.reason == Reason.MISSING_COMPONENT else one for one in seen.failures
    )  # fmt: skip
    return edit(seen, at=START, revision=0, blind=(), failures=failures)
