"""The request to strip finalizers: only of what a forced removal cannot get rid of, and only when asked (row U2)."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.model import OperationKind, Phase, Reason, Remnant, Stage
from holdfast.policy.status.explain import explain_of
from holdfast.policy.values.edit import edit
from holdfast.policy.values.events import Cancelled, StripAsked, Suspended
from holdfast.policy.verdicts.strip import check_strip, held, stripping
from tests.policy.attempt.test_zombies import FINISHED, HELD, LOST, leaves, removing
from tests.policy.lives.life import Life
from tests.policy.lives.moments import moment

ROW = pytest.mark.row
OWNER = Remnant(kind="Attempt", name="train-llm-a1", finalizers=("example.com/hold",))


def strips(life: Life) -> bool:
    operation = life.state.operation
    assert operation is not None
    assert operation.kind is OperationKind.FORCE_REMOVE
    return operation.strips


def forcings(life: Life) -> int:
    return sum(kind is OperationKind.FORCE_REMOVE for kind, _, _ in life.ran)


@ROW("U2", level="pure")
def test_U2_asked_for_the_forced_removal_begins_anew_and_strips():
    life = leaves(removing(), HELD, LOST)
    check_strip(life.state)
    assert not strips(life), "nothing is stripped unasked"
    life.after(seconds=5).tell(StripAsked("their operator is gone for good"))
    assert strips(life)
    assert forcings(life) == 2, "the one under way was broken off, and begun anew"
    told = life.state.causes[-1]
    assert told.reason is Reason.FINALIZERS_STRIPPED
    assert "Pod train-1 (finalizer example.com/hold)" in told.message
    assert told.message.endswith("as was asked for: their operator is gone for good")
    leaves(life)
    assert life.state.phase is Phase.SUSPENDED


@ROW("U2", level="pure")
def test_U2_the_wish_lasts_for_this_attempt_and_no_longer():
    life = leaves(removing(), HELD).tell(StripAsked())
    leaves(life, HELD)
    assert strips(life), "what is left is stripped in later rounds too"
    life.tell(Cancelled())
    assert strips(life), "whatever else is wanted of it meanwhile"
    life = leaves(removing(), HELD).tell(StripAsked())
    leaves(life)
    attempt = life.state.attempt
    assert attempt is not None
    assert attempt.stage is Stage.GONE
    life.state = life.state.model_copy(update={"intent": life.state.intent.model_copy(update={"suspend": False})})
    leaves(life.settle().runs().tell(Suspended("again")), HELD)
    assert life.state.attempt is not None
    assert life.state.attempt.number == 2
    assert not strips(life)


@ROW("U2", level="pure")
def test_U2_at_other_times_it_is_refused_with_what_to_do():
    life = Life().runs()
    with pytest.raises(ValueError, match=r"nothing of it is being removed.*suspend or cancel it first"):
        check_strip(life.state)
    life = removing()
    with pytest.raises(ValueError, match=r"still has its grace.*wait until its removal is forced"):
        check_strip(life.state)
    for left in (FINISHED, OWNER):
        with pytest.raises(ValueError, match="no finalizer holds what is left"):
            check_strip(leaves(removing(), left).state)
    life = leaves(removing(), HELD).tell(StripAsked())
    with pytest.raises(ValueError, match="has been asked for attempt 1 already"):
        check_strip(life.state)


@ROW("U2", level="pure")
def test_U2_a_request_that_the_end_has_overtaken_is_let_fall():
    life = leaves(leaves(removing(), HELD))
    before = life.state
    assert life.tell(StripAsked("too late")).state == before
    life = leaves(removing(), HELD).tell(StripAsked("once"))
    once = life.state
    life.now += timedelta(seconds=1)
    assert life.tell(StripAsked("twice")).state == once, "asked twice at once, it is done once"


@ROW("U2", level="pure")
def test_U2_explain_names_the_command_while_it_would_be_accepted():
    life = leaves(removing(), HELD)
    told = explain_of(life.spec, life.state, life.now)
    assert f"`holdfast strip-finalizers {life.spec.namespace}/train-llm`" in told.unblock
    life.tell(StripAsked())
    told = explain_of(life.spec, life.state, life.now)
    assert told.unblock.startswith("finalizers are being taken off, as was asked for")
    assert "holdfast strip-finalizers" not in told.unblock
    life = leaves(removing(), OWNER)
    assert "removed by hand" in explain_of(life.spec, life.state, life.now).unblock


@ROW("U2", level="pure")
@pytest.mark.parametrize(
    ("at", "words"),
    [
        (
            "submitted",
            "it is Pending, and nothing of it is being removed: finalizers are taken off only what a removal cannot "
            "get rid of; suspend or cancel it first",
        ),
        (
            "suspending",
            "attempt 1 still has its grace to go by itself: wait until its removal is forced (`explain` says when), "
            "then ask again",
        ),
        (
            "forcing",
            "no finalizer holds what is left of attempt 1: `explain` says what does; there is nothing to take off",
        ),
    ],
)
def test_U2_a_refusal_says_why_and_what_to_do(at: str, words: str):
    with pytest.raises(ValueError, match=r"it|finalizer") as caught:
        check_strip(moment(at).state)
    assert str(caught.value) == words


@ROW("U2", level="pure")
def test_U2_a_second_request_is_referred_to_who_owns_the_finalizer():
    life = moment("forcing by a finalizer")
    with pytest.raises(ValueError, match="asked") as caught:
        check_strip(stripping(life.state, "", life.now))
    assert str(caught.value) == (
        "that has been asked for attempt 1 already: what still has its finalizer is named by `explain`, and must be "
        "let go by its owner or by hand"
    )


@ROW("U2", level="pure")
@pytest.mark.parametrize(("note", "said"), [("", ""), ("gone for good", ": gone for good")])
def test_U2_the_record_names_the_first_three_that_are_stripped(note: str, said: str):
    life = moment("forcing by a finalizer")
    names = "; ".join(f"Pod train-{n} (finalizer b.io/x, finalizer a.io/y)" for n in range(3))
    told = stripping(life.state, note, life.now).causes[-1]
    assert told.message == f"taking the finalizers off what is left ({names}), as was asked for{said}"
    assert held(edit(life.state, attempt=None)) == ()
