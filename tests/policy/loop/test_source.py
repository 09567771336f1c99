"""A workload that a custom resource asks for: what that says is obeyed, the later generation last (F4, F7). Pure."""

from __future__ import annotations

import pytest

from holdfast.model import Observation, OperationKind, Phase, PodSet, Reason, Source
from holdfast.model.calls.cluster import Prepared, Reported
from holdfast.model.observation import Asked
from holdfast.policy.loop.fold import fold
from holdfast.policy.loop.operations import begin
from holdfast.policy.loop.submission import submitted
from holdfast.policy.loop.turn import landed
from holdfast.policy.status.explain import explain_of, status_of
from holdfast.policy.values.edit import edit
from holdfast.policy.values.events import Observed, Resumed, SourceSeen, Suspended
from holdfast.policy.values.steps import Run
from holdfast.workflows.operations.dispatch import call_of, deletes_anchor, made_of, target_of
from tests.policy.lives.life import Life, workload

ROW = pytest.mark.row


def life(*holds: OperationKind, suspend: bool = False) -> Life:
    """Return the life of one that was applied, as its workflow begins it."""
    spec = workload(suspend=suspend, source=Source(api_version="example.com/v1", kind="Train", generation=1))
    one = Life(spec=spec, hold=set(holds))
    one.state = submitted(spec, one.now)
    return one


def asked(generation: int, *, suspend: bool) -> Asked:
    return Asked(kind="Train", generation=generation, suspend=suspend)


def seen(one: Life, generation: int, *, suspend: bool) -> Observation:
    """Return what the watch tells where there is no attempt."""
    wish = asked(generation, suspend=suspend)
    return Observation(workload_uid="u", attempt=0, owner_uid="", at=one.now, owner_found=False, asked=wish)


@ROW("F4", level="pure")
def test_F4_one_that_is_suspended_from_the_first_says_so_and_begins_when_it_is_let() -> None:
    one = life(suspend=True)
    one.settle()
    assert one.state.phase is Phase.SUSPENDED
    assert one.state.anchored, "its custom resource is there from the first"
    assert one.state.told is not None, "and is told"
    assert one.state.told.generation == 1
    one.tell(Observed(seen(one, 2, suspend=False)))
    assert one.state.phase is not Phase.SUSPENDED
    assert one.state.attempt is not None
    assert one.state.dropped == 0, "what says nothing of an attempt is no news of one"


@ROW("F7", level="pure")
def test_F7_the_later_generation_has_the_last_word_however_they_come() -> None:
    one = life()
    one.runs()
    state = one.state
    for generation, suspend in ((3, True), (2, False), (3, True)):
        state = fold(state, SourceSeen(asked(generation, suspend=suspend)), one.now)
    assert state.intent.suspend
    assert [cause.message for cause in state.causes][-1] == "suspend was asked for: spec.suspend of its Train is true"
    state = fold(state, SourceSeen(asked(4, suspend=False)), one.now)
    assert not state.intent.suspend


@ROW("F7", level="pure")
def test_F7_only_a_change_of_it_is_a_wish_so_that_a_persons_own_stands() -> None:
    one = life()
    one.runs()
    state = fold(one.state, Suspended("by hand"), one.now)
    state = fold(state, SourceSeen(asked(2, suspend=False)), one.now)
    assert state.intent.suspend, "its generation rose for another reason"
    assert state.asked == asked(2, suspend=False)


@ROW("F8", level="pure")
@pytest.mark.parametrize("preempted", [False, True])
@pytest.mark.parametrize("kueue_first", [False, True])
def test_F8_what_a_signal_suspended_kueue_does_not_resume(*, preempted: bool, kueue_first: bool) -> None:
    one = life()
    one.runs()
    state = edit(one.state, shows_waits=True)  # As every run does that begins now.
    by_hand, evicted = Suspended("by hand", preempted=preempted), SourceSeen(asked(2, suspend=True))
    for event in (evicted, by_hand) if kueue_first else (by_hand, evicted):
        state = fold(state, event, one.now)
    state = fold(state, SourceSeen(asked(3, suspend=False)), one.now)
    assert (state.intent.suspend, state.intent.note) == (True, "by hand")
    assert state.causes[-1].message == (
        "spec.suspend of its Train is false; it stays suspended until `holdfast resume`"
    )
    assert not fold(state, Resumed("done"), one.now).intent.suspend


@ROW("F8", level="pure")
def test_F8_a_resume_before_kueue_admits_it_leaves_the_rest_to_kueue() -> None:
    one = life()
    one.runs()
    state = edit(one.state, shows_waits=True, kueue_admits=True)
    for event in (Suspended("by hand"), SourceSeen(asked(2, suspend=True)), Resumed("done")):
        state = fold(state, event, one.now)
    assert state.intent.suspend, "Kueue has not admitted it"
    assert not fold(state, SourceSeen(asked(3, suspend=False)), one.now).intent.suspend


@ROW("F7", level="pure")
def test_F7_a_preparation_learns_of_a_suspension_before_anything_is_made() -> None:
    one = life(OperationKind.PREPARE)
    one.settle()
    assert one.state.operation is not None
    assert one.state.operation.kind is OperationKind.PREPARE
    one.state = fold(one.state, SourceSeen(asked(2, suspend=True)), one.now)
    one.state = fold(one.state, Prepared(cluster_uid="c", owner_uid="owner", limits=one.state.limits), one.now)
    one.settle()
    assert one.state.phase in {Phase.SUSPENDING, Phase.SUSPENDED}
    assert one.state.attempt is not None
    assert one.state.attempt.submitted_at is None, "nothing was made"


@ROW("F4", level="pure")
def test_F4_an_attempt_runs_where_its_preparation_has_read_and_the_next_one_asks_again() -> None:
    one = life(OperationKind.PREPARE, OperationKind.CREATE)
    one.settle()
    (component,) = one.spec.components
    pod_sets = {component.name: (PodSet(path=component.pod_sets[0].path, labels={"flavor": "spot"}),)}
    assert made_of(one.spec, one.state) == one.spec.components
    one.tell(Prepared(cluster_uid="c", owner_uid="owner", limits=one.state.limits, pod_sets=pod_sets))
    (made,) = made_of(one.spec, one.state)
    assert made.pod_sets == pod_sets[component.name]
    create = call_of(one.spec, one.state, "u", one.now).argument
    assert create.components == (made,)
    assert one.spec.components == (component,), "the workload itself stays as it was asked for"


@ROW("F3", level="pure")
def test_F3_what_stands_for_it_is_its_custom_resource_and_says_what_was_deleted() -> None:
    one = life()
    one.runs()
    target = target_of(one.spec, one.state, "u")
    assert target.anchor is not None
    assert (target.anchor.api_version, target.anchor.kind) == ("example.com/v1", "Train")
    deleted = seen(one, 1, suspend=False).model_copy(update={"anchor_deleting": True})
    state = fold(one.state, Observed(deleted), one.now)
    assert state.intent.cancel
    assert state.intent.cancel_reason is Reason.ANCHOR_DELETED
    assert state.intent.note == "its Train was deleted in the cluster"


@ROW("F2", level="pure")
@pytest.mark.parametrize(
    ("outcome", "deletes"), [(Phase.SUCCEEDED, True), (Phase.FAILED, False), (Phase.CANCELLED, True)]
)
def test_A13_a_custom_resource_goes_once_its_ttl_is_over_and_stays_where_it_has_failed(
    outcome: Phase, *, deletes: bool
) -> None:
    one = life()
    state = one.state.model_copy(update={"outcome": outcome})
    assert deletes_anchor(one.spec, state) is deletes
    anchored = workload()
    assert deletes_anchor(anchored, submitted(anchored, one.now).model_copy(update={"outcome": outcome})) is (
        outcome is Phase.CANCELLED
    )


@ROW("F13", level="pure")
def test_F13_who_created_it_and_who_changed_it_is_told_and_without_a_word_nobody_is_named() -> None:
    one = life()
    spec, state = one.spec, one.state
    assert state.causes == ()
    assert (status_of(spec, state, one.now, "u").by, explain_of(spec, state, one.now).by) == ("", "")
    state = begin(spec, state, Run(OperationKind.REPORT, "it tells"), one.now)
    state = landed(state, Reported(creator="alice"), one.now)
    assert (status_of(spec, state, one.now, "u").by, explain_of(spec, state, one.now).by) == ("alice", "alice")
    (first,) = state.causes
    assert (first.reason, first.message) == (Reason.SUBMITTED, "its Train was created by alice")
    state = fold(state, SourceSeen(Asked(kind="Train", generation=2, suspend=True, by="carol")), one.now)
    assert (
        state.causes[-1].message
        == "suspend was asked for: spec.suspend of its Train is true; its spec was last changed by carol"
    )


@ROW("F3", level="pure")
@pytest.mark.parametrize("foreground", [False, True])
def test_F3_that_the_cluster_deletes_its_pods_first_is_said(*, foreground: bool) -> None:
    one = life()
    one.runs()
    wish = Asked(kind="Train", generation=2, deleting=True, foreground=foreground)
    state = fold(one.state, SourceSeen(wish), one.now)
    assert state.intent.cancel
    assert ("in the foreground: the cluster deletes its pods at once" in state.causes[-1].message) is foreground
