"""Checkpoints: when pods are asked to save, how long they have, and what result their answers give (row L32)."""

from __future__ import annotations

from datetime import datetime

from holdfast.model import (
    Answers,
    Attempt,
    CheckpointRequest,
    CheckpointState,
    Failure,
    OnUnresponsive,
    Phase,
    Reason,
    Saved,
    Stage,
    State,
    Workload,
)
from holdfast.model.calls.cluster import Checkpointed
from holdfast.model.words import counted
from holdfast.policy.attempt.health import LIVE, current
from holdfast.policy.attempt.park import is_orphaned
from holdfast.policy.failures.blindness import due
from holdfast.policy.values.addressee import Addressed
from holdfast.policy.values.decision import Checkpoint, Decision, Expire, Ignore, Look
from holdfast.policy.values.displayed import displayed
from holdfast.policy.values.edit import edit
from holdfast.policy.values.record import cause

_ENDS = {
    CheckpointState.COMPLETE: Reason.CHECKPOINT_COMPLETE,
    CheckpointState.PARTIAL: Reason.CHECKPOINT_PARTIAL,
    CheckpointState.DISCARDED: Reason.CHECKPOINT_DISCARDED,
}


class CheckpointAsk(Addressed):
    """A user's request that a workload saves its state and keeps running."""

    note: str = ""


def check_ask(spec: Workload, state: State) -> int:
    """Check that the workload can be asked to save its state now, and return the number of the new request.

    Raises:
        ValueError: if not, saying why and what to do.
    """
    if spec.checkpoint is None:
        raise ValueError("it has no checkpoint, so that its pods cannot be asked: submit it with one")
    if checkpoint_request(state) is not None or state.intent.checkpoint:
        raise ValueError("a checkpoint is under way already: `explain` says how far it is")
    phase = displayed(state).phase
    if state.intent.suspend or state.intent.cancel or phase is not Phase.RUNNING or not may_ask(spec, state):
        raise ValueError(f"it is {phase.value}: only what runs can save its state")
    return state.checkpoint.number + 1 if state.checkpoint is not None else 1


def checkpoint_request(state: State) -> CheckpointRequest | None:
    """Return the request that is under way."""
    request = state.checkpoint
    return request if request is not None and request.state is CheckpointState.REQUESTED else None


def may_ask(spec: Workload, state: State) -> bool:
    """Whether the living attempt has a state to save: it was ready once, and pods of it run, as far as is known."""
    attempt = state.attempt
    if spec.checkpoint is None or attempt is None or state.outcome is not None or attempt.parking is not None:
        return False
    if attempt.stage is not Stage.SUBMITTED or attempt.ready_at is None:
        return False
    if attempt.launch_failure is not None or attempt.interrupted:
        return False
    seen = current(state)
    return not (seen is not None and is_orphaned(seen)) and running(spec, state) > 0


def running(spec: Workload, state: State) -> int:
    """Return how many pods that would be asked are running; without an observation, how many are expected."""
    seen, savers = current(state), spec.savers
    if seen is None:
        return sum(one.expected_pods for one in spec.components if one.name in savers)
    return sum(view.pods.running for name, view in seen.components.items() if name in savers)


def _finished(spec: Workload, state: State) -> int:
    seen, savers = current(state), spec.savers
    views = seen.components if seen is not None else {}
    return sum(view.pods.succeeded for name, view in views.items() if name in savers)


def lost(answers: Answers, running: int, finished: int) -> int:
    """Return how many of the pods that ran at the request are gone, and have neither saved nor succeeded."""
    return max(answers.gone, running + finished - answers.running - answers.finished)


def is_of_earlier(state: State, end: object) -> bool:
    """Whether what an operation has returned are answers to an earlier request than the one that is under way.

    If a suspension is taken back and made again while pods are asked, the next request is made before the first ends.
    """
    operation, request = state.operation, state.checkpoint
    if not isinstance(end, Checkpointed) or operation is None or request is None:
        return False
    return request.at > operation.since


def unanswered(answers: Answers, members: int) -> int:
    """Return how many pods have not answered of those that can: of a gang, at least so many of its members.

    At most `members` pods have a place in the round, so the silent ones beyond them may all be spares. 0: no spares.
    """
    waiting = max(0, answers.running - members) if members else 0
    return max(0, answers.silent - waiting)


def is_over(answers: Answers, running: int, finished: int, members: int = 0) -> bool:
    """Whether there is nothing to wait for: all pods have answered, or the checkpoint can no longer be complete.

    Args:
        answers: The pods' answers.
        running: How many pods ran at the request.
        finished: How many pods had succeeded by then.
        members: The most members of a round, if it is a gang with spares; 0: all pods answer.
    """
    waits = answers.working + unanswered(answers, members)
    return not waits or bool(answers.failed) or bool(lost(answers, running, finished))


def due_at(spec: Workload, state: State, request: CheckpointRequest) -> datetime:
    """Return the deadline for the pods' answers; time in which the cluster could not be observed is added.

    A preemption may set an earlier deadline, to which no such time is added.
    """
    assert spec.checkpoint is not None
    top = state.limits.grace_period_maximum
    span = min(spec.checkpoint.timeout, top)
    if request.extended_at is not None:
        span += min(spec.checkpoint.extension, top)
    at, within = due(request.at, span, state.blind), _within(state)
    return at if within is None else min(at, within)


def _within(state: State) -> datetime | None:
    return state.intent.within if state.intent.suspend else None


def before_suspension(spec: Workload, state: State, now: datetime, why: str) -> Decision | None:
    """Return what to do before a suspension, so that running pods save their state; None once nothing is left."""
    if checkpoint_request(state) is not None:
        return Ignore("its pods are asked to save their state")
    if _has_run_out(state):
        return Look("all its pods have finished: looking whether it has")
    within = _within(state)
    if _answered(state) or not may_ask(spec, state) or (within is not None and within <= now):
        return None
    return Checkpoint(state.intent.suspend_reason, why)


def _answered(state: State) -> CheckpointState | None:
    """Return the result of the request that was made for the current suspension, or was under way when it came."""
    request, attempt = state.checkpoint, state.attempt
    if request is None or attempt is None or request.attempt != attempt.number:
        return None
    return request.state if request.answered else None


def _has_run_out(state: State) -> bool:
    """Whether all pods have finished by themselves since the request, and no live look has followed."""
    request = state.checkpoint
    if _answered(state) is not CheckpointState.DISCARDED or request is None or request.answers is None:
        return False
    over = not request.answers.running and request.answers.finished > 0
    return over and request.ended_at is not None and (state.looked_at is None or state.looked_at < request.ended_at)


def kills(spec: Workload, state: State) -> bool:
    """Whether the current suspension gives pods no grace, since they did not save their state when asked to."""
    came = _answered(state)
    unsaved = came is not None and came is not CheckpointState.COMPLETE
    return unsaved and spec.checkpoint is not None and spec.checkpoint.on_unresponsive is OnUnresponsive.KILL


def ask(spec: Workload, state: State, decision: Checkpoint, now: datetime) -> State:
    """Return the state with a request to its pods to save."""
    attempt, last = state.attempt, state.checkpoint
    assert attempt is not None
    request = CheckpointRequest(
        number=last.number + 1 if last is not None else 1,
        attempt=attempt.number,
        reason=decision.reason,
        at=now,
        running=running(spec, state),
        finished=_finished(spec, state),
        members=_members(state, attempt),
    )
    state = edit(state, checkpoint=request, intent=edit(state.intent, checkpoint=False))
    text = f"checkpoint {request.number}: {asked_to_save(request.savers)} ({decision.why})"
    return cause(state, Reason.CHECKPOINT_REQUESTED, text, now)


def _members(state: State, attempt: Attempt) -> int:
    """Return the most members that a round of a gang with spares has now; 0 if there are no spares."""
    if attempt.meeting is None or not state.shows_waits:
        return 0
    gang = attempt.meeting.gang
    return gang.max if gang.spares else 0


def expire(state: State, decision: Expire, now: datetime) -> State:
    """Return the state with the walltime's end set on the request under way: pods now have only their grace period."""
    request = checkpoint_request(state)
    assert request is not None
    state = edit(state, checkpoint=edit(request, conflict=decision.failure, answers=None))
    text = f"{decision.why}, and checkpoint {request.number} is not complete: its pods have their termination grace"
    return cause(state, Reason.WALLTIME_EXCEEDED, text, now)


def is_conflict(state: State) -> bool:
    """Whether the walltime expired while pods were saving for the latest request."""
    return state.checkpoint is not None and state.checkpoint.conflict is not None


def is_ending(state: State) -> bool:
    """Whether the walltime is ending the attempt, and its pods have not all saved."""
    request, attempt = state.checkpoint, state.attempt
    if request is None or request.conflict is None or attempt is None or attempt.stage is Stage.GONE:
        return False
    return request.attempt == attempt.number and request.state is not CheckpointState.COMPLETE


def expired(state: State) -> tuple[Failure, str] | None:
    """Return the walltime failure that ends the workload, if its pods did not save within their grace period."""
    request, attempt = state.checkpoint, state.attempt
    if request is None or request.conflict is None or attempt is None or request.attempt != attempt.number:
        return None
    if request.state in {CheckpointState.REQUESTED, CheckpointState.COMPLETE}:
        return None
    return request.conflict, f"{request.conflict.message}; checkpoint {request.number} is discarded: {request.why}"


def _of_grace(state: State, request: CheckpointRequest, now: datetime) -> State:
    """Return the state with the result of what pods saved in their grace, once the removal reports it (rows L19, L20).

    A complete checkpoint counts like any other, and the workload is suspended. Anything less is discarded.
    """
    attempt, answers = state.attempt, request.answers
    if attempt is None or attempt.stage not in {Stage.GONE, Stage.FORCING} or answers is None:
        return state
    said = f"{_saved_of(answers, request)} in their termination grace"
    short = answers.done + answers.finished < request.savers + request.finished
    if short or answers.failed or answers.disagree or not answers.done:
        return _end(state, request, CheckpointState.DISCARDED, said, now)
    state = edit(state, saved=_saved(state, request, answers, now))
    if not state.intent.suspend:
        wish = edit(state.intent, suspend=True, suspend_reason=Reason.WALLTIME_EXCEEDED, note="")
        state = edit(state, intent=wish)
    return _end(state, request, CheckpointState.COMPLETE, f"{said}: {answers.uri}", now, answers.uri)


def resolve(spec: Workload, state: State, now: datetime) -> State:
    """Return the state with the result of the request under way, if the answers of its pods decide it yet."""
    request = checkpoint_request(state)
    if request is None:
        return state
    overtaken = _overtaken(state, request)
    if overtaken:
        return _end(state, request, CheckpointState.DISCARDED, overtaken, now)
    if request.conflict is not None:
        return _of_grace(state, request, now)
    answers = request.answers
    if answers is None:
        return state
    some = CheckpointState.PARTIAL if answers.done else CheckpointState.DISCARDED
    said = _saved_of(answers, request)
    left = f": {'; '.join(answers.left)}" if answers.left else ""
    if answers.failed:
        return _end(state, request, some, f"{said}, and {answers.failed} cannot{left}", now)
    gone = lost(answers, request.running, request.finished)
    if gone:
        return _end(state, request, some, f"{said}, and {counted(gone, 'is', 'are')} no longer there", now)
    if is_over(answers, request.running, request.finished, request.members):
        if answers.disagree:
            return _end(state, request, some, f"{said}, and name different places", now)
        if not answers.done:
            return _end(state, request, some, "all its pods have finished by themselves", now)
        state = edit(state, saved=_saved(state, request, answers, now))
        return _end(state, request, CheckpointState.COMPLETE, f"{said}: {answers.uri}", now, answers.uri)
    if answers.at < due_at(spec, state, request):
        return state
    if _extends(spec, state, request, answers):
        state = edit(state, checkpoint=edit(request, extended_at=now, answers=None))
        more = counted(answers.working, "is", "are")
        text = f"checkpoint {request.number}: {said}, {more} saving: the deadline is extended"
        return cause(state, Reason.CHECKPOINT_EXTENDED, text, now)
    return _end(state, request, some, f"{said} in time{left}", now)


def asked_to_save(pods: int) -> str:
    """Say how many pods are asked to save: `1 pod is asked to save its state`."""
    return counted(pods, "pod is asked to save its state", "pods are asked to save their state")


def _saved_of(answers: Answers, request: CheckpointRequest) -> str:
    return f"{answers.done:,} of {counted(request.savers, 'pod has', 'pods have')} saved"


def _extends(spec: Workload, state: State, request: CheckpointRequest, answers: Answers) -> bool:
    """Whether all pods that have not saved answer that they are saving, and an extension would give them more time."""
    if unanswered(answers, request.members) or not answers.working or request.extended_at is not None:
        return False
    return due_at(spec, state, edit(request, extended_at=request.at)) > answers.at


def _overtaken(state: State, request: CheckpointRequest) -> str:
    """Return why the answers no longer matter; empty while they do."""
    attempt = state.attempt
    if state.outcome is Phase.SUCCEEDED:
        return "it has finished by itself"
    if state.outcome is not None:
        return f"it has ended as {state.outcome.value}"
    if attempt is None or attempt.number != request.attempt:
        return "its attempt is being removed"
    if request.conflict is not None:
        return ""
    if attempt.stage not in LIVE:
        return "its attempt is being removed"
    if attempt.parking is not None:
        return "its attempt is being suspended in place"
    if state.shows_waits and attempt.is_restarting:
        return "its pods restart in place"
    wished = {Reason.SUSPEND_REQUESTED, Reason.PREEMPTED}
    return "the suspension was taken back" if request.reason in wished and not state.intent.suspend else ""


def _saved(state: State, request: CheckpointRequest, answers: Answers, now: datetime) -> Saved:
    """Return a complete checkpoint; its step is what was read before it was complete, so at least that is saved."""
    steps = state.steps
    step = steps.step if steps is not None and steps.attempt == request.attempt else None
    return Saved(uri=answers.uri, number=request.number, attempt=request.attempt, at=now, step=step)


def _end(
    state: State, request: CheckpointRequest, came: CheckpointState, why: str, now: datetime, uri: str = ""
) -> State:
    request = edit(request, state=came, ended_at=now, answered=state.intent.suspend, why=why, uri=uri)
    return cause(edit(state, checkpoint=request), _ENDS[came], f"checkpoint {request.number}: {why}", now)
