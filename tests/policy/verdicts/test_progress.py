"""Whether a workload makes progress: what its steps teach, and when it has stalled (rows P1, P2)."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model import ActionKind, FailureClass, Match, Policy, Progress, Rule, Scope
from holdfast.model.life.progress import PodStep, Step, StepRecord
from holdfast.model.spec.policy import Action
from holdfast.policy.failures.rules import rule_on
from holdfast.policy.values.edit import edit
from holdfast.policy.verdicts.progress import (
    ENOUGH,
    KEPT,
    bound_of,
    is_news,
    read,
    stall,
    stalled,
    standing,
)
from holdfast.profiles import PROFILES
from tests.policy.lives.life import START

ROW = pytest.mark.row
RULES = Progress()
PERIOD = RULES.period.total_seconds()


class Reader:
    """A worker that reads pods on virtual time."""

    def __init__(self, rules: Progress = RULES) -> None:
        self.rules = rules
        self.seconds = 0.0
        self.record: StepRecord | None = None

    def sees(self, *steps: int | None, after: float = PERIOD, attempt: int = 1, pods: str = "a", **word: Any) -> Reader:
        """Read pods, one for each step, so many seconds after the last reading."""
        self.seconds += after
        told = [
            PodStep(uid=f"{pods}-{index}", name=f"train-{index}", node=f"node-{index}", told=Step(step=step, **word))
            for index, step in enumerate(steps)
        ]
        now = START + timedelta(seconds=self.seconds)
        self.record = read(self.record, attempt, told, self.rules, now)
        return self

    def learned(self, seconds: float = PERIOD, count: int = ENOUGH + 2) -> Reader:
        """Let it make so many steps of so many seconds; each reading is a period after the last one."""
        for number in range(count):
            for _ in range(int(seconds / PERIOD) - 1):
                self.sees(number - 1 if number else 0)
            self.sees(number)
        return self

    def waits(self, seconds: float, *steps: int | None, **word: Any) -> Reader:
        """Let the pods stand still for so long, in sight."""
        steps = steps or (self.known.step,)
        for _ in range(int(seconds / PERIOD)):
            self.sees(*steps, **word)
        return self

    @property
    def known(self) -> StepRecord:
        assert self.record is not None
        return self.record

    @property
    def failed(self) -> bool:
        return stalled(self.known, self.rules) is not None


@ROW("P2", level="pure")
def test_P2_a_stall_is_a_failure_once_the_learned_bound_is_over_and_says_so():
    one = Reader().learned(30, 40)
    assert bound_of(one.known, RULES).sentence() == "bound 6m (12 × median 30s)"
    assert not one.waits(360).failed
    assert one.waits(PERIOD).failed
    failure = stalled(one.known, RULES)
    assert failure is not None
    assert (failure.cls, failure.scope, failure.attempt) == (FailureClass.NO_PROGRESS, Scope.WORKLOAD, 1)
    assert failure.message == "step 39, no new step for 6m15s; bound 6m (12 × median 30s)"
    assert failure.time == START + timedelta(seconds=one.seconds - 375), "it counts from the last step"


@ROW("P2", level="pure")
def test_P2_a_declared_bound_is_not_learned():
    one = Reader(Progress(bound=timedelta(minutes=2))).sees(0).sees(1).sees(2)
    assert bound_of(one.known, one.rules).sentence() == "bound 2m (as declared)"
    assert not one.waits(120).failed
    assert one.waits(PERIOD).failed


@ROW("P2", level="pure")
def test_P2_a_learned_bound_is_never_below_the_minimum():
    one = Reader().learned()
    assert bound_of(one.known, RULES).span == timedelta(minutes=3)
    assert bound_of(edit(one.known, samples=(0.01,) * ENOUGH), RULES).span == timedelta(minutes=3)


@ROW("P2", level="pure")
def test_P2_a_step_that_was_long_once_stretches_the_bound_up_to_100_medians():
    one = Reader().learned(30, 40).waits(300)
    one.sees(40)
    assert bound_of(one.known, RULES).sentence() == "bound 15m45s (3 × longest 5m15s)"
    assert bound_of(edit(one.known, longest=1e6), RULES).span == timedelta(seconds=3000)


@ROW("P2", level="pure")
def test_P2_before_enough_steps_and_before_new_pods_step_twice_the_first_bound_holds():
    one = Reader().sees(None)
    assert "first steps" in bound_of(one.known, RULES).source
    assert not one.waits(1800, None).failed
    assert one.waits(PERIOD, None).failed
    assert standing(one.known) == "no step yet for 30m15s"
    few = Reader().learned(count=5)
    assert bound_of(few.known, RULES).span == timedelta(minutes=30)
    # Pods of the next attempt, or that were made again: the first step compiles, and is not learned from.
    again = Reader().learned().sees(20, pods="b")
    assert bound_of(again.known, RULES).span == timedelta(minutes=30)
    again.sees(20, after=PERIOD, pods="b").sees(21, pods="b")
    assert bound_of(again.known, RULES).span == timedelta(minutes=3)
    assert max(again.known.samples) == PERIOD


@ROW("P2", level="pure")
def test_P2_a_declared_phase_has_its_own_bound_and_teaches_nothing():
    one = Reader().learned()
    one.waits(600, phase="saving", bound=900)
    assert not one.failed
    assert bound_of(one.known, RULES).sentence() == "bound 15m (phase saving)"
    one.waits(330, phase="saving", bound=900)
    failure = stalled(one.known, RULES)
    assert failure is not None
    assert "in phase saving for 15m" in failure.message
    ended = Reader().learned().waits(600, phase="saving", bound=900)
    before = ended.known.samples
    ended.sees(ended.known.step).sees((ended.known.step or 0) + 1)
    assert ended.known.samples == before, "the step began in the phase"
    assert bound_of(Reader().learned().sees(33, phase="evaluating").known, RULES).span == timedelta(hours=1)


@ROW("P2", level="pure")
@pytest.mark.parametrize("way", ["worker", "nothing"])
def test_P2_blindness_pauses_the_clock_and_teaches_nothing(way: str):
    one = Reader().learned()
    samples = one.known.samples
    one.waits(150)
    if way == "worker":
        one.sees(33, after=7200)
    else:
        for _ in range(400):
            one.sees()
        one.sees(33)
    assert not one.failed, "what nobody saw does not count"
    assert one.sees(34).known.samples == samples
    assert one.waits(195).failed


@ROW("P2", level="pure")
@pytest.mark.parametrize("phase", ["", "saving"])
def test_P2_a_program_that_hangs_and_answers_no_more_has_not_begun_again(phase: str):
    one = Reader().learned()
    word = {"phase": phase, "bound": 180.0} if phase else {}
    one.sees(33, **word)
    for _ in range(13):
        one.seconds += PERIOD
        silent = [PodStep(uid="a-0", name="train-0")]
        one.record = read(one.record, 1, silent, RULES, START + timedelta(seconds=one.seconds))
    failure = stalled(one.known, RULES)
    assert failure is not None
    assert failure.message.startswith("step 33, ")


def two_pods(one: Reader, a: Step | None, b: Step | None) -> Reader:
    """Read two pods a period later; None: this one does not answer."""
    one.seconds += PERIOD
    pods = [PodStep(uid=f"a-{index}", name=f"train-{index}", told=told) for index, told in enumerate((a, b))]
    one.record = read(one.record, 1, pods, one.rules, START + timedelta(seconds=one.seconds))
    return one


@ROW("P2", level="pure")
@pytest.mark.parametrize("answers", [0, 2], ids=["never again", "every other time"])
def test_P2_the_pod_that_leads_hides_no_stall_if_it_does_not_answer(answers: int):
    one = Reader(Progress(bound=timedelta(minutes=3)))
    for number in range(41):
        one.sees(number, number)
    one.sees(41, 40)
    for index in range(13):
        assert not one.failed
        two_pods(one, Step(step=41) if answers and index % answers else None, Step(step=40))
    assert one.failed
    assert standing(one.known) == "step 41, no new step for 3m15s"
    assert two_pods(one, None, Step(step=41)).failed, "the other one has only caught up"
    assert not two_pods(one, None, Step(step=42)).failed
    assert bound_of(two_pods(one, None, Step(step=30)).known, one.rules).span == RULES.first_step, "it began again"


@ROW("P2", level="pure")
def test_P2_a_pod_that_led_and_tells_a_lower_step_has_begun_again_whether_others_answer_or_not():
    one = Reader(Progress(bound=timedelta(minutes=3))).sees(40, 40).sees(41, 40)
    two_pods(one, Step(step=30), None)
    assert (one.known.step, bound_of(one.known, one.rules).span) == (30, RULES.first_step)


@ROW("P2", level="pure")
def test_P2_the_pod_that_is_in_a_phase_hides_no_stall_if_it_answers_every_other_time():
    one = Reader().learned().sees(33, 33)
    saving = Step(step=33, phase="saving", bound=180.0)
    two_pods(one, saving, Step(step=33))
    for index in range(13):
        assert not one.failed
        two_pods(one, saving if index % 2 else None, Step(step=33))
    failure = stalled(one.known, RULES)
    assert failure is not None
    assert failure.message == "step 33, in phase saving for 3m15s; bound 3m (phase saving)"
    assert two_pods(one, None, Step(step=34)).known.phase == "", "a new step ends it"
    two_pods(one, saving, Step(step=34))
    assert two_pods(one, Step(step=34), None).known.phase == "", "it says so itself"


@ROW("P2", level="pure")
def test_P2_the_one_pod_that_is_behind_is_named():
    one = Reader().sees(4, 4, 4).sees(5, 5, 4)
    assert (one.known.behind, one.known.behind_node, one.known.step) == ("train-2", "node-2", 5)
    assert one.sees(5, 4, 4).known.behind == ""
    assert one.sees(5).known.behind == ""


@ROW("P2", level="pure")
def test_P2_another_attempt_keeps_what_was_learned_and_nothing_else():
    one = Reader().learned().sees(3, attempt=2, pods="c")
    assert (one.known.attempt, one.known.step, len(one.known.samples)) == (2, 3, ENOUGH)
    assert one.known.quiet == 0.0


@ROW("P2", level="pure")
def test_P2_a_program_that_begins_again_in_its_pod_gets_the_bound_of_the_first_step():
    one = Reader().learned()
    assert bound_of(one.known, RULES).span == timedelta(minutes=3)
    samples = one.known.samples
    for _ in range(20):
        one.seconds += PERIOD
        again = [PodStep(uid="a-0", name="train-0", told=None, restarts=1)]
        one.record = read(one.record, 1, again, RULES, START + timedelta(seconds=one.seconds))
    assert (one.failed, bound_of(one.known, RULES).span) == (False, RULES.first_step), "it may compile for five minutes"
    assert one.known.samples == samples


@ROW("P2", level="pure")
@ROW("T3", level="pure")
def test_P2_the_programs_of_a_gangs_next_round_get_the_bound_of_the_first_step_in_the_pods_that_stay():
    one = two_pods(Reader().learned(), Step(step=34), Step(step=34))
    two_pods(two_pods(one, Step(step=35), Step(step=35)), Step(step=36), Step(step=36))
    assert bound_of(one.known, RULES).span == RULES.minimum
    samples = one.known.samples
    two_pods(one, Step(), Step(step=36))
    for _ in range(20):
        two_pods(one, Step(), Step())
        assert not one.failed
    assert standing(one.known).startswith("no step yet for 4m45s")
    assert bound_of(one.known, RULES).span == RULES.first_step
    assert two_pods(one, Step(step=30), Step(step=30)).known.samples == samples
    two_pods(one, Step(step=31), Step(step=31))
    assert bound_of(one.known, RULES).span == RULES.minimum


@ROW("P2", level="pure")
@ROW("T6", level="pure")
def test_P2_a_step_of_the_round_before_takes_no_bound_of_the_first_step_from_the_next_one():
    one = two_pods(Reader().learned(), Step(step=34), None)
    two_pods(one, Step(step=35), None)
    assert bound_of(one.known, RULES).span == RULES.minimum, "another step has come since the newcomer"
    for _ in range(20):
        two_pods(one, Step(), Step())
        assert not one.failed


@ROW("P2", level="pure")
def test_P2_a_phase_that_is_told_without_the_step_is_no_new_beginning():
    one = Reader().learned()
    one.waits(60, None, phase="saving", bound=300).sees(34).sees(35)
    assert bound_of(one.known, RULES).span == RULES.minimum


@ROW("P1", level="pure")
def test_P1_new_steps_alone_are_told_every_five_minutes_and_a_slow_step_at_once():
    one = Reader().sees(0)
    told_at = START + timedelta(seconds=one.seconds)
    assert is_news(None, told_at, one.known, RULES), "the first"
    told = one.known
    news: list[float] = []
    for number in range(1, 401):  # An hour and forty minutes.
        one.sees(number * 1000)
        if is_news(told, told_at, one.known, RULES):
            told, told_at = one.known, START + timedelta(seconds=one.seconds)
            news.append(one.seconds)
    assert len(news) == 20
    assert min(later - sooner for sooner, later in pairwise(news)) >= 300
    one.waits(105)
    assert is_news(told, told_at, one.known, RULES), "half of the bound is over"
    assert not is_news(one.known, told_at, one.waits(PERIOD).known, RULES)


@ROW("P1", level="pure")
@ROW("P4", level="pure")
def test_P4_that_a_step_is_known_no_longer_is_told_after_two_minutes_and_the_next_step_at_once():
    one = Reader().sees(40).sees(41)
    told, told_at = one.known, START + timedelta(seconds=one.seconds)
    while not is_news(told, told_at, one.known, RULES):
        one.sees(None)
    assert (one.known.step, START + timedelta(seconds=one.seconds) - told_at) == (None, timedelta(minutes=2))
    told, told_at = one.known, START + timedelta(seconds=one.seconds)
    assert not is_news(told, told_at, one.waits(600, None).known, RULES)
    assert is_news(told, told_at, one.sees(30).known, RULES)


@ROW("P1", level="pure")
def test_P1_nothing_is_news_while_nothing_is_told():
    one = Reader()
    for _ in range(50):
        one.sees(None)
        assert not is_news(None, START, one.known, RULES)


readings = st.lists(
    st.tuples(
        st.lists(st.none() | st.integers(0, 40), max_size=3),
        st.sampled_from([1.0, PERIOD, 2 * PERIOD, 600.0]),
        st.sampled_from(["", "saving", "x"]),
        st.sampled_from(["a", "a", "a", "b"]),
    ),
    max_size=40,
)


@ROW("P2", level="pure")
@given(readings)
def test_P2_whatever_is_read_the_clock_counts_only_time_in_sight(given_: list[Any]):
    one = Reader()
    in_sight = 0.0
    for steps, after, phase, pods in given_:
        before = one.record
        one.sees(*steps, after=after, phase=phase, pods=pods)
        known = one.known
        if not steps:
            assert before is None or known.quiet == before.quiet
        elif before is not None and known.quiet:
            assert known.quiet <= before.quiet + min(after, 2 * PERIOD + 10)
        in_sight += after if after <= 2 * PERIOD + 10 else 0.0
        assert 0 <= known.quiet <= in_sight
        assert bound_of(known, RULES).span >= RULES.minimum
        assert (stalled(known, RULES) is not None) == (known.quiet > bound_of(known, RULES).span.total_seconds())


@ROW("P1", level="pure")
@given(readings, st.integers(1, 64))
def test_P1_what_is_remembered_is_bounded_in_bytes(given_: list[Any], names: int):
    one = Reader()
    for steps, after, phase, pods in given_ * 3:
        one.sees(*steps, after=after, phase=phase, pods=pods)
    for number in range(200):
        one.sees(10**14 + number * 7, total=10**15, saved=10**14)
    assert len(one.known.samples) == KEPT
    assert len(one.known.model_dump_json().encode()) < 1500


@ROW("P2", level="pure")
@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_P2_a_stall_restarts_the_workload_in_every_profile(profile: str):
    ruling = rule_on(PROFILES[profile], stall(1, START))
    assert (ruling.rule, ruling.action.kind, ruling.action.grace) == ("no-progress", ActionKind.RESTART, False)
    assert ruling.action.charge in {budget.name for budget in PROFILES[profile].budgets} | {None}


@ROW("P2", level="pure")
def test_P2_only_a_rule_that_names_the_class_decides_on_a_stall():
    anything = Rule(name="anything", action=Action(kind=ActionKind.FAIL, charge=None))
    named = Rule(
        name="hangs", match=Match(classes=(FailureClass.NO_PROGRESS,)), action=Action(kind=ActionKind.FAIL, charge=None)
    )
    assert rule_on(Policy(rules=(anything,)), stall(1, START)).rule == "no-progress"
    assert rule_on(Policy(rules=(anything, named)), stall(1, START)).rule == "hangs"


def hidden(one: Reader, leader: PodStep, seconds: float = 7200) -> Reader:
    """Let the first of two pods be read like this for so long, while the second is there and tells nothing."""
    for _ in range(int(seconds / PERIOD)):
        one.seconds += PERIOD
        pods = [leader, PodStep(uid="a-1", name="train-1")]
        one.record = read(one.record, 1, pods, RULES, START + timedelta(seconds=one.seconds))
    return one


TELLER = PodStep(uid="a-0", name="train-0", told=Step(step=1))
HIDDEN, MUTE = edit(TELLER, told=None, hidden=True), edit(TELLER, told=None)


@ROW("P2", level="pure")
def test_P2_a_pod_that_cannot_be_connected_to_and_alone_tells_the_step_is_no_stall():
    one = hidden(hidden(Reader(), TELLER, 2 * PERIOD), HIDDEN)
    assert (one.known.step, one.known.quiet <= PERIOD, one.failed) == (1, True, False)
    hidden(one, edit(TELLER, told=Step(step=2)), PERIOD)
    assert (one.known.step, one.known.quiet) == (2, 0)
    assert hidden(one, edit(TELLER, told=Step(step=2))).failed, "it is seen again, and stands still"


@ROW("P2", level="pure")
def test_P2_pods_that_tell_no_step_yet_stall_even_while_one_is_hidden():
    """A program that hangs as it begins fills its queue too, and nobody knows yet which pod is to tell."""
    assert hidden(Reader(), HIDDEN).failed
    assert hidden(hidden(Reader(), MUTE, 5 * PERIOD), HIDDEN).failed


@ROW("P2", level="pure")
def test_P2_a_pod_that_told_nothing_before_it_could_not_be_connected_to_has_stalled():
    """A program that hangs accepts nothing: the connections of each reading fill its queue, and then none is made."""
    one = hidden(hidden(Reader(), TELLER, 2 * PERIOD), MUTE, 5 * PERIOD)
    assert not one.failed
    assert hidden(one, HIDDEN).failed


@ROW("P2", level="pure")
def test_P2_a_pod_that_is_hidden_behind_others_that_step_hides_none_of_their_steps():
    one = hidden(hidden(Reader(), TELLER, 2 * PERIOD), HIDDEN, PERIOD)
    one.seconds += PERIOD
    pods = [HIDDEN, PodStep(uid="a-1", name="train-1", told=Step(step=5))]
    one.record = read(one.record, 1, pods, RULES, START + timedelta(seconds=one.seconds))
    assert (one.known.step, one.known.leader) == (5, "a-1")
