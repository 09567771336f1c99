"""Checkpoints: asked before a suspension, answered or not, and what the next attempt goes on from (rows L32, J3)."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from holdfast.formats.jobset import reader
from holdfast.model import (
    Answers,
    Checkpoint,
    CheckpointProtocol,
    CheckpointState,
    ConditionType,
    CopyCounts,
    Interval,
    OnUnresponsive,
    OperationKind,
    Phase,
    Reason,
    Workload,
)
from holdfast.model.calls.cluster import CheckpointInput
from holdfast.policy.attempt.checkpoint import check_ask, is_over
from holdfast.policy.loop.fold import fold
from holdfast.policy.status.explain import explain_of, status_of
from holdfast.policy.values.edit import edit
from holdfast.policy.values.events import Cancelled, CheckpointAsked, Resumed, Suspended
from holdfast.policy.values.steps import Sleep
from holdfast.workflows.operations.dispatch import call_of
from tests.e2e.peers.jobsets import jobset, replicated
from tests.policy.lives.elements import Elements
from tests.policy.lives.life import START, Life, workload

ROW = pytest.mark.row
PREEMPTED = Suspended("a deadline of another", preempted=True)
MINUTES = timedelta(minutes=1)


def saving(pods: int = 4, **fields: Any) -> Workload:
    timings = fields.pop("timings", None)
    given = Checkpoint(protocol=CheckpointProtocol.ANNOTATION, **fields)
    return edit(workload(pods, timings), checkpoint=given)


def preempted(spec: Workload | None = None, event: Suspended = PREEMPTED) -> Life:
    """Return a gang that runs, and is asked to save its state since somebody needs its place."""
    life = Life(spec or saving(), hold={OperationKind.CHECKPOINT}).runs()
    life.tell(event)
    return life


def come(life: Life) -> CheckpointState:
    assert life.state.checkpoint is not None
    return life.state.checkpoint.state


def resumed_from(life: Life) -> str:
    assert life.state.attempt is not None
    return life.state.attempt.resume_from


def quota(life: Life) -> bool:
    told = {one.type: one.status for one in status_of(life.spec, life.state, life.now, "uid").conditions}
    return told[ConditionType.QUOTA_RESERVED]


def explained(life: Life) -> str:
    found = explain_of(life.spec, life.state, life.now)
    return " | ".join([found.why, found.now, *(one.what for one in found.next)])


@ROW("L32", level="pure")
def test_L32_a_preemption_asks_first_and_suspends_once_all_have_saved():
    life = preempted()
    assert (life.state.phase, life.kinds()[-1], come(life)) == (Phase.CHECKPOINTING, "checkpoint", "Requested")
    assert quota(life)
    assert life.state.operation is not None
    assert life.state.operation.until == life.now + 10 * MINUTES
    life.answers(done=4, uri="s3://saved/7").settle()
    assert (life.state.phase, come(life)) == (Phase.SUSPENDED, CheckpointState.COMPLETE)
    assert not quota(life)
    assert life.state.restarts == 0
    assert life.state.used == {}
    assert [one.reason for one in life.state.causes][-4:] == [
        "Preempted",
        "CheckpointRequested",
        "CheckpointComplete",
        "DeletionComplete",
    ]


@ROW("U8", level="pure")
@ROW("L32", level="pure")
def test_U8_a_preemption_that_was_taken_back_while_it_saved_is_not_measured_at_a_later_removal():
    life = preempted()
    assert life.state.preempted_at == life.now
    life.after(minutes=1).tell(Resumed())
    assert (life.attempt, life.state.preempted_at) == (1, None)
    life.after(hours=5).tell(Suspended())
    assert life.state.preempted_at is None


@ROW("L32", level="pure")
@ROW("J3", level="pure")
def test_L32_the_next_attempt_goes_on_from_what_was_saved():
    life = preempted()
    assert resumed_from(life) == ""
    life.answers(done=4, uri="s3://saved/7").settle()
    life.tell(Resumed())
    assert (life.attempt, resumed_from(life)) == (2, "s3://saved/7")
    status = status_of(life.spec, life.state, life.now, "uid")
    assert (status.saved and status.saved.attempt, status.resumed_from) == (1, "s3://saved/7")


@ROW("J3", level="pure")
@ROW("L4", level="pure")
def test_J3_a_reset_goes_on_from_the_last_complete_checkpoint():
    life = Life(saving(timings={"failure_grace_period": timedelta(0), "retry_pause_period": timedelta(0)}))
    life.runs().tell(CheckpointAsked("before the risky part"))
    assert (life.state.phase, come(life)) == (Phase.RUNNING, CheckpointState.COMPLETE)
    life.sees(running=3, failed=1).settle()
    assert (life.attempt, resumed_from(life)) == (2, "s3://saved/1")


@ROW("J3", level="pure")
@ROW("J19", level="pure")
@ROW("J23", level="pure")
@pytest.mark.parametrize("action", ["RestartReplicatedJob", "RestartJob", "missing"])
def test_J3_jobs_that_are_made_again_alone_go_on_from_the_last_complete_checkpoint(action: str):
    rules = {"maxRestarts": 3, "rules": [{"action": action}]} if action != "missing" else {}
    document = jobset("train", replicated("a", replicas=2), replicated("b"), failurePolicy=rules)
    document["metadata"]["annotations"] = {"holdfast.dev/checkpoint": "annotation"}
    life = Elements(spec=reader.read(document, cluster="dev"), hold={OperationKind.CHECKPOINT}).up()
    life.tell(CheckpointAsked("before the risky part"))
    life.answers(done=3, uri="s3://saved/1").settle()
    life.hold = {OperationKind.REPLACE}
    if action == "missing":
        life.deleted("a")
    else:
        life.views["a"] = edit(life.views["a"], copies=CopyCounts(expected=2, failed=1, active=1))
        life.says(a="Failed")
    life.settle()
    assert (life.kinds()[-1], life.attempt, resumed_from(life)) == ("replace", 1, "s3://saved/1")


@ROW("L32", level="pure")
def test_L32_one_unresponsive_of_four_makes_it_partial_which_is_never_resumed_from():
    life = preempted()
    life.after(minutes=10)
    life.answers(done=3, silent=1, left=("train-3 has not answered",)).settle()
    assert (life.state.phase, come(life)) == (Phase.SUSPENDED, CheckpointState.PARTIAL)
    assert life.state.saved is None
    assert "train-3 has not answered" in life.state.checkpoint.why  # type: ignore[union-attr]
    life.tell(Resumed())
    assert (life.attempt, resumed_from(life)) == (2, "")


@ROW("L32", level="pure")
def test_L32_a_partial_one_leaves_the_complete_one_before_it_in_place():
    life = preempted()
    life.answers(done=4, uri="s3://saved/1").settle()
    life.tell(Resumed()).sees(running=4)
    life.tell(PREEMPTED).after(minutes=10)
    life.answers(done=1, silent=3, uri="s3://saved/2").settle()
    assert come(life) is CheckpointState.PARTIAL
    life.tell(Resumed())
    assert (life.attempt, resumed_from(life)) == (3, "s3://saved/1")


@ROW("L32", level="pure")
def test_L32_none_that_answers_is_discarded():
    life = preempted().after(minutes=10)
    life.answers(silent=4).settle()
    assert (life.state.phase, come(life), life.state.saved) == (Phase.SUSPENDED, CheckpointState.DISCARDED, None)


@ROW("L32", level="pure")
@pytest.mark.parametrize("wish", list(OnUnresponsive))
def test_L32_what_becomes_of_an_unresponsive_one_is_the_profiles_to_say(wish: OnUnresponsive):
    life = preempted(saving(on_unresponsive=wish)).after(minutes=10)
    life.answers(done=3, silent=1).settle()
    assert life.state.phase is Phase.SUSPENDED
    forced = wish is OnUnresponsive.KILL
    assert ("force_remove" in life.kinds(), "remove" in life.kinds()) == (forced, not forced)


@ROW("L32", level="pure")
def test_L32_one_that_has_saved_keeps_its_grace_whatever_the_profile_says():
    life = preempted(saving(on_unresponsive=OnUnresponsive.KILL))
    life.answers(done=4).settle()
    assert "force_remove" not in life.kinds()


@ROW("L32", level="pure")
def test_L32_those_that_are_at_it_get_one_extension():
    life = preempted().after(minutes=10)
    life.answers(done=1, working=3).settle()
    assert (life.state.phase, come(life)) == (Phase.CHECKPOINTING, CheckpointState.REQUESTED)
    assert life.state.operation is not None
    assert life.state.operation.until == life.state.checkpoint.at + 15 * MINUTES  # type: ignore[union-attr]
    life.after(minutes=5)
    life.answers(done=1, working=3).settle()
    assert (life.state.phase, come(life)) == (Phase.SUSPENDED, CheckpointState.PARTIAL)


@ROW("L32", level="pure")
@pytest.mark.parametrize("counts", [{"working": 3, "silent": 1}, {"silent": 4}])
def test_L32_one_that_says_nothing_gets_no_extension_for_anybody(counts: dict[str, Any]):
    life = preempted().after(minutes=10)
    life.answers(**counts).settle()
    assert life.state.phase is Phase.SUSPENDED


@ROW("L32", level="pure")
def test_L32_an_extension_of_nothing_is_none():
    life = preempted(saving(extension=timedelta(0))).after(minutes=10)
    life.answers(working=4).settle()
    assert life.state.phase is Phase.SUSPENDED


@ROW("L32", level="pure")
@pytest.mark.parametrize(
    ("counts", "came"),
    [
        ({"done": 3, "failed": 1}, CheckpointState.PARTIAL),
        ({"failed": 1, "silent": 3}, CheckpointState.DISCARDED),
        ({"done": 3}, CheckpointState.PARTIAL),
        ({"silent": 3}, CheckpointState.DISCARDED),
        ({"done": 4, "disagree": True}, CheckpointState.PARTIAL),
    ],
    ids=["one cannot", "one cannot, others silent", "one gone", "one gone, others silent", "different places"],
)
def test_L32_what_can_no_longer_be_whole_is_not_waited_for(counts: dict[str, Any], came: CheckpointState):
    life = preempted()
    life.answers(**counts).settle()
    assert (life.state.phase, come(life), life.state.saved) == (Phase.SUSPENDED, came, None)


@ROW("L32", level="pure")
def test_L32_pods_that_finish_meanwhile_have_nothing_to_save():
    life = preempted()
    life.answers(done=3, finished=1).settle()
    assert come(life) is CheckpointState.COMPLETE


@ROW("L32", level="pure")
def test_L32_pods_that_had_finished_before_stand_for_none_that_is_lost():
    life = Life(saving(), hold={OperationKind.CHECKPOINT}).runs().sees(running=3, succeeded=1)
    life.tell(PREEMPTED)
    life.answers(done=2, finished=1).settle()
    assert come(life) is CheckpointState.PARTIAL


@ROW("L32", level="pure")
def test_L32_a_natural_finish_first_makes_the_hint_a_no_op():
    life = preempted()
    life.sees(succeeded=4, complete=True)
    assert (life.state.phase, come(life)) == (Phase.SUCCEEDED, CheckpointState.DISCARDED)
    assert life.state.operation is None
    assert "Suspending" not in [one.value for one in life.phases]


@ROW("L32", level="pure")
def test_L32_pods_that_have_all_finished_are_looked_at_before_it_is_suspended():
    life = preempted().after(minutes=1)
    life.view = {"succeeded": 4, "complete": True}
    life.answers(finished=4).settle()
    assert (life.state.phase, come(life), life.kinds()[-2:]) == (Phase.SUCCEEDED, "Discarded", ["observe", "report"])


@ROW("L32", level="pure")
def test_L32_pods_that_have_all_finished_and_are_no_success_are_suspended():
    life = preempted().after(minutes=1)
    life.view = {"succeeded": 4}
    life.answers(finished=4).settle()
    assert (life.state.phase, come(life)) == (Phase.SUSPENDED, CheckpointState.DISCARDED)


@ROW("L32", level="pure")
def test_L32_a_hint_that_comes_after_the_finish_asks_nobody():
    life = Life(saving()).runs().sees(succeeded=4, complete=True)
    life.tell(PREEMPTED)
    assert (life.state.phase, life.state.checkpoint) == (Phase.SUCCEEDED, None)


@ROW("L32", level="pure")
def test_L32_a_second_preemption_changes_nothing():
    life = preempted().after(minutes=4)
    before = life.state.operation
    life.tell(PREEMPTED)
    assert life.state.operation == before
    assert life.kinds().count("checkpoint") == 1
    life.answers(done=4).settle()
    assert life.state.phase is Phase.SUSPENDED


@ROW("L32", level="pure")
def test_L32_a_suspension_while_it_saves_waits_for_the_same_request():
    life = preempted()
    life.tell(Suspended("maintenance"))
    assert (life.kinds().count("checkpoint"), life.state.phase) == (1, Phase.CHECKPOINTING)
    life.answers(done=4).settle()
    assert (life.state.phase, life.state.reason) == (Phase.SUSPENDED, Reason.SUSPEND_REQUESTED)


@ROW("L32", level="pure")
def test_L32_a_cancellation_waits_for_no_checkpoint():
    life = preempted()
    life.tell(Cancelled("no longer wanted"))
    assert (life.ended, come(life)) == (Phase.CANCELLED, CheckpointState.DISCARDED)


@ROW("L32", level="pure")
def test_L32_a_preemption_that_is_taken_back_lets_it_run_on():
    life = preempted()
    life.tell(Resumed("room again"))
    assert (life.state.phase, life.attempt, come(life)) == (Phase.RUNNING, 1, CheckpointState.DISCARDED)
    assert life.state.operation is None
    life.tell(PREEMPTED)
    assert (life.state.phase, life.state.checkpoint.number) == (Phase.CHECKPOINTING, 2)  # type: ignore[union-attr]
    life.answers(done=4).settle()
    assert life.state.phase is Phase.SUSPENDED


@ROW("L32", level="pure")
def test_L32_a_failure_while_it_saves_charges_nothing():
    life = preempted()
    life.sees(running=3, failed=1).after(minutes=3)
    assert (life.state.phase, life.state.used) == (Phase.CHECKPOINTING, {})
    life.answers(done=2, silent=1).settle()
    assert (life.state.phase, life.state.restarts, come(life)) == (Phase.SUSPENDED, 0, CheckpointState.PARTIAL)


@ROW("L32", level="pure")
def test_L32_its_owner_lost_there_is_nothing_to_wait_for():
    life = Life(saving(), hold={OperationKind.CHECKPOINT}).runs()
    assert life.state.observation is not None
    life.state = edit(life.state, observation=edit(life.state.observation, owner_found=False))
    life.tell(PREEMPTED)
    assert (life.state.phase, life.state.checkpoint) == (Phase.SUSPENDED, None)


@ROW("L32", level="pure")
@ROW("L11", level="pure")
def test_L32_the_timeout_does_not_run_while_nothing_can_be_seen():
    life = preempted()
    begun = life.now
    life.after(minutes=10)
    dark = (Interval(begin=begun + 2 * MINUTES, end=begun + 8 * MINUTES),)
    life.answers(done=3, silent=1, blind=dark).settle()
    assert (life.state.phase, come(life)) == (Phase.CHECKPOINTING, CheckpointState.REQUESTED)
    assert life.state.operation is not None
    assert life.state.operation.until == begun + 16 * MINUTES
    life.after(minutes=6)
    life.answers(done=4).settle()
    assert (life.state.phase, come(life)) == (Phase.SUSPENDED, CheckpointState.COMPLETE)


@ROW("L32", level="pure")
def test_L32_whoever_preempts_may_have_less_patience():
    life = preempted(event=Suspended("urgent", preempted=True, within=60))
    assert life.state.operation is not None
    assert life.state.operation.until == life.now + MINUTES
    life.after(minutes=1)
    life.answers(working=4).settle()
    assert life.state.phase is Phase.SUSPENDED, "their extension ends no later than that"


@ROW("L32", level="pure")
def test_L32_a_later_preemption_may_have_less_patience_and_never_more():
    life = preempted(event=Suspended("soon", preempted=True, within=120))
    life.hold = {OperationKind.CHECKPOINT}
    life.tell(Suspended("sooner", preempted=True, within=30))
    assert life.state.operation is not None
    assert life.state.operation.until == life.now + timedelta(seconds=30)
    assert life.state.checkpoint.number == 1  # type: ignore[union-attr]
    life.tell(Suspended("later", preempted=True, within=600))
    assert life.state.operation.until == life.now + timedelta(seconds=30)


@ROW("L32", level="pure")
def test_L32_no_patience_at_all_asks_nobody():
    life = preempted(event=Suspended("now", preempted=True, within=0))
    assert (life.state.phase, life.state.checkpoint) == (Phase.SUSPENDED, None)


@ROW("L32", level="pure")
def test_L32_what_has_not_run_whole_has_nothing_to_save():
    life = Life(saving()).settle().sees(running=2, pending=2)
    life.tell(PREEMPTED)
    assert (life.state.phase, life.state.checkpoint) == (Phase.SUSPENDED, None)


@ROW("L32", level="pure")
@ROW("A11", level="pure")
def test_L32_without_checkpoints_a_preemption_is_as_it_was():
    life = Life().runs()
    life.tell(PREEMPTED)
    assert (life.state.phase, life.state.checkpoint) == (Phase.SUSPENDED, None)
    assert "checkpoint" not in life.kinds()


@ROW("J3", level="pure")
def test_J3_a_checkpoint_that_is_asked_for_lets_it_run_on():
    life = Life(saving(), hold={OperationKind.CHECKPOINT}).runs()
    life.tell(CheckpointAsked("nightly"))
    assert (life.state.phase, life.state.intent.checkpoint) == (Phase.CHECKPOINTING, False)
    life.answers(done=4, uri="s3://nightly").settle()
    assert (life.state.phase, life.attempt, life.kinds()[-1]) == (Phase.RUNNING, 1, "report")
    assert life.state.saved is not None
    assert life.state.saved.uri == "s3://nightly"


@ROW("J3", level="pure")
@pytest.mark.parametrize(
    ("note", "message"), [("", "a checkpoint was asked for"), ("nightly", "a checkpoint was asked for: nightly")]
)
def test_J3_who_asks_for_a_checkpoint_is_recorded_with_their_note(note: str, message: str):
    life = Life(saving()).runs()
    assert fold(life.state, CheckpointAsked(note), life.now).causes[-1].message == message


@ROW("J3", level="pure")
@pytest.mark.parametrize(
    ("life", "why"),
    [
        (lambda: Life().runs(), "it has no checkpoint, so that its pods cannot be asked: submit it with one"),
        (lambda: Life(saving()).settle(), "it is Resuming: only what runs can save its state"),
        (lambda: Life(saving()).runs().tell(Suspended()), "it is Suspended: only what runs can save its state"),
        (preempted, "a checkpoint is under way already: `explain` says how far it is"),
    ],
    ids=["none", "not yet", "no longer", "twice"],
)
def test_J3_a_checkpoint_that_cannot_be_asked_for_is_refused_in_words(life: Callable[[], Life], why: str):
    given = life()
    with pytest.raises(ValueError, match=f"^{re.escape(why)}$"):
        check_ask(given.spec, given.state)


@ROW("J3", level="pure")
def test_J3_requests_are_numbered():
    life = Life(saving()).runs()
    for number in (1, 2):
        assert check_ask(life.spec, life.state) == number
        life.tell(CheckpointAsked())


@ROW("L32", level="pure")
@pytest.mark.parametrize(
    ("counts", "over"),
    [
        ({"done": 4}, True),
        ({"done": 3, "finished": 1}, True),
        ({"done": 3, "working": 1}, False),
        ({"silent": 4}, False),
        ({"working": 3, "failed": 1}, True),
        ({"working": 3}, True),
        ({"silent": 3}, True),
    ],
    ids=[
        "all",
        "all but one that has finished",
        "one is at it",
        "nobody",
        "one cannot",
        "one is gone",
        "one is gone, others silent",
    ],
)
def test_L32_answers_are_waited_for_while_all_may_still_come_to_something(counts: dict[str, int], over: bool):
    alive = sum(count for name, count in counts.items() if name != "finished")
    answers = Answers(at=START, running=alive, **counts)  # type: ignore[arg-type]
    assert is_over(answers, 4, 0) is over


@ROW("J3", level="pure")
def test_J3_a_failure_comes_before_a_checkpoint_that_was_asked_for():
    zero = {"failure_grace_period": timedelta(minutes=1), "retry_pause_period": timedelta(0)}
    life = Life(saving(timings=zero), hold={OperationKind.CHECKPOINT}).runs()
    life.tell(CheckpointAsked())
    life.sees(running=3, failed=1)
    assert isinstance(life.step, Sleep)
    assert life.step.until == life.now + MINUTES, "the grace runs on while it saves"
    life.after(minutes=1)
    assert (life.attempt, come(life), life.state.restarts) == (2, CheckpointState.DISCARDED, 1)


@ROW("L32", level="pure")
def test_L32_a_preemption_takes_over_a_checkpoint_that_is_under_way():
    life = Life(saving(), hold={OperationKind.CHECKPOINT}).runs()
    life.tell(CheckpointAsked())
    life.after(minutes=2)
    life.tell(PREEMPTED)
    assert (life.kinds().count("checkpoint"), life.state.phase) == (1, Phase.CHECKPOINTING)
    life.answers(done=4).settle()
    assert (life.state.phase, come(life)) == (Phase.SUSPENDED, CheckpointState.COMPLETE)


@ROW("U11", level="pure")
def test_U11_it_is_said_whom_it_waits_for_until_when_and_what_follows():
    life = preempted()
    assert explained(life) == (
        "preempted: a deadline of another | checkpoint 1: 4 pods are asked to save their state | "
        "unless all have saved by then: it is suspended all the same, and resumes from the beginning | "
        "once all have saved: it is suspended, and resumes from there"
    )
    life.after(minutes=10)
    life.answers(done=1, working=3).settle()
    assert "with their extension" in explained(life)
    kills = preempted(saving(on_unresponsive=OnUnresponsive.KILL))
    assert "removed without grace, and resumes from the beginning" in explained(kills)


@ROW("D45", level="pure")
def test_D45_pods_are_given_a_number_that_a_memory_that_goes_back_has_never_given():
    life = Life(saving(), hold={OperationKind.CHECKPOINT}).runs()
    life.tell(PREEMPTED)
    assert _given(life).sent == 0, "a worker of an earlier release, which may take over, would go back to the count"
    life = Life(saving(), hold={OperationKind.CHECKPOINT}).runs()
    life.state = edit(life.state, shows_waits=True)
    before = life.state
    life.tell(PREEMPTED)
    first = _given(life)
    life.tell(Resumed("never mind"))
    life.tell(PREEMPTED)
    second = _given(life)
    assert (second.number, second.sent) == (first.number + 1, first.sent + 1), "also within one second"
    # Temporal is restored from a backup, or the workflow is reset.
    again = Life(saving(), hold={OperationKind.CHECKPOINT}).runs()
    again.state, again.now = before, life.now + MINUTES
    again.tell(PREEMPTED)
    last = _given(again)
    assert (last.number, last.attempt) == (first.number, first.attempt)
    assert last.sent > second.sent
    assert last.sent < 2**31, "programs of 32 bits can read it"


def _given(life: Life) -> CheckpointInput:
    """Return the request as the pods' worker gets it."""
    call = call_of(life.spec, life.state, "uid", life.now)
    assert isinstance(call.argument, CheckpointInput)
    return call.argument
