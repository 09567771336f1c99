"""Records how an operation ended: created, replaced, removed, reported, refused, interrupted."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from holdfast import names
from holdfast.model import (
    Answers,
    Attempt,
    Failure,
    FailureClass,
    ObjectRef,
    Operation,
    OperationKind,
    Parking,
    Reason,
    RefusedCreate,
    Remnant,
    Scope,
    Stage,
    State,
)
from holdfast.model.calls.barrier import Lifted
from holdfast.model.calls.cluster import (
    Checkpointed,
    Cleared,
    Created,
    Parked,
    Prepared,
    Removed,
    Replaced,
    Reported,
    Reset,
    Unparked,
)
from holdfast.model.calls.stage import Staged
from holdfast.model.life.state import INTERVALS_KEPT
from holdfast.model.spec.volume_claim import CLAIM
from holdfast.model.words import shortened
from holdfast.policy.attempt.barrier import gathered, lifted, never_starts
from holdfast.policy.attempt.ending import idle
from holdfast.policy.attempt.health import LIVE, pause_of, removal_due
from holdfast.policy.attempt.park import asleep, returned
from holdfast.policy.attempt.requeue import pause as paused
from holdfast.policy.failures.blindness import union
from holdfast.policy.sides.staging import ended as staged
from holdfast.policy.status.audit import written
from holdfast.policy.values.edit import edit
from holdfast.policy.values.events import Looked, OperationEnd, OperationInterrupted, OperationRefused
from holdfast.policy.values.record import cause
from holdfast.policy.verdicts.hold import hold

_REFUSALS = {
    names.ERROR_REFUSED: Reason.REFUSED,
    names.ERROR_CONFLICT: Reason.REFUSED,
    names.ERROR_SUBMISSION_TIMEOUT: Reason.SUBMISSION_TIMEOUT,
}


def refusal(operation: Operation, type_: str, message: str, details: Sequence[Any]) -> OperationRefused | None:
    """Return the refusal that an activity's own error means; None if the operation just runs again."""
    if type_ == names.ERROR_FOREIGN_ATTEMPT:
        return OperationRefused(type_, message, int(details[0]))
    if operation.kind in {OperationKind.PREPARE, OperationKind.CREATE, OperationKind.STAGE}:
        return OperationRefused(type_, message)
    return None


def ended(state: State, event: OperationEnd, now: datetime) -> State:
    """Record how the operation under way ended."""
    operation = state.operation
    state = edit(state, operation=None)
    if operation is None:
        return state
    attempt = state.attempt
    live = attempt is not None and attempt.number == operation.attempt and attempt.stage in LIVE
    told_causes = state.told_causes
    state = _told(state, event, operation)
    if operation.kind is OperationKind.PREPARE:
        accepted = isinstance(event, Prepared) and bool(event.owner_uid)
        state = edit(state, unaccepted=awaits_acceptance(state, operation.attempt) and not accepted)
    match event:
        case Prepared():
            done = operation.report_done
            if event.sequence > (done.sequence if done is not None else operation.report.sequence):
                # The cluster holds a later report, from before this workflow was restored. Report again, above it.
                state = edit(state, told=None, told_causes=told_causes)
            sequence = max(event.sequence, state.sequence)
            state = edit(state, cluster_uid=event.cluster_uid, limits=event.limits, anchored=True, sequence=sequence)
            if attempt is not None and attempt.number == operation.attempt:
                stage = Stage.PREPARED if live else attempt.stage
                attempt = edit(attempt, owner_uid=event.owner_uid, stage=stage, borne=attempt.borne + event.borne)
                attempt = edit(attempt, pod_sets=event.pod_sets) if event.pod_sets else attempt
                state = edit(state, attempt=attempt)
                if event.created is not None:
                    return _created(state, attempt, event.created, now)
        case Created() if attempt is not None and attempt.number == operation.attempt:
            return _created(state, attempt, event, now)
        case Replaced() if attempt is not None and attempt.number == operation.attempt:
            return _replaced(state, attempt, operation, event, now)
        case Staged() | OperationRefused() if operation.kind is OperationKind.STAGE:
            return staged(state, event, operation.attempt, now)
        case Cleared() if live and attempt is not None:
            return _cleared(state, attempt, event, now)
        case Lifted() if live and attempt is not None and attempt.barrier is not None:
            if never_starts(state, operation, event):
                why = f"the programs of attempt {attempt.number} cannot start: {event.refused}"
                return _refused(state, names.ERROR_REFUSED, why, now)
            return lifted(state, attempt, attempt.barrier, event, now)
        case Parked() if live and attempt is not None and attempt.parking is Parking.GOING:
            return _parked(state, attempt, event, now)
        case Unparked() if live and attempt is not None:
            return _unparked(state, attempt, event, now)
        case Checkpointed(answers=answers, blind=blind):
            request = state.checkpoint
            state = edit(state, blind=union((*state.blind, *blind), INTERVALS_KEPT))
            if live and request is not None:
                return edit(state, checkpoint=edit(request, answers=edit(answers, at=now)))
        case Removed() if attempt is None or attempt.number == operation.attempt:
            return _removed(state, event, operation, now)
        case Reported(anchored=False) if operation.anchors:
            # No anchor shows it: the first attempt tells its causes.
            return edit(state, anchored=False, told_causes=told_causes)
        case Reported(sequence=sequence) if sequence > state.sequence:
            # The cluster holds a later report, from before this workflow was restored. Report again, above it.
            return edit(state, sequence=sequence, told=None, told_causes=told_causes)
        case Reported() if operation.audits:
            return written(state, operation.audits)
        case OperationInterrupted(borne, objects):
            if attempt is not None and attempt.number == operation.attempt:
                # The next operation continues where this one stopped.
                if operation.kind is OperationKind.REPLACE:
                    attempt = edit(attempt, borne_again=attempt.borne_again + borne)
                else:
                    attempt = edit(attempt, borne=attempt.borne + borne)
                state = edit(state, attempt=edit(attempt, objects=_known(attempt, objects)))
            if operation.creates and attempt is not None and attempt.stage in LIVE:
                # Its owner may be gone and its pods not: nothing more is made beside them.
                why = "it was broken off, and is replaced whole"
                state = edit(state, attempt=edit(state.attempt or attempt, interrupted=why))
            if operation.kind is OperationKind.PREPARE:
                # It may have created the anchor before it was interrupted.
                return edit(state, anchored=True)
        case OperationRefused(names.ERROR_FOREIGN_ATTEMPT, message, newest):
            return hold(state, shortened(message), newest, now)
        case OperationRefused(type_, message):
            return _refused(state, type_, message, now)
        case (
            Looked()
            | Created()
            | Lifted()
            | Replaced()
            | Staged()
            | Cleared()
            | Parked()
            | Unparked()
            | Removed()
            | Reported()
            | Reset()
        ):
            pass  # It changed nothing, or is about an earlier attempt. Named, so that the type checker finds a new one.
    return state


def awaits_acceptance(state: State, number: int) -> bool:
    """Whether an attempt's components are yet to be accepted by the API server, which then refuses unknown fields.

    What it accepted once stays accepted: later attempts are made as the server of that day reads them.
    """
    return number == 1 or state.unaccepted


def made_nothing(state: State) -> bool:
    """Whether no component can exist: no attempt has begun, or the first was refused before it had an owner.

    A removal then needs no right to read their kinds: who may not create a kind may not read it, either.
    """
    attempt = state.attempt
    if attempt is None:
        return True
    refused = attempt.number == 1 and attempt.launch_failure is not None
    return refused and not attempt.owner_uid and not attempt.objects


def _created(state: State, attempt: Attempt, event: Created, now: datetime) -> State:
    """Record how a submission ended (rows S2, S4, S12). The uid of its owner is the submission's id."""
    failure, submission = event.failure, attempt.submission
    attempt = edit(attempt, objects=event.objects)
    if attempt.stage not in LIVE:
        return edit(state, attempt=attempt)
    if event.interrupted:
        return edit(state, attempt=edit(attempt, interrupted=event.interrupted))
    if failure is None:
        what = f"what attempt {attempt.number} begins with" if attempt.waiting else f"attempt {attempt.number}"
        text = f"{what} is created ({submission})"
        state = edit(state, attempt=edit(attempt, stage=Stage.SUBMITTED, submitted_at=now, interrupted=""))
        if state.observation is not None and state.observation.complete:
            # It was seen complete before all of it was created. What was created since may have changed that.
            state = edit(state, observation=None, looked_at=None, in_doubt=True)
        return cause(state, Reason.SUBMISSION_SUCCEEDED, text, now)
    if event.exhausted and state.policy.refused_create is RefusedCreate.WAIT:
        # Refusals were tolerated for the whole submission timeout, so this one is final.
        failure = edit(failure, reason=Reason.SUBMISSION_TIMEOUT)
    state = edit(state, attempt=edit(attempt, launch_failure=failure))
    return cause(state, Reason.SUBMISSION_FAILED, f"{submission}: {failure.sentence()}", now)


def _replaced(state: State, attempt: Attempt, operation: Operation, event: Replaced, now: datetime) -> State:
    """Record the new objects, of which nothing is known yet; components that joined meanwhile are still to be made."""
    ended = [name for name in attempt.replacing if name in operation.launches and name not in event.left]
    again = {name: _copies_left(attempt, operation, name) for name in ended}
    made = [name for name in ended if not again[name]]
    left = () if event.failure is not None else tuple(name for name in attempt.replacing if name not in made)
    copies = {name: again.get(name, known) for name, known in attempt.replacing_copies.items() if name in left}
    attempt = edit(
        attempt,
        objects=_known(attempt, event.objects),
        borne_again=attempt.borne_again + event.borne if left else 0.0,
        replacing=left,
        replacing_copies=copies,
        parted=bool(left),
        launch_failure=event.failure,
        warming={**attempt.warming, **dict.fromkeys(made, now)},
    )
    attempt = gathered(attempt, now)
    return edit(state, attempt=attempt, observation=None, looked_at=None, in_doubt=True)


def _copies_left(attempt: Attempt, operation: Operation, name: str) -> tuple[int, ...]:
    """Return the copies of a component that joined its recreation while this one made other copies of it (row J23)."""
    did, wanted = operation.copies.get(name), attempt.replacing_copies.get(name)
    if did is None:
        return ()
    # None: the whole component has joined, and is made with the copies that have just been made.
    return did if wanted is None else tuple(index for index in wanted if index not in did)


def _known(attempt: Attempt, made: tuple[ObjectRef, ...]) -> tuple[ObjectRef, ...]:
    """Return the objects of an attempt, each as last created."""
    return tuple({(one.api_version, one.kind, one.name): one for one in (*attempt.objects, *made)}.values())


def _cleared(state: State, attempt: Attempt, event: Cleared, now: datetime) -> State:
    """Record whether nothing of a settled workload is active any more, and the evidence of what was."""
    if event.evidence is not None:
        attempt = edit(attempt, evidence=event.evidence)
    if not event.done:
        return edit(state, attempt=attempt)
    seen = state.observation
    state = edit(state, attempt=edit(attempt, cleared=True), observation=idle(seen) if seen is not None else None)
    found = f"; {event.evidence.sentence()}" if event.evidence is not None else ""
    text = f"nothing of attempt {attempt.number} is active any more; what has ended is kept{found}"
    return cause(state, Reason.DELETION_COMPLETE, text, now)


def _parked(state: State, attempt: Attempt, event: Parked, now: datetime) -> State:
    """Record that an attempt is suspended in place with no pod left, or why it cannot be (J14)."""
    if event.refused:
        return edit(state, attempt=edit(attempt, interrupted=shortened(event.refused)))
    if not event.done:
        return edit(state, attempt=edit(attempt, turns=max(attempt.turns, event.turn + 1 - event.turn % 2)))
    seen = state.observation
    state = edit(state, attempt=edit(attempt, parking=Parking.PARKED), unhealthy=None, preempted_at=None)
    state = edit(state, observation=asleep(seen) if seen is not None else None)
    text = f"attempt {attempt.number} is suspended in place: no pod of it is left"
    return cause(state, Reason.SUSPENDED_IN_PLACE, text, now)


def _unparked(state: State, attempt: Attempt, event: Unparked, now: datetime) -> State:
    """Record that an attempt suspended in place is resumed and not yet observed, or why it cannot be (J14)."""
    if event.refused:
        why = f"attempt {attempt.number} cannot be resumed in place: {event.refused}"
        return edit(state, attempt=edit(attempt, interrupted=shortened(why)))
    if not event.done:
        return edit(state, attempt=edit(attempt, turns=max(attempt.turns, event.turn + event.turn % 2)))
    if event.pod_sets is not None:
        attempt = edit(attempt, pod_sets=event.pod_sets)
    state = edit(state, attempt=gathered(returned(attempt, now), now))
    return edit(state, observation=None, looked_at=None, in_doubt=True)


def _told(state: State, event: OperationEnd, operation: Operation) -> State:
    """Record which status has reached the cluster. An interrupted operation may or may not have reported it."""
    match event:
        case OperationInterrupted() | OperationRefused() | Staged() | Reset():
            return state  # Staging reports no status: at first no object exists that could hold one.
        case Created(failure=failure, interrupted=interrupted) if failure is not None or interrupted:
            ended = False
        case Prepared(created=created) if created is None or created.failure is not None or created.interrupted:
            ended = False
        case Replaced(failure=failure, left=left) if failure is not None or left:
            ended = False
        case Removed(gone=gone):
            ended = gone
        case Cleared(done=done) | Lifted(done=done) | Parked(done=done) | Unparked(done=done):
            ended = done
        case Prepared() | Created() | Replaced() | Looked() | Checkpointed() | Reported():
            ended = True
    # A status left to the next operation counts as reported: that operation reports it before its own.
    owed = operation.report if isinstance(event, Looked) and event.untold else None
    told = (operation.report_done if ended else None) or operation.report
    # The operation's last report included the causes it added itself. Other causes since then are still to be reported.
    undisturbed = ended and state.causes_total == operation.causes
    causes = max(operation.causes, operation.causes_done) if undisturbed else operation.causes
    return edit(state, told=told, told_causes=max(state.told_causes, causes), owed=owed)


def _removed(state: State, event: Removed, operation: Operation, now: datetime) -> State:
    kind = operation.kind
    attempt = state.attempt
    state = edit(state, blind=union((*state.blind, *event.blind), INTERVALS_KEPT))
    if state.checkpoint is not None and state.checkpoint.conflict is not None:
        # A worker that follows no checkpoint returns no answers. A save that nobody observed counts as not done.
        answers = event.answers or Answers(at=now)
        state = edit(state, checkpoint=edit(state.checkpoint, answers=edit(answers, at=now)))
    if event.evidence is not None and attempt is not None:
        attempt = edit(attempt, evidence=event.evidence)
        state = edit(state, attempt=attempt)
    if event.gone:
        if operation.releases:
            state = edit(state, anchored=False)
        if attempt is None or attempt.stage is Stage.GONE:
            return state
        pause = paused(attempt, pause_of(state, attempt))
        gone = edit(attempt, stage=Stage.GONE, gone_at=now, remnants=(), remnants_total=0)
        state = edit(
            state,
            attempt=gone,
            observation=None,
            looked_at=None,
            in_doubt=False,
            unhealthy=None,
            preempted_at=None,
            pause_until=now + pause if attempt.pause_after else None,
            claims=event.claims,
        )
        kept = f"; kept: {event.claims.sentence()}" if event.claims is not None else ""
        found = f"; {attempt.evidence.sentence()}" if attempt.evidence is not None else ""
        text = f"attempt {attempt.number} is {_gone(attempt)}{kept}{found}"
        return cause(state, Reason.DELETION_COMPLETE, text, now)
    if attempt is None:
        return state
    # Part of its time passed unobserved, perhaps before the deletion was sent. The removal gets that time back.
    may_go_on = kind is OperationKind.REMOVE and now < removal_due(state, attempt, now)
    if may_go_on or (state.shows_waits and attempt.stage is Stage.GONE and _are_own_claims(event.remnants)):
        return edit(state, attempt=edit(attempt, remnants=event.remnants, remnants_total=event.remnants_total))
    left = "; ".join(each.sentence() for each in event.remnants[:3])
    more = f" and {event.remnants_total - 3} more" if event.remnants_total > 3 else ""
    changed = event.remnants != attempt.remnants
    state = edit(
        state,
        attempt=edit(
            attempt,
            stage=Stage.FORCING,
            remnants=event.remnants,
            remnants_total=event.remnants_total,
            forced_rounds=attempt.forced_rounds + (1 if kind is OperationKind.FORCE_REMOVE else 0),
        ),
    )
    if kind is OperationKind.REMOVE:
        return cause(state, Reason.DELETION_FORCED, f"forcing the deletion of what is left: {left}{more}", now)
    return cause(state, Reason.DELETION_BLOCKED, f"still there: {left}{more}", now) if changed else state


def _are_own_claims(remnants: Collection[Remnant]) -> bool:
    """Whether all that is left of what was proven gone are claims that somebody mounts: nothing of it is forced."""
    return all(one.kind == CLAIM[1] for one in remnants)


def _gone(attempt: Attempt) -> str:
    """Say what is proven: the pods of a Down node are gone, but their processes may still run."""
    if not attempt.stranded:
        return "proven gone"
    names = ", ".join(attempt.stranded[:3]) + (f" and {more} more" if (more := len(attempt.stranded) - 3) > 0 else "")
    silent = "that node is" if len(attempt.stranded) == 1 else "they are"
    return f"gone from the API; it may still run on {names} until {silent} heard again or powered off"


def _refused(state: State, type_: str, message: str, now: datetime) -> State:
    """Record a refusal as a launch failure. A refused first attempt has created nothing."""
    attempt = state.attempt
    if attempt is None or attempt.stage not in LIVE:
        return state
    failure = Failure(
        cls=FailureClass.LAUNCH,
        scope=Scope.WORKLOAD,
        reason=_REFUSALS.get(type_, Reason.CREATE_FAILED),
        time=now,
        message=shortened(message),
        attempt=attempt.number,
    )
    state = edit(state, attempt=edit(attempt, launch_failure=failure))
    return cause(state, Reason.SUBMISSION_FAILED, failure.sentence(), now)
