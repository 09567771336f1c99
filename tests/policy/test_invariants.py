"""The invariants of DESIGN.md, held by random lives: events, late results, interruptions and time in any order."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, precondition, rule

from holdfast.model import ConditionType, Interval, Observation, OperationKind, Phase, Reason, Stage, State
from holdfast.policy.advance import advance
from holdfast.policy.fold import Cancelled, Observed, Resumed, Retried, Suspended, fold
from holdfast.policy.report import conditions
from tests.policy.life import Life, workload

VIEWS: list[dict[str, Any]] = [
    {"pending": 2},
    {"running": 1, "pending": 1},
    {"running": 2},
    {"running": 1},
    {"running": 1, "failed": 1},
    {"failed": 2},
    {"failed": 1, "job_failed": True},
    {"running": 2, "found": False},
    {"succeeded": 2},
    {"succeeded": 2, "complete": True},
]
REMOVALS = {OperationKind.REMOVE, OperationKind.FORCE_REMOVE}


class Lives(RuleBasedStateMachine):
    """A workload whose cluster, people and clock do what they like."""

    snapshots: Bundle[Observation] = Bundle("snapshots")

    def __init__(self) -> None:
        super().__init__()
        hold = timedelta(minutes=3)
        self.life = Life(spec=workload(timings={"deletion_on_failure_grace_period": hold})).settle()
        self.checked = 0
        self.retries = 0

    @rule(view=st.sampled_from(VIEWS))
    def cluster_changes(self, view: dict[str, Any]) -> None:
        if self.alive():
            self.life.sees(**view)

    @rule(target=snapshots, view=st.sampled_from(VIEWS))
    def watch_falls_behind(self, view: dict[str, Any]) -> Observation:
        if self.life.state.attempt is None:
            return Observation(workload_uid="uid", attempt=0, owner_uid="", at=self.life.now)
        kept, self.life.view = self.life.view, view
        seen = self.life.look()
        self.life.view = kept
        return seen

    @rule(seen=consumes(snapshots))
    def late_snapshot_comes(self, seen: Observation) -> None:
        if self.life.ended is None:
            self.life.tell(Observed(seen))

    @rule(seconds=st.integers(0, 400))
    def time_passes(self, seconds: int) -> None:
        if self.life.ended is None:
            self.life.after(seconds=seconds)

    @rule(seconds=st.integers(1, 120))
    def blind(self, seconds: int) -> None:
        if self.alive() and self.life.view:
            begin = self.life.now
            self.life.now += timedelta(seconds=seconds)
            span = Interval(begin=begin, end=self.life.now)
            self.life.tell(Observed(self.life.look(blind=(span,))))

    @rule(event=st.sampled_from([Suspended(), Suspended(preempted=True), Resumed(), Retried()]))
    def people(self, event: Suspended | Resumed | Retried) -> None:
        if self.life.ended is None:
            if isinstance(event, Retried) and self.life.state.outcome is Phase.FAILED:
                self.retries += 1
            self.life.tell(event)

    @rule()
    def cancelled(self) -> None:
        if self.life.ended is None and len(self.life.ran) > 12:
            self.life.tell(Cancelled())

    @rule(kind=st.sampled_from(list(OperationKind)))
    def operation_becomes_slow(self, kind: OperationKind) -> None:
        self.life.hold.add(kind)

    @precondition(lambda self: self.life.hold)
    @rule()
    def operations_end(self) -> None:
        self.life.hold.clear()
        if self.life.state.operation is not None:
            self.life.finish()
        if self.life.ended is None:
            self.life.settle()

    @rule(stubborn=st.booleans())
    def deletion_is_ignored(self, stubborn: bool) -> None:
        self.life.stubborn = stubborn

    def alive(self) -> bool:
        attempt = self.life.state.attempt
        return self.life.ended is None and attempt is not None

    @invariant()
    def all_hold(self) -> None:
        states = self.life.states
        for before, after in zip(states[max(0, self.checked - 1) :], states[self.checked :], strict=False):
            self.check_step(before, after)
        for state in states[self.checked :]:
            self.check_state(state)
        self.checked = len(states)

    def check_state(self, state: State) -> None:
        spec = self.life.spec
        for budget in state.policy.budgets:
            assert state.used.get(budget.name, 0) <= budget.limit, "1: a budget is exceeded"
        held = {each.type: each.status for each in conditions(spec, state)}
        attempt = state.attempt
        gone = attempt is None or attempt.stage is Stage.GONE
        if not held[ConditionType.QUOTA_RESERVED]:
            assert gone or state.outcome is Phase.SUCCEEDED, "3: quota released while pods may live"
        if not held[ConditionType.RESOURCES_DEPLOYED]:
            assert gone or (attempt is not None and attempt.stage is Stage.PLANNED)
        if state.phase in {Phase.SUSPENDED, Phase.CANCELLED}:
            assert gone
        assert len(state.causes) <= 50
        assert len(state.model_dump_json()) < 256 * 1024

    def check_step(self, before: State, after: State) -> None:
        old, new = before.attempt, after.attempt
        if new is not None and (old is None or new.number != old.number):
            assert old is None or old.stage is Stage.GONE, "2: an attempt begins before the last is proven gone"
            assert new.number == (old.number if old else 0) + 1
            assert not after.intent.suspend
            assert not after.intent.cancel
        if old is not None and new is not None and old.number == new.number:
            order = list(Stage)
            # The last proof, which lets go of the anchor, may find what came too late to be found by the first.
            late = old.stage is Stage.GONE and before.operation is not None and before.operation.releases
            assert order.index(new.stage) >= order.index(old.stage) or late, "a stage went back"
        charged = sum(after.used.values()) - sum(before.used.values())
        if charged > 0:
            assert charged == 1, "1: charged twice at once"
            assert old is not None
            assert old.stage in {Stage.PLANNED, Stage.PREPARED, Stage.SUBMITTED}, "5: charged for our own deletion"
            assert new is not None
            assert new.stage is Stage.REMOVING
            if old.stage is Stage.SUBMITTED:
                assert before.looked_at is not None or before.unhealthy is not None, "4: charged without a look"
        if before.outcome is not None and after.outcome is None:
            assert after.reason is Reason.RETRY_REQUESTED or after.phase is Phase.RESUMING

    def teardown(self) -> None:
        # 7: from wherever it is, a cancelled workload comes to its end once things can be deleted.
        life = self.life
        life.hold.clear()
        life.stubborn = life.undying = False
        if life.state.operation is not None:
            life.finish()
        if life.ended is None:
            life.tell(Cancelled())
        assert life.ended is not None
        assert not life.state.anchored
        self.all_hold()


Lives.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestLives = Lives.TestCase


def test_the_same_history_always_gives_the_same_decisions():
    def live() -> list[State]:
        life = Life().runs()
        life.sees(running=1, failed=1).after(seconds=60).after(seconds=90).sees(running=2)
        life.tell(Suspended()).tell(Resumed()).sees(failed=1, job_failed=True).after(seconds=90).tell(Cancelled())
        return life.states

    assert live() == live()


def test_a_state_survives_being_written_and_read_back_at_any_point():
    life = Life().runs()
    life.sees(running=1, failed=1).after(seconds=60).after(seconds=90).sees(running=2).tell(Suspended())
    for state in life.states:
        read = State.model_validate_json(state.model_dump_json(by_alias=True))
        assert read == state
        assert advance(life.spec, read, life.now) == advance(life.spec, state, life.now)


def test_folding_a_signal_twice_does_no_more_than_once():
    life = Life().runs().tell(Cancelled())
    assert fold(life.state, Cancelled(), life.now).intent == life.state.intent
