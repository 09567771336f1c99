"""The invariants of the design, held by random lives: a cluster, people, workers and a clock that do what they like.

`HYPOTHESIS_PROFILE=long` takes many more and longer lives; `HYPOTHESIS_PROFILE=quick` a handful.
"""

from __future__ import annotations

import os
import sys
from random import Random

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from holdfast.model import State, Workload
from holdfast.policy.loop.fold import fold
from holdfast.policy.values.events import Cancelled, Resumed, Suspended
from tests.fakes.ledger import REFUSES, Kind
from tests.policy.lives.advanced import advance
from tests.policy.lives.life import Life
from tests.policy.lives.play import Play
from tests.policy.lives.script import step
from tests.policy.lives.submitted import (
    COPIES,
    COPIES_STREAMS,
    KEPT,
    ORDERED,
    ORDERED_STREAMS,
    PARKED,
    PARKED_ORDERED,
    PARKED_STREAMS,
    READING,
    READING_STREAMS,
    SAVING,
    SAVING_BOUNDED,
    SAVING_PARKED,
    SAVING_STREAMS,
    SPEC,
    STREAMS,
)
from tests.policy.lives.weather import NODES

LIVES, STEPS = {"quick": (20, 20), "long": (20_000, 60)}.get(os.environ.get("HYPOTHESIS_PROFILE", ""), (300, 25))
INDEX = st.integers(0, 5)
SECONDS = st.sampled_from((1, 10, 31, 61, 95, 200))
SPECS = (
    *(SPEC, STREAMS, COPIES, COPIES_STREAMS, KEPT, ORDERED, ORDERED_STREAMS),
    *(PARKED, PARKED_ORDERED, PARKED_STREAMS),
    *(READING, READING_STREAMS),
    *(SAVING, SAVING_BOUNDED, SAVING_PARKED, SAVING_STREAMS),
)
KINDS = st.sampled_from((Kind.POD, Kind.COMPONENT, Kind.OWNER, Kind.ANCHOR))


class Lives(RuleBasedStateMachine):
    """One workload's life; the oracle judges each of its steps, and its end."""

    def __init__(self) -> None:
        super().__init__()
        self.play = Play()

    @initialize(spec=st.sampled_from(SPECS))
    def submitted(self, spec: Workload) -> None:
        self.play = Play(spec)

    # --- every day

    @rule(requests=st.integers(1, 10))
    def a_worker_goes_on(self, requests: int) -> None:
        self.play.acts(requests)

    @rule()
    def the_cluster_goes_on(self) -> None:
        self.play.cluster_goes_on()

    @rule(seconds=SECONDS, watched=st.booleans())
    def time_goes_on(self, seconds: int, watched: bool) -> None:
        self.play.goes_on(seconds, watched=watched)

    @rule(seconds=SECONDS)
    def time_jumps(self, seconds: int) -> None:
        self.play.jumps(seconds)

    @rule(seed=st.integers(0, 2**32), moves=st.integers(5, 40))
    def anything_happens(self, seed: int, moves: int) -> None:
        random = Random(seed)
        for _ in range(moves):
            if self.play.flow.ended is None:
                step(self.play, random)

    @rule(index=INDEX, what=st.sampled_from(("", "elsewhere", REFUSES)))
    def a_pod_answers(self, index: int, what: str) -> None:
        self.play.pod_answers(index, what)

    @rule()
    def a_person_wants_it_saved(self) -> None:
        self.play.checkpoint()

    # --- what is seen

    @rule()
    def the_watch_tells(self) -> None:
        self.play.watch_tells()

    @precondition(lambda self: self.play.weather.mail)
    @rule(index=INDEX, twice=st.booleans())
    def a_snapshot_arrives(self, index: int, twice: bool) -> None:
        self.play.mail_arrives(index, twice=twice)

    @precondition(lambda self: self.play.weather.mail)
    @rule(index=INDEX)
    def a_snapshot_is_lost(self, index: int) -> None:
        self.play.mail_is_lost(index)

    @rule(down=st.booleans())
    def it_grows_dark(self, down: bool) -> None:
        self.play.cluster.go_dark(down=down)

    @precondition(lambda self: self.play.cluster.dark_since is not None)
    @rule()
    def it_grows_light(self) -> None:
        self.play.cluster.get_light()

    # --- what goes wrong in the cluster

    @rule(index=INDEX, code=st.sampled_from((0, 1, 137)))
    def a_pod_ends(self, index: int, code: int) -> None:
        self.play.pod_ends(index, code)

    @rule()
    def all_pods_succeed(self) -> None:
        self.play.all_pods_succeed()

    @rule(replaces=st.booleans(), lagging=st.booleans())
    def controllers_act(self, replaces: bool, lagging: bool) -> None:
        self.play.weather.replaces = replaces
        self.play.weather.controllers_act(lagging=lagging)

    @rule()
    def the_collector_acts_by_what_it_knows(self) -> None:
        self.play.weather.collector_acts()

    @rule(node=st.integers(0, NODES - 1), evicted=st.booleans())
    def a_node_dies(self, node: int, evicted: bool) -> None:
        self.play.weather.node_dies(node)
        if evicted:
            self.play.weather.node_controller_acts()

    @rule()
    def nodes_come_back(self) -> None:
        self.play.weather.dead_nodes.clear()

    @rule(refusing=st.booleans())
    def a_quota_refuses(self, refusing: bool) -> None:
        self.play.cluster.refusing = refusing

    @rule(kind=KINDS, index=INDEX)
    def somebody_deletes(self, kind: Kind, index: int) -> None:
        self.play.person_deletes(kind, index)

    @rule(index=INDEX, stubborn=st.booleans())
    def something_will_not_go(self, index: int, stubborn: bool) -> None:
        if stubborn:
            self.play.pod_becomes_stubborn(index)
        else:
            self.play.person_holds(index)

    @rule()
    def everything_lets_go(self) -> None:
        self.play.weather.lift()

    # --- what goes wrong with workers

    @precondition(lambda self: self.play.worker_up)
    @rule(last_request=st.booleans(), stays=st.booleans())
    def the_worker_dies(self, last_request: bool, stays: bool) -> None:
        self.play.worker_dies(last_request=last_request, stays=stays)

    @precondition(lambda self: not self.play.worker_up)
    @rule()
    def another_worker_comes(self) -> None:
        self.play.worker_comes()

    @precondition(lambda self: self.play.zombies)
    @rule(index=INDEX)
    def a_late_request_lands(self, index: int) -> None:
        self.play.late_request_lands(index)

    @precondition(lambda self: self.play.flow.interrupted)
    @rule()
    def an_operation_is_broken_off(self) -> None:
        self.play.told_to_break_off()

    @rule(full=st.booleans())
    def the_memory_is_made_again(self, full: bool) -> None:
        if full:
            self.play.history_is_full()
        self.play.replay()

    # --- people

    @rule(preempted=st.booleans())
    def suspended(self, preempted: bool) -> None:
        self.play.suspend(preempted=preempted)

    @rule()
    def resumed(self) -> None:
        self.play.resume()

    @rule()
    def retried(self) -> None:
        self.play.retry()

    @rule()
    def finalizers_may_be_stripped(self) -> None:
        self.play.strip()

    @precondition(lambda self: self.play.flow.advances > 40)
    @rule()
    def cancelled(self) -> None:
        self.play.cancel()

    @rule(limit=st.integers(0, 4), grace=st.sampled_from((0, 5, 30, 60)))
    def the_policy_changes(self, limit: int, grace: int) -> None:
        if self.play.flow.ended is None:
            self.play.policy_changes(limit, grace)

    def teardown(self) -> None:
        # What has gone wrong already is what is to be told.
        if sys.exc_info()[0] is None:
            self.play.ends_well()


Lives.TestCase.settings = settings(
    max_examples=LIVES,
    stateful_step_count=STEPS,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
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
