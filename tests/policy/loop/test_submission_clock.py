"""One clock for one submission: what was borne before counts, and a changed timeout reaches what waits (row S10)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast.model import ObjectRef, OperationKind, Phase, Policy, RefusedCreate, Timings
from holdfast.model.calls.cluster import Created, CreateInput, Prepared, PrepareInput
from holdfast.policy.loop.change import PolicyChange, changed
from holdfast.policy.loop.turn import landed
from holdfast.policy.values.edit import edit
from holdfast.policy.values.events import PolicyChanged
from holdfast.profiles.streams import POLICY
from holdfast.workflows.operations.dispatch import call_of
from tests.policy.lives.elements import Elements, streams
from tests.policy.lives.life import Life, workload

ROW = pytest.mark.row
PREPARE, CREATE = OperationKind.PREPARE, OperationKind.CREATE
MADE = tuple(ObjectRef(api_version="v1", kind="Pod", name=f"pe-{n}", uid=f"uid-{n}") for n in range(2))


def submitting(kind: OperationKind, seconds: int | None = 300) -> Elements:
    """A submission that waits in its preparation or creation."""
    timeout = timedelta(seconds=seconds) if seconds is not None else None
    life = Elements(spec=streams(timings=edit(POLICY.timings, submission_timeout=timeout)), hold={kind})
    life.settle()
    return life


def comes_to(life: Life, result: Prepared | Created) -> None:
    """Let the activity under way come back, and take in what it says as the workflow does."""
    assert life.state.operation is not None
    life.state = landed(life.state, result, life.now)


def prepared(**fields: Any) -> Prepared:
    return Prepared(cluster_uid="c", anchor_uid="a", owner_uid="o", **fields)


def asked(life: Life) -> PrepareInput | CreateInput:
    argument = call_of(life.spec, life.state, "uid", life.now).argument
    assert isinstance(argument, PrepareInput | CreateInput)
    return argument


def timeout(life: Life, seconds: int | None) -> None:
    """Change the submission timeout, as `update_policy` does."""
    after = timedelta(seconds=seconds) if seconds is not None else None
    timings = edit(life.state.policy.timings, submission_timeout=after)
    life.tell(PolicyChanged(edit(life.state.policy, timings=timings)))


def kinds(life: Life) -> list[str]:
    return [kind for kind in life.kinds() if kind in {"prepare", "create"}]


@ROW("S10", level="pure")
def test_S10_what_a_preparation_has_borne_is_taken_off_what_its_creation_may():
    life = submitting(PREPARE)
    life.hold = {CREATE}
    assert asked(life).patience == 300
    comes_to(life, prepared(borne=120.0))
    life.settle()
    assert asked(life).patience == 180


@ROW("S10", level="pure")
@pytest.mark.parametrize("kind", [PREPARE, CREATE])
def test_S10_what_is_broken_off_goes_on_where_it_stood(kind: OperationKind):
    life = submitting(kind)
    for left in (200, 100, 0, 0):
        broken = {"broken_off": True, "borne": 100.0}
        comes_to(life, prepared(**broken) if kind is PREPARE else Created(**broken))
        life.settle()
        given = asked(life)
        assert given.patience == left
        if isinstance(given, PrepareInput):
            assert given.borne > 0, "a right to what had to be waited for is waited for, too"
    assert set(kinds(life)[-4:]) == {kind.value}


@ROW("S10", level="pure")
def test_S10_for_ever_stays_for_ever_whatever_was_borne():
    life = submitting(CREATE, None)
    comes_to(life, Created(broken_off=True, borne=1e6))
    life.settle()
    assert asked(life).patience is None


@ROW("S10", level="pure")
def test_S10_the_next_attempt_has_a_clock_of_its_own():
    life = submitting(CREATE)
    comes_to(life, Created(broken_off=True, borne=200.0))
    life.settle()
    life.tell_result(Created(interrupted="the submission of attempt 1 was interrupted: it is replaced whole"))
    life.settle()
    assert (life.attempt, asked(life).patience) == (2, 300)


@ROW("S10", level="pure")
def test_S10_a_replacement_bears_as_long_as_ever():
    life = submitting(PREPARE)
    comes_to(life, prepared(borne=250.0))
    life.hold = {OperationKind.REPLACE}
    life.settle()
    life.pods(running=1)
    life.deleted("pe-1")
    assert call_of(life.spec, life.state, "uid", life.now).argument.patience == 300


@ROW("S10", level="pure")
@pytest.mark.parametrize("kind", [PREPARE, CREATE])
@pytest.mark.parametrize(("before", "after", "left"), [(300, 60, 60), (None, 60, 60), (60, None, None)])
def test_S10_a_changed_timeout_reaches_what_waits(
    kind: OperationKind, before: int | None, after: int | None, left: float | None
):
    life = submitting(kind, before)
    timeout(life, after)
    assert kinds(life)[-2:] == [kind.value] * 2, "it is broken off, and begun anew"
    assert asked(life).patience == left
    ran = kinds(life)
    timeout(life, after)
    assert kinds(life) == ran, "nothing has changed"


@pytest.mark.parametrize("kind", [PREPARE, CREATE])
def test_a_timeout_that_bounds_nothing_breaks_nothing_off(kind: OperationKind):
    policy = Policy(timings=Timings(submission_timeout=timedelta(minutes=5)))
    assert policy.refused_create is RefusedCreate.FAIL
    life = Life(spec=workload(policy=policy), hold={kind}).settle()
    ran = life.kinds()
    timeout(life, 60)
    assert (life.kinds(), life.state.phase) == (ran, Phase.RESUMING)


def test_a_preparation_that_waits_for_a_kind_only_is_timed_and_its_creation_is_not():
    life = Life(spec=workload(allow_missing_kinds=True, timings={"submissionTimeout": "5m"}), hold={PREPARE}).settle()
    timeout(life, 60)
    assert life.kinds() == ["prepare", "prepare"]
    life.hold = {CREATE}
    comes_to(life, prepared(borne=50.0))
    life.settle()
    assert asked(life).patience == life.spec.policy.timings.admission_grace_period.total_seconds()


@ROW("S4", level="pure")
def test_S4_what_a_creation_that_was_broken_off_has_made_is_handed_over_and_no_interruption():
    life = submitting(CREATE)
    comes_to(life, Created(broken_off=True, objects=MADE[:1]))
    life.settle()
    given = asked(life)
    assert isinstance(given, CreateInput)
    assert (given.made, given.hands_over, life.attempt) == (MADE[:1], True, 1)
    comes_to(life, Created(broken_off=True, objects=MADE[1:]))
    life.settle()
    given = asked(life)
    assert isinstance(given, CreateInput)
    assert given.made == MADE


def test_a_result_of_an_earlier_release_has_borne_nothing():
    old = {"clusterUid": "c", "anchorUid": "a", "ownerUid": "o"}
    found = Prepared.model_validate(old)
    assert (found.borne, found.broken_off) == (0.0, False)
    assert not Created.model_validate({}).broken_off


def test_a_change_of_the_timeout_alone_is_a_change_of_the_policy():
    policy = changed(POLICY, PolicyChange.model_validate({"timings": {"submissionTimeout": "10m"}}))
    assert policy.timings.submission_timeout == timedelta(minutes=10)
