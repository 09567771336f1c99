"""The walltime on virtual time: from when it counts, what it stands above, and how far it is extended (row L18)."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest

from holdfast.model import (
    After,
    Bounded,
    Deletion,
    Interval,
    OperationKind,
    Phase,
    Policy,
    Reason,
    StartStatus,
    SuspendMode,
    Timings,
    Unbounded,
)
from holdfast.policy.loop.fold import fold
from holdfast.policy.status.explain import ENDS, explain_of, status_of
from holdfast.policy.values.events import Cancelled, Resumed, Suspended, WalltimeExtended
from holdfast.policy.verdicts.walltime import (
    ENDLESS_START,
    LONGEST_DEADLINE,
    WalltimeExtension,
    backstop,
    extended,
    extension,
)
from holdfast.profiles import appwrapper, jobset, lattice, manifests, streams, torchelastic
from tests.policy.lives.elements import Elements, job, jobs
from tests.policy.lives.life import START, Life, workload

L18 = pytest.mark.row("L18", level="pure")
HOUR = timedelta(hours=1)


def life(span: timedelta = HOUR, most: timedelta | None = None, **fields: Any) -> Life:
    policy = fields.pop("policy", lattice.SERVICE)
    lifecycle = Bounded(walltime=span, extendable_to=most)
    return Life(spec=workload(policy=policy, lifecycle=lifecycle, **fields))


@L18
def test_L18_it_counts_from_when_the_attempt_first_runs_and_its_end_is_final_under_every_policy() -> None:
    one = life().settle()
    one.after(minutes=10)
    assert one.state.attempt is not None
    assert one.state.attempt.walltime_until is None, "it does not run yet"
    one.sees(running=2)
    until = one.now + HOUR
    assert status_of(one.spec, one.state, one.now, "uid").walltime_until == until
    assert [each.what for each in explain_of(one.spec, one.state, one.now).next] == [ENDS]
    one.after(minutes=59)
    assert one.state.phase is Phase.RUNNING
    one.after(minutes=2)
    assert (one.state.phase, one.state.reason) == (Phase.FAILED, Reason.WALLTIME_EXCEEDED)
    assert one.state.message == "its walltime of 1h is over"
    assert one.state.outcome_failure is not None
    assert one.state.outcome_failure.attempt == 1
    removed = [at for kind, _, at in one.ran if kind is OperationKind.REMOVE]
    assert removed[0] == until
    assert one.ended is Phase.FAILED


@L18
def test_L18_nothing_is_ended_where_there_is_none() -> None:
    one = life(timedelta(0)).runs().after(days=400)
    assert one.state.phase is Phase.RUNNING
    other = Life(spec=workload(policy=lattice.SERVICE, lifecycle=Unbounded())).runs().after(days=400)
    assert other.state.phase is Phase.RUNNING
    assert (backstop(one.spec), backstop(other.spec)) == (None, None)


@L18
def test_L18_each_attempt_has_its_whole_walltime() -> None:
    one = life().runs()
    one.after(minutes=50)
    one.sees(running=1, failed=1)
    one.after(seconds=5).sees(running=2)
    one.after(minutes=50)
    assert (one.attempt, one.state.phase) == (2, Phase.RUNNING)
    one.after(minutes=11)
    assert one.state.reason is Reason.WALLTIME_EXCEEDED


@L18
def test_L18_blindness_does_not_lengthen_it_and_what_has_succeeded_by_then_has_succeeded() -> None:
    one = life().runs()
    begun = one.now
    one.sees(running=2, blind=(Interval(begin=begun, end=begun + timedelta(minutes=30)),))
    one.after(minutes=60)
    assert one.state.reason is Reason.WALLTIME_EXCEEDED
    two = life().runs()
    two.view = {"succeeded": 2, "complete": True}
    two.after(minutes=60)
    assert two.state.phase is Phase.SUCCEEDED, "the look before the end has seen it"


@L18
@pytest.mark.parametrize(
    ("wish", "phase", "reason"),
    [
        (Cancelled(), Phase.CANCELLED, Reason.CANCEL_REQUESTED),
        (Suspended(), Phase.FAILED, Reason.WALLTIME_EXCEEDED),
        (Suspended(preempted=True), Phase.FAILED, Reason.WALLTIME_EXCEEDED),
    ],
)
def test_L18_a_deletion_stands_above_it_and_it_above_a_suspension(wish: Any, phase: Phase, reason: Reason) -> None:
    one = life().runs()
    one.now += HOUR
    one.tell(wish)
    assert (one.state.phase, one.state.reason) == (phase, reason)


@L18
@pytest.mark.parametrize("view", [{"failed": 1}, {"failed": 1, "cls": "NodeLost", "why": "NodeLost"}, {"found": False}])
def test_L18_it_stands_above_what_fails_in_the_same_moment(view: dict[str, Any]) -> None:
    one = life().runs()
    one.now += HOUR
    one.sees(running=1, **view)
    assert (one.state.phase, one.state.reason) == (Phase.FAILED, Reason.WALLTIME_EXCEEDED)
    assert one.state.requeues == 0


@L18
def test_L18_a_held_workload_is_ended_by_it_and_what_is_kept_after_a_failure_is_not_kept_running() -> None:
    one = life(sensitive=True).runs()
    one.sees(running=1, failed=1)
    assert one.state.reason is Reason.HELD
    one.after(minutes=60)
    assert (one.state.reason, one.ended) == (Reason.WALLTIME_EXCEEDED, Phase.FAILED)
    kept = Policy(timings=Timings(deletion_on_failure_grace_period=None))
    two = life(policy=kept).runs().after(minutes=60)
    assert (two.state.reason, two.ended) == (Reason.WALLTIME_EXCEEDED, Phase.FAILED)


@L18
def test_L18_it_falls_due_while_an_operation_is_under_way_and_breaks_it_off() -> None:
    one = life().runs()
    one.hold = {OperationKind.OBSERVE}
    one.sees(running=1, failed=1)
    assert one.kinds()[-1] == "observe"
    assert one.step is not None
    one.after(minutes=60)
    one.hold = set()
    one.finish().settle()
    assert one.state.reason is Reason.WALLTIME_EXCEEDED


@L18
def test_L18_time_suspended_in_place_does_not_count() -> None:
    in_place = Policy(deletion=Deletion(suspend=SuspendMode.IN_PLACE))
    one = life(policy=in_place).runs().after(minutes=40)
    one.tell(Suspended())
    assert one.state.phase is Phase.SUSPENDED
    one.after(hours=10)
    assert one.state.phase is Phase.SUSPENDED
    one.tell(Resumed()).sees(running=2)
    assert (one.state.phase, one.attempt) == (Phase.RUNNING, 1)
    one.after(minutes=19)
    assert one.state.phase is Phase.RUNNING
    one.after(minutes=2)
    assert one.state.reason is Reason.WALLTIME_EXCEEDED


def extend(one: Life, by: str) -> Life:
    """Extend it, as the workflow does: at once, and then as an event."""
    total = extension(one.spec, one.state, WalltimeExtension(by=by))
    one.state = extended(one.state, total)
    return one.tell(WalltimeExtended(total, "more data"))


@L18
def test_L18_it_is_extended_while_it_runs_as_far_as_was_submitted() -> None:
    one = life(most=timedelta(hours=3)).runs().after(minutes=30)
    until = one.state.attempt.walltime_until if one.state.attempt else None
    assert until is not None
    extend(one, "1h")
    assert one.state.attempt is not None
    assert one.state.attempt.walltime_until == until + HOUR
    assert one.state.causes[-1].reason is Reason.WALLTIME_EXTENDED
    one.after(minutes=60)
    assert one.state.phase is Phase.RUNNING
    one.state = fold(one.state, WalltimeExtended(3600.0), one.now)
    assert one.state.extended == 3600, "the same again changes nothing"
    extend(one, "60m")
    with pytest.raises(ValueError, match=r"by: 1s: the walltime would be 3h1s, and lifecycle.extendableTo allows 3h"):
        extend(one, "1s")
    one.after(minutes=90)
    assert one.state.reason is Reason.WALLTIME_EXCEEDED
    assert one.state.message == "its walltime of 3h is over"
    with pytest.raises(ValueError, match="it is Failed"):
        extend(one, "1m")


@L18
def test_L18_it_is_extended_while_it_is_suspended_in_place() -> None:
    in_place = Policy(deletion=Deletion(suspend=SuspendMode.IN_PLACE))
    one = life(policy=in_place, most=timedelta(hours=3)).runs().after(minutes=40)
    one.tell(Suspended())
    extend(one, "1h")
    one.tell(Resumed()).sees(running=2)
    assert one.state.attempt is not None
    assert one.state.attempt.walltime_until == one.now + timedelta(minutes=80)


@L18
def test_L18_an_extension_holds_for_the_attempts_to_come() -> None:
    one = life(most=timedelta(hours=2)).runs()
    extend(one, "1h")
    one.sees(running=1, failed=1)
    one.after(seconds=5).sees(running=2)
    one.after(minutes=119)
    assert (one.attempt, one.state.phase) == (2, Phase.RUNNING)


@L18
@pytest.mark.parametrize(
    ("spec", "by", "why"),
    [
        (life().spec, "1h", "lifecycle.extendableTo was not submitted"),
        (life(timedelta(0)).spec, "1h", "it has no walltime"),
        (life(most=2 * HOUR).spec, "soon", "by: 'soon' is not a duration"),
        (life(most=2 * HOUR).spec, "0", "by: 0s: expected more"),
    ],
)
def test_L18_an_extension_that_cannot_be_is_refused(spec: Any, by: str, why: str) -> None:
    one = Life(spec=spec).runs()
    with pytest.raises(ValueError, match=re.escape(why)):
        extend(one, by)
    with pytest.raises(ValueError, match="until: expected one of by, note"):
        extension(one.spec, one.state, WalltimeExtension.model_validate({"by": "1h", "until": "x"}))


@L18
def test_L18_the_backstop_of_its_nodes_covers_what_it_may_be_extended_to() -> None:
    warm, grace = lattice.SERVICE.timings.warmup_grace_period, timedelta(seconds=30)
    assert backstop(life().spec) == HOUR + warm + grace
    assert backstop(life(most=4 * HOUR).spec) == 4 * HOUR + warm + grace
    short = lattice.SERVICE.model_copy(update={"deletion": Deletion(termination_grace=timedelta(seconds=5))})
    assert backstop(life(policy=short).spec) == HOUR + warm + timedelta(seconds=5)


@L18
@pytest.mark.parametrize(
    ("policy", "start"),
    [
        (lattice.BATCH, timedelta(minutes=15)),
        (lattice.INTERACTIVE, timedelta(minutes=15)),
        (lattice.SERVICE, timedelta(minutes=15)),
        (appwrapper.POLICY, timedelta(minutes=6)),
        (manifests.POLICY, timedelta(minutes=16)),
        (jobset.POLICY, ENDLESS_START),
        (streams.POLICY, ENDLESS_START),
        (torchelastic.POLICY, ENDLESS_START),
    ],
    ids=lambda one: one.profile if isinstance(one, Policy) else "",
)
def test_L18_the_backstop_comes_later_than_the_walltime_of_pods_that_start_as_late_as_they_may(
    policy: Policy, start: timedelta
) -> None:
    assert backstop(life(policy=policy).spec) == HOUR + start + timedelta(seconds=30)


@L18
@pytest.mark.parametrize("policy", [lattice.BATCH, jobset.POLICY], ids=lambda one: one.profile)
@pytest.mark.parametrize("days", [24_855, 24_856, 106_751])
@pytest.mark.parametrize("extendable", [False, True])
def test_L18_the_backstop_is_at_most_what_kubernetes_takes(policy: Policy, days: int, extendable: bool) -> None:
    span = timedelta(days=days)
    one = life(HOUR, span, policy=policy) if extendable else life(span, policy=policy)
    ended = backstop(one.spec)
    assert ended is not None
    assert ended <= timedelta(seconds=2_147_483_647) == LONGEST_DEADLINE
    fits = days == 24_855 and policy is lattice.BATCH
    assert ended == (span + timedelta(minutes=15, seconds=30) if fits else LONGEST_DEADLINE)


@L18
def test_L18_the_backstop_leaves_time_to_each_that_starts_after_another_is_ready() -> None:
    first, second = job("first"), job("second", after=(After(component="first", status=StartStatus.READY),))
    third, beside = job("third", after=(After(component="second", status=StartStatus.READY),)), job("beside")
    bounded = Bounded(walltime=HOUR)
    spec = jobs(third, second, first, beside, policy=manifests.POLICY, lifecycle=bounded)
    one = Elements(spec=spec)
    one.settle()
    for names in (("first", "beside"), ("second",), ("third",)):
        one.after(minutes=15, seconds=50)
        one.pods(*names, running=2)
    assert one.state.attempt is not None
    assert (one.attempt, one.state.phase) == (1, Phase.RUNNING)
    over, ended = one.state.attempt.walltime_until, backstop(spec)
    assert over is not None
    assert ended is not None
    assert over < START + ended


@L18
def test_L18_pods_that_the_backstop_has_ended_are_the_walltimes_end() -> None:
    one = life().runs()
    one.sees(failed=2, cls="Deadline", why="DeadlineExceeded")
    assert (one.state.phase, one.state.reason) == (Phase.FAILED, Reason.WALLTIME_EXCEEDED)
