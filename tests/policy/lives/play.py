"""A script's stage: one workload, its workflow, its cluster, the people about it, and the oracle that watches them all.

Each public method is one thing that may happen at any time; a random script is a sequence of them.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

from holdfast.model import OperationKind, Phase, Stage, State, Workload
from holdfast.policy.attempt.checkpoint import check_ask
from holdfast.policy.loop.change import PolicyChange, changed
from holdfast.policy.values.events import (
    Cancelled,
    CheckpointAsked,
    Event,
    Observed,
    PolicyChanged,
    Resumed,
    Retried,
    StripAsked,
    Suspended,
)
from holdfast.policy.verdicts.strip import check_strip
from tests.fakes.ledger import Cluster, Hand, Kind, Thing, Unreachable
from tests.policy.laws.laws import Law, Violation, require
from tests.policy.laws.oracle import Oracle
from tests.policy.lives.carried import Activities
from tests.policy.lives.flow import Flow, Work
from tests.policy.lives.life import START
from tests.policy.lives.submitted import SPEC
from tests.policy.lives.weather import Weather

MAIL = 8
"""Snapshots that may lie about until they arrive late."""
TASKS = 200
"""More workflow tasks at one moment mean that the engine runs in a circle."""


class Play:
    """One script's stage."""

    def __init__(self, spec: Workload = SPEC, activities: type[Activities] = Activities) -> None:
        self.cluster = Cluster()
        self.weather = Weather(self.cluster, spec)
        self.oracle = Oracle(spec, self.cluster)
        self.flow = Flow(
            spec,
            self.cluster,
            activities(self.cluster, self.weather),
            State(since=START, policy=spec.policy, resets_at_once=True, shows_waits=True),
        )
        self.worker_up = True
        self.zombies: list[Work] = []
        """What workers whose place another has taken have still under way."""
        self.tasks()

    # --- the workflow

    def tasks(self) -> None:
        """Do all workflow tasks that are due."""
        for _ in range(TASKS):
            if not (self.worker_up and self.flow.due):
                return
            before = self.flow.wake()
            self.oracle.task_done(before, self.flow)
        raise Violation(Law.REST, f"{TASKS} workflow tasks, and no end: {self.flow.state.phase}, {self.flow.step}")

    def acts(self, requests: int) -> None:
        """A worker carries the operation under way on, by some requests."""
        for _ in range(requests):
            self.tasks()
            self.oracle.tries = self.flow.work.tries if self.flow.work is not None else 1
            if not (self.worker_up and self.flow.act()):
                break
        self.tasks()

    def told_to_break_off(self) -> None:
        self.flow.cancel_lands()
        self.tasks()

    def history_is_full(self) -> None:
        self.flow.full = self.flow.ended is None
        self.flow.step = None
        self.tasks()

    def replay(self) -> None:
        """Throw the workflow's memory away and make it again."""
        again = self.flow.replayed()
        require(again == self.flow.state, Law.REPLAY, f"{again} is not {self.flow.state}")
        self.flow.state = again

    # --- workers

    def worker_dies(self, *, last_request: bool, stays: bool) -> None:
        """The worker is killed; what it was about to send may still arrive, or it lives on where nobody hears it."""
        request = self.flow.request()
        left = self.flow.worker_dies()
        if left is not None and request is not None and last_request:
            if not stays:
                left.steps.close()
            self.zombies.append(left)
        self.worker_up = False

    def worker_comes(self) -> None:
        self.worker_up = True
        self.tasks()

    def late_request_lands(self, index: int = 0) -> None:
        """A request of a worker whose place another has taken arrives."""
        if not self.zombies:
            return
        left = self.zombies.pop(index % len(self.zombies))
        attempt = self.flow.state.attempt
        if left.given.kind is OperationKind.PREPARE and attempt is not None and attempt.stage is Stage.GONE:
            return  # An owner that comes so late is taken for a restored one, and waits for a person.
        kept, self.cluster.hand = self.cluster.hand, Hand.LATE
        try:
            if left.steps.gi_frame is None:  # type: ignore[attr-defined]
                if left.request is not None:
                    left.request()
                return
            left.request = next(left.steps)
            self.zombies.append(left)
        except (StopIteration, Unreachable, LookupError, RuntimeError):
            return
        except Exception as refusal:
            if type(refusal).__module__ != Cluster.__module__:
                raise
        finally:
            self.cluster.hand = kept

    # --- the cluster

    def cluster_goes_on(self) -> None:
        """Collector, controllers and nodes do what there is to do, once."""
        self.weather.collector_learns()
        self.weather.collector_acts()
        self.weather.controllers_act()
        self.weather.nodes_act()
        for pod in self.weather.running():
            if pod.asked and not pod.saved and not pod.stubborn:
                pod.saved = f"place-{pod.attempt}-{pod.asked}"

    def pod(self, index: int) -> Thing | None:
        running = self.weather.running()
        return running[index % len(running)] if running else None

    def pod_ends(self, index: int, exit_code: int) -> None:
        pod = self.pod(index)
        if pod is not None:
            self.weather.ends(pod, exit_code)

    def all_pods_succeed(self) -> None:
        for pod in self.weather.running():
            self.weather.ends(pod, 0)

    def anything(self, index: int, *kinds: Kind) -> Thing | None:
        there = [one for one in self.cluster.alive.values() if one.kind in kinds]
        return there[index % len(there)] if there else None

    def person_deletes(self, kind: Kind, index: int) -> None:
        thing = self.anything(index, kind)
        operation = self.flow.state.operation
        if kind is Kind.COMPONENT and operation is not None and operation.kind is OperationKind.CREATE:
            return  # Nobody deletes what is still being made.
        if thing is not None and thing.deleting is None:
            self.weather.person_deletes(thing)

    def person_holds(self, index: int) -> None:
        thing = self.anything(index, Kind.POD, Kind.COMPONENT, Kind.OWNER)
        if thing is not None:
            self.weather.person_holds(thing)

    def pod_answers(self, index: int, what: str) -> None:
        """A pod that was asked to save its state answers something of its own."""
        pod = self.pod(index)
        if pod is not None and pod.asked:
            pod.saved = what

    def pod_becomes_stubborn(self, index: int) -> None:
        pod = self.pod(index)
        if pod is not None:
            pod.stubborn = True

    # --- what is seen

    def watch_tells(self) -> None:
        self.weather.watch_tells()

    def mail_arrives(self, index: int, *, twice: bool = False) -> None:
        """A snapshot arrives, not always the first; perhaps it will once more."""
        if not self.weather.mail or self.flow.ended is not None:
            return
        at = index % len(self.weather.mail)
        seen = self.weather.mail[at] if twice else self.weather.mail.pop(at)
        self.flow.inbox.append(Observed(seen))
        self.tasks()

    def mail_is_lost(self, index: int) -> None:
        if self.weather.mail:
            self.weather.mail.pop(index % len(self.weather.mail))

    # --- people

    def signal(self, event: Event) -> None:
        if self.flow.ended is None:
            self.flow.inbox.append(event)
            self.tasks()

    def suspend(self, *, preempted: bool = False) -> None:
        self.signal(Suspended(preempted=preempted))

    def checkpoint(self) -> None:
        """A person wants its state saved, if the workflow's validator lets them."""
        with suppress(ValueError):
            check_ask(self.flow.spec, self.flow.state)
            self.signal(CheckpointAsked())

    def resume(self) -> None:
        self.signal(Resumed())

    def retry(self) -> None:
        self.signal(Retried())

    def cancel(self) -> None:
        self.signal(Cancelled())

    def strip(self) -> bool:
        """A person asks for finalizers to be taken off; return whether the workflow's validator lets them."""
        try:
            check_strip(self.flow.state)
        except ValueError:
            return False
        self.signal(StripAsked())
        return True

    def policy_changes(self, limit: int, grace: int) -> None:
        name = self.flow.state.policy.budgets[0].name
        change = PolicyChange(timings={"failureGracePeriod": f"{grace}s"}, budgets={name: limit})
        self.signal(PolicyChanged(changed(self.flow.state.policy, change)))

    # --- time

    def jumps(self, seconds: float) -> None:
        """Time passes in which nothing is done."""
        self.cluster.pass_time(timedelta(seconds=seconds))
        self.tasks()

    def goes_on(self, seconds: float, *, watched: bool = True) -> None:
        """Time passes as on an ordinary day: everybody does what is to be done, deadline by deadline."""
        end = self.cluster.now + timedelta(seconds=seconds)
        while self.cluster.now < end and self.flow.ended is None:
            self.cluster_goes_on()
            self.acts(12)
            if watched:
                self.watch_tells()
                self.mail_arrives(-1)
                del self.weather.mail[:-MAIL]
            timer = self.flow.timer
            step = timedelta(seconds=5 if self.flow.work is not None else 20)
            if timer is not None and self.cluster.now < timer:
                step = min(step, timer - self.cluster.now)
            self.cluster.pass_time(min(step, max(end - self.cluster.now, timedelta(milliseconds=1))))
            self.tasks()

    # --- the end

    def ends_well(self) -> None:
        """All that was wrong is put right; the workload must come to rest where it belongs, and then be removed."""
        self.weather.heals()
        for _ in range(10 * len(self.zombies)):
            self.late_request_lands()
        self.zombies.clear()
        self.worker_comes()
        self.weather.replaces = True
        self.goes_on(700)
        self.replay()
        self._at_rest()
        self.cancel()
        self.goes_on(400)
        require(self.flow.ended is not None, Law.REST, f"it was cancelled, and is {self.flow.state.phase}")
        self.weather.settles()
        left = [str(one) for one in self.cluster.alive.values() if one.kind in {Kind.POD, Kind.COMPONENT}]
        require(not left, Law.PROGRESS, f"it has ended as {self.flow.ended}, and {left} is left")
        require(not self.oracle.there(), Law.PROGRESS, f"{self.oracle.there()} is left")
        if self.flow.ended is Phase.CANCELLED:
            require(not self.cluster.of(Kind.ANCHOR), Law.PROGRESS, "its anchor is left")

    def _at_rest(self) -> None:
        state = self.flow.state
        if self.flow.ended is not None:
            require(state.phase.ended, Law.REST, f"it has ended as {state.phase}")
            return
        require(not state.intent.cancel, Law.REST, f"it was cancelled, and is {state.phase}: {self.flow.step}")
        require(state.phase in {Phase.RUNNING, Phase.SUSPENDED}, Law.REST, f"it stays {state.phase}: {self.flow.step}")
        require((state.phase is Phase.SUSPENDED) == state.intent.suspend, Law.REST, f"{state.phase}: {state.intent}")
        if state.phase is Phase.RUNNING:
            lacking = self.weather.lacking(state.attempt.number if state.attempt else 0)
            later = self.oracle.later(state.attempt.number if state.attempt else 0)
            require(later.issuperset(lacking), Law.REST, f"Running, and lacks pods of {lacking}")
        else:
            awake = [one for one in self.oracle.there() if not (one.finished or one.verdict or one.asleep)]
            parked = state.attempt is not None and state.attempt.suspended
            awake = [one for one in awake if not (parked and one.kind is Kind.OWNER)]
            require(not awake, Law.REST, f"Suspended, with {[str(one) for one in awake]}")
