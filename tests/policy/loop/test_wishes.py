"""What people wish, remembered and recorded in their words or in ours (rows A11, A16, U12)."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import Any

import pytest

from holdfast.model import (
    Action,
    ActionKind,
    Held,
    Intent,
    OperationKind,
    Phase,
    Policy,
    Reason,
    Source,
    Stage,
    Timings,
)
from holdfast.model.labels import KUEUE_QUEUE
from holdfast.model.observation import Asked
from holdfast.policy.loop.change import PolicyChange, changed
from holdfast.policy.loop.fold import fold
from holdfast.policy.loop.submission import submitted
from holdfast.policy.status.explain import explain_of
from holdfast.policy.values.addressee import misdirected
from holdfast.policy.values.decision import Cancel, Release, Retry, Suspend
from holdfast.policy.values.edit import edit
from holdfast.policy.values.events import (
    NOT_RETRIED,
    Cancelled,
    Event,
    PolicyChanged,
    Reconfigured,
    Resumed,
    Retried,
    SourceSeen,
    Suspended,
)
from holdfast.policy.verdicts.decide import decide
from tests.policy.lives.elements import Elements, config
from tests.policy.lives.life import START, Life, workload
from tests.policy.lives.moments import moment

ROW = pytest.mark.row
OTHER = Policy(timings=Timings(failure_grace_period=timedelta(seconds=1)))


@ROW("U12", level="pure")
@pytest.mark.parametrize(
    ("at", "wish", "reason", "message"),
    [
        ("running", Suspended(), Reason.SUSPEND_REQUESTED, "suspend was asked for"),
        ("running", Suspended(preempted=True), Reason.PREEMPTED, "preempted"),
        ("suspended", Resumed(), Reason.RESUMED, "resume was asked for"),
        ("running", Cancelled(), Reason.CANCEL_REQUESTED, "its deletion was asked for"),
        ("running", Cancelled(reason=Reason.ANCHOR_DELETED), Reason.ANCHOR_DELETED, "its deletion was asked for"),
        ("pausing", Retried(), Reason.RETRY_REQUESTED, "retry was asked for"),
        ("running", PolicyChanged(OTHER), Reason.POLICY_CHANGED, "the policy was changed"),
        ("running", Reconfigured(("adl", "pe-1")), Reason.CONFIGURATION_CHANGED, "adl, pe-1 changed"),
    ],
)
def test_U12_each_wish_is_recorded_with_its_note_or_as_what_it_is(at: str, wish: Event, reason: Reason, message: str):
    life = moment(at)
    for note, said in (("", message), ("mind the gap", f"{message}: mind the gap")):
        last = fold(life.state, dataclasses.replace(wish, note=note), life.now).causes[-1]  # type: ignore[type-var]
        assert (last.reason, last.message, last.time) == (reason, said, life.now)


@ROW("U12", level="pure")
@pytest.mark.parametrize("suspend", [True, False])
def test_U12_what_is_submitted_suspended_wants_to_be_so_and_says_why(suspend: bool):
    intent = submitted(workload(suspend=suspend), START).intent
    assert (intent.suspend, intent.note) == (suspend, "submitted suspended" if suspend else "")


def settled(*, failed: bool = False, **timings: str | None) -> Life:
    """Return the life of a workload that has succeeded or failed, and whose resources are held."""
    spans = Timings.model_validate({"failure_grace_period": "0s", **timings})
    life = Life(spec=workload(policy=Policy(timings=spans, default=Action(kind=ActionKind.FAIL))))
    life.state = edit(life.state, shows_waits=True)
    return life.runs().sees(failed=1, why="Error") if failed else life.runs().sees(succeeded=2, complete=True)


def told_to_wait(life: Life, **timings: str | None) -> Life:
    return life.tell(PolicyChanged(changed(life.state.policy, PolicyChange.model_validate({"timings": timings}))))


@ROW("A13", level="pure")
@pytest.mark.parametrize(("span", "days"), [("720h", 30), (None, 400)])
def test_A13_a_longer_success_ttl_keeps_what_is_held_already_for_longer(span: str | None, days: int):
    life = told_to_wait(settled(success_ttl="7d").after(days=6), successTtl=span)
    assert life.after(days=days - 7).kinds()[-1] is not OperationKind.REMOVE
    assert life.state.phase is Phase.SUCCEEDED
    if span is not None:
        assert life.waits_for == "success TTL"
        assert OperationKind.REMOVE in life.after(days=1).kinds()


@ROW("A13", level="pure")
@pytest.mark.parametrize("was", ["7d", None])
def test_A13_a_shorter_success_ttl_counts_from_success_and_may_be_over(was: str | None):
    life = settled(success_ttl=was).after(hours=2)
    assert OperationKind.REMOVE not in life.kinds()
    assert OperationKind.REMOVE in told_to_wait(life, successTtl="1h").kinds()


@ROW("A12", level="pure")
def test_A12_a_longer_hold_of_a_failed_workload_counts_from_its_failure():
    life = settled(failed=True, deletion_on_failure_grace_period="1h").after(minutes=50)
    assert life.state.phase is Phase.FAILED
    told_to_wait(life, deletionOnFailureGracePeriod="2h").after(minutes=69)
    assert OperationKind.REMOVE not in life.kinds()
    assert OperationKind.REMOVE in life.after(minutes=2).kinds()


@ROW("A8", level="pure")
def test_A8_another_retry_pause_counts_from_the_proof_that_all_is_gone():
    life = Life(spec=workload(timings={"retry_pause_period": "1h"}))
    life.state = edit(life.state, shows_waits=True)
    life.runs().sees(failed=1, job_failed=True).after(minutes=10)
    assert (life.state.phase, life.state.attempt and life.state.attempt.stage) == (Phase.RESETTING, Stage.GONE)
    told_to_wait(life, retryPausePeriod="20m").after(minutes=9)
    assert life.state.attempt is not None
    assert (life.waits_for, life.state.attempt.number) == ("retry pause", 1)
    life.after(minutes=2)
    assert life.state.attempt.number == 2


@ROW("A13", level="pure")
def test_A13_a_run_of_an_earlier_release_keeps_the_wait_that_it_began_with():
    life = settled(success_ttl="7d").after(days=6)
    life.state = edit(life.state, shows_waits=False)
    assert OperationKind.REMOVE in told_to_wait(life, successTtl="720h").after(days=1, seconds=1).kinds()


@ROW("A13", level="pure")
def test_A13_what_is_being_removed_is_not_held_again():
    life = settled(success_ttl="1h")
    life.hold = {OperationKind.REMOVE}
    life.after(hours=2)
    assert told_to_wait(life, successTtl="720h").state.hold_until is None


def test_a_note_of_any_length_is_kept_short():
    life = moment("pausing")
    for wish in (Suspended("x" * 5000), Cancelled("x" * 5000), Retried("x" * 5000)):
        assert len(fold(life.state, wish, life.now).intent.note) == 1024


@pytest.mark.parametrize(
    ("at", "wish", "intent"),
    [
        ("running", Suspended("n"), {"suspend": True, "suspend_reason": Reason.SUSPEND_REQUESTED, "note": "n"}),
        ("running", Suspended("n", preempted=True), {"suspend": True, "suspend_reason": Reason.PREEMPTED, "note": "n"}),
        ("suspended", Resumed("n"), {"suspend": False, "note": ""}),
        ("running", Cancelled("n"), {"cancel": True, "cancel_reason": Reason.CANCEL_REQUESTED, "note": "n"}),
        ("pausing", Retried("n"), {"retry": True, "note": "n"}),
        ("running", Retried("n"), {}),
    ],
)
def test_a_wish_changes_what_is_wanted_and_nothing_else(at: str, wish: Event, intent: dict[str, Any]):
    life = moment(at)
    assert fold(life.state, wish, life.now).intent == edit(life.state.intent, **intent)


@pytest.mark.parametrize(
    ("at", "may"),
    [
        ("running", False),
        ("no news yet", False),
        ("suspended", False),
        ("succeeded", False),
        ("failed", False),
        ("cancelling", False),
        ("resetting", True),
        ("pausing", True),
        ("failed and kept", True),
        ("held", True),
    ],
)
def test_retry_means_something_only_where_there_is_a_pause_or_a_failure_that_is_kept(at: str, may: bool):
    life = moment(at)
    after = fold(life.state, Retried(), life.now)
    assert after.intent.retry is may
    nothing = "what is left of it is being removed: retry it once that has ended" if at == "failed" else ""
    refused = f"{NOT_RETRIED}{nothing or 'there is nothing to retry'}"
    assert (after.causes[-1].message == refused) is not may
    assert after.causes[-1].message.startswith(NOT_RETRIED) is not may


@ROW("F8", level="pure")
def test_F8_one_whose_quota_kueue_has_given_to_others_is_not_tried_again():
    source = Source(api_version="jobset.x-k8s.io/v1alpha2", kind="JobSet", generation=1, labels={KUEUE_QUEUE: "team"})
    assert submitted(workload(source=source), START).kueue_admits
    assert not submitted(workload(source=edit(source, labels={})), START).kueue_admits
    life = moment("failed and kept")
    state = edit(life.state, kueue_admits=True, shows_waits=True)  # As every run does that begins now.
    after = fold(state, Retried("again"), life.now)
    assert after.causes[-1].message == (
        "retry was asked for, but Kueue counts it as finished: delete it, and apply it again"
    )
    assert decide(life.spec, after, life.now) == decide(life.spec, state, life.now)
    spec = edit(life.spec, source=source)
    assert explain_of(spec, state, life.now).unblock.startswith("delete the JobSet, and apply it again: Kueue counts")
    held = Held(why="another attempt was seen", since=life.now)
    assert fold(edit(state, held=held), Retried(), life.now).intent.retry, "explain offers it"
    pausing = moment("pausing")
    assert fold(edit(pausing.state, kueue_admits=True), Retried(), pausing.now).intent.retry, "its quota is its own"


@ROW("F8", level="pure")
@ROW("A11", level="pure")
@pytest.mark.parametrize("preempted", [False, True])
def test_F8_what_waits_for_kueue_is_resumed_by_kueue_alone(preempted: bool):
    source = Source(api_version="jobset.x-k8s.io/v1alpha2", kind="JobSet", generation=1, labels={KUEUE_QUEUE: "team"})
    spec = workload(source=source, queue="team", suspend=not preempted)
    life = Life(spec=spec)
    life.state = edit(submitted(spec, START), shows_waits=True)  # As every run does that begins now.
    life.settle()
    if preempted:
        life.sees(running=2).tell(SourceSeen(Asked(kind="JobSet", generation=2, suspend=True)))
    told = explain_of(life.spec, life.state, life.now)
    assert (told.phase, told.why) == (Phase.SUSPENDED, "it waits for Kueue to admit it to queue team")
    assert told.unblock == (
        "free quota in Kueue's queue team, or wait: "
        "`kubectl -n default describe workloads.kueue.x-k8s.io` says what it lacks"
    )
    made = len(life.ran)
    life.tell(Resumed("by hand"))
    assert (life.state.phase, life.state.intent.suspend, len(life.ran)) == (Phase.SUSPENDED, True, made)
    assert life.state.causes[-1].message == (
        "resume was asked for, but Kueue has not admitted it: spec.suspend of its JobSet is true"
    )
    life.tell(SourceSeen(Asked(kind="JobSet", generation=3)))
    assert (life.state.phase, life.state.intent.suspend) == (Phase.RESUMING, False)
    life.tell(Suspended("by hand"))
    assert explain_of(life.spec, life.state, life.now).unblock == "`holdfast resume default/jobset/train-llm`"
    life.tell(Resumed("by hand"))
    assert not life.state.intent.suspend, "its quota is its own"


def test_a_second_cancellation_is_no_news():
    life = moment("cancelling")
    assert fold(life.state, Cancelled("again", Reason.ANCHOR_DELETED), life.now) == life.state


@ROW("U8", level="pure")
def test_U8_a_preemption_counts_from_its_first_wish_and_only_while_something_is_there():
    life = Life(hold={OperationKind.REMOVE}).runs().tell(Suspended(preempted=True))
    begun = life.now
    life.after(minutes=1).tell(Suspended(preempted=True))
    assert life.state.preempted_at == begun
    gone = moment("suspended")
    assert fold(gone.state, Suspended(preempted=True), gone.now).preempted_at is None
    assert fold(Life().state, Suspended(preempted=True), gone.now).preempted_at is None


@ROW("U8", level="pure")
def test_U8_the_removal_of_what_has_succeeded_is_no_preemption_and_that_of_what_failed_is_one():
    done = moment("succeeded").tell(Suspended(preempted=True))
    assert done.state.preempted_at is None
    life = Life().runs()
    life.state = fold(edit(life.state, shows_waits=True), Suspended(preempted=True), life.now)
    life.sees(succeeded=2, complete=True)
    assert (life.state.phase, life.state.preempted_at) == (Phase.SUCCEEDED, None)
    failed = moment("failed and kept")
    failed.hold = {OperationKind.REMOVE}
    failed.tell(Suspended(preempted=True))
    assert failed.state.preempted_at == failed.now, "what was kept of it is removed for the preemption"


# --- what is decided on them


def wished(at: str, **intent: Any) -> Life:
    life = moment(at)
    life.state = edit(life.state, intent=edit(Intent(), **intent))
    return life


@pytest.mark.parametrize(
    ("at", "intent", "decision"),
    [
        ("running", {"suspend": True}, Suspend(Reason.SUSPEND_REQUESTED, "suspended")),
        ("running", {"suspend": True, "note": "n"}, Suspend(Reason.SUSPEND_REQUESTED, "suspended: n")),
        ("running", {"suspend": True, "suspend_reason": Reason.PREEMPTED}, Suspend(Reason.PREEMPTED, "preempted")),
        ("running", {"cancel": True}, Cancel(Reason.CANCEL_REQUESTED, "its deletion was asked for")),
        ("running", {"cancel": True, "note": "n"}, Cancel(Reason.CANCEL_REQUESTED, "its deletion was asked for: n")),
        (
            "running",
            {"cancel": True, "suspend": True, "cancel_reason": Reason.ANCHOR_DELETED},
            Cancel(Reason.ANCHOR_DELETED, "its deletion was asked for"),
        ),
        ("pausing", {"retry": True}, Retry("a person asked not to wait")),
        ("pausing", {"retry": True, "note": "n"}, Retry("n")),
        ("failed and kept", {"retry": True}, Retry("a person asked for another try")),
        ("failed and kept", {"retry": True, "note": "n"}, Retry("n")),
        ("failed and kept", {"cancel": True}, Release(Reason.CANCEL_REQUESTED, "its deletion was asked for")),
        ("failed and kept", {"suspend": True}, Release(Reason.SUSPEND_REQUESTED, "its suspension was asked for")),
        ("succeeded", {"cancel": True}, Release(Reason.CANCEL_REQUESTED, "its deletion was asked for")),
        ("held", {"retry": True}, Retry("a person asked to remove what is there and begin anew")),
        ("held", {"retry": True, "note": "n"}, Retry("n")),
        ("held", {"cancel": True}, Cancel(Reason.CANCEL_REQUESTED, "its deletion was asked for")),
        ("held", {"cancel": True, "retry": True}, Cancel(Reason.CANCEL_REQUESTED, "its deletion was asked for")),
    ],
)
def test_deletion_goes_before_suspension_and_both_before_all_else(at: str, intent: dict[str, Any], decision: object):
    life = wished(at, **intent)
    assert decide(life.spec, life.state, life.now) == decision


ANEW = "a person asked to remove what is there and begin anew"
REMOVE = "a person asked to remove what is there"


@pytest.mark.parametrize(
    ("at", "intent", "decision"),
    [
        ("failed and kept", {"retry": True}, Retry(ANEW)),
        ("failed and kept", {"retry": True, "note": "n"}, Retry("n")),
        ("failed and kept", {"retry": True, "cancel": True}, Release(Reason.CANCEL_REQUESTED, REMOVE)),
        ("failed and kept", {"cancel": True}, Release(Reason.CANCEL_REQUESTED, REMOVE)),
        ("failed and kept", {"cancel": True, "note": "n"}, Release(Reason.CANCEL_REQUESTED, "n")),
        ("succeeded", {"retry": True}, Release(Reason.CANCEL_REQUESTED, REMOVE)),
    ],
)
def test_held_with_its_outcome_settled_only_a_failure_can_begin_anew(at: str, intent: dict[str, Any], decision: object):
    life = wished(at, **intent)
    life.state = edit(life.state, held=moment("held").state.held)
    assert decide(life.spec, life.state, life.now) == decision


def test_resumed_before_it_has_gone_it_begins_anew_without_a_pause():
    life = moment("suspending").tell(Resumed())
    life.hold.clear()
    life.finish().settle()
    assert (life.attempt, life.state.phase, life.state.pause_until) == (2, Phase.RESUMING, None)


# --- what retry brings back


def test_retry_of_a_failure_that_is_kept_forgets_the_failure_and_what_was_used():
    life = moment("failed and kept")
    since = life.state.since
    life.hold = {OperationKind.REMOVE}
    life.after(minutes=1).tell(Retried("fixed"))
    assert (life.state.outcome, life.state.outcome_failure, life.state.hold_until) == (None, None, None)
    assert (life.state.used, life.state.intent.retry) == ({}, False)
    assert (life.state.phase, life.state.reason, life.state.message) == (
        Phase.RESETTING,
        Reason.RETRY_REQUESTED,
        "fixed",
    )
    assert life.state.since == life.now != since
    attempt = life.state.attempt
    assert attempt is not None
    assert (attempt.stage, attempt.removing_at, attempt.pause_after) == (Stage.REMOVING, life.now, False)


def test_retry_of_what_is_held_begins_the_removal_of_all_that_is_there():
    life = moment("held")
    life.hold = {OperationKind.REMOVE}
    life.after(minutes=1).tell(Retried("the old ones may go"))
    state, attempt = life.state, life.state.attempt
    assert (state.phase, state.reason, state.message) == (
        Phase.RESETTING,
        Reason.RETRY_REQUESTED,
        "the old ones may go",
    )
    assert state.since == life.now
    assert attempt is not None
    assert (attempt.stage, attempt.removing_at, attempt.everything) == (Stage.REMOVING, life.now, True)
    assert explain_of(life.spec, state, life.now).next[-1].what == "once all is gone: attempt 5"


def test_retry_in_a_pause_is_used_up_by_it():
    life = moment("pausing").tell(Retried())
    assert (life.attempt, life.state.intent.retry, life.state.pause_until) == (2, False, None)
    life.sees(failed=1, job_failed=True)
    assert life.waits_for == "retry pause", "the next pause is waited for again"


@ROW("S8", level="pure")
def test_S8_a_configuration_that_changes_before_anything_is_made_is_only_recorded():
    life = Elements()
    life.configured(config("v2"))
    assert life.reasons()[0] == Reason.CONFIGURATION_CHANGED


# --- whose a wish is, and for how long


@ROW("D46", level="pure")
@pytest.mark.parametrize(("uid", "taken"), [("", True), ("mine", True), ("another", False)])
def test_D46_a_wish_is_for_the_submission_that_it_names(uid: str, taken: bool):
    why = misdirected(uid, "mine")
    assert (why == "") is taken
    assert taken or ("another" in why and "mine" in why)


@ROW("D53", level="pure")
@pytest.mark.parametrize(
    ("at", "retried", "taken"),
    [("failed and kept", False, True), ("failed and kept", True, False), ("running", False, False)],
)
def test_D53_a_cancel_that_names_phases_holds_while_the_outcome_stands(at: str, retried: bool, taken: bool):
    life = moment(at)
    state = fold(life.state, Retried(), life.now) if retried else life.state
    ended = tuple(phase for phase in Phase if phase.ended)
    after = fold(state, Cancelled("it is submitted again", phases=ended), life.now)
    assert after.intent.cancel is taken
    assert (after.causes[-1].reason is Reason.SIGNAL_NOT_UNDERSTOOD) is not taken
    assert fold(state, Cancelled("enough"), life.now).intent.cancel, "one that names none always holds"
