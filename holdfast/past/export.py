"""Exports a story as a document: attempts assembled from the turns, and notes on what is missing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from holdfast.model import Attempt, Reason, Stage, State
from holdfast.model.life.history import Gap, History, NumberedCause, PastAttempt, PastRun
from holdfast.model.words import counted
from holdfast.past.story import Story
from holdfast.policy.loop.advance import Taken
from holdfast.policy.status.explain import budgets_of
from holdfast.policy.values.decision import Cancel, Expire, Fail, Release, Restart, Resubmit, Retry, Succeed, Suspend
from holdfast.policy.values.edit import edit

_SHOWN: Final = 3


def history_of(story: Story) -> History:
    """Return the export of a story."""
    spec, state, status, first = story.spec, story.state, story.status, story.runs[0]
    figures = state or status
    now = story.turns[-1].at if story.turns else first.began_at
    gaps = tuple(_gaps(story))
    outcome = state.outcome if state is not None else None
    if state is None and status is not None and status.phase.ended:
        outcome = status.phase
    return History(
        name=spec.name,
        namespace=spec.namespace,
        cluster=spec.cluster,
        uid=story.uid,
        by=figures.creator if isinstance(figures, State) else figures.by if figures is not None else "",
        workflow_id=spec.workflow_id,
        runs=tuple(
            PastRun(
                run_id=run.run_id,
                began_at=run.began_at,
                ended_at=run.ended_at,
                closed=run.closed,
                events=run.events,
            )
            for run in story.runs
        ),
        begun_at=first.began_at,
        ended_at=story.ended_at,
        phase=figures.phase if figures is not None else None,
        reason=figures.reason if figures is not None else None,
        message=figures.message if figures is not None else "",
        outcome=outcome,
        failure=state.outcome_failure if state is not None else status.failure if status is not None else None,
        executions=figures.executions if figures is not None else 0,
        restarts=figures.restarts if figures is not None else 0,
        budgets=budgets_of(state, now) if state is not None else status.budgets if status is not None else (),
        attempts=_attempts(story),
        causes=tuple(
            NumberedCause(**told.cause.model_dump(), number=number, written=told.written)
            for number, told in sorted(story.causes.items())
        ),
        causes_total=story.total,
        gaps=gaps,
        complete=not gaps and not story.goes_on,
        exact=story.exact,
        notes=tuple(_notes(story)),
    )


def _attempts(story: Story) -> tuple[PastAttempt, ...]:
    """Assemble the attempts from the state at each turn."""
    found: dict[int, PastAttempt] = {}
    for run in story.runs:
        if run.carried is not None and run.carried.attempt is not None:
            _see(found, run.carried.attempt)
    for turn in story.turns:
        if turn.folded.attempt is not None:
            _see(found, turn.folded.attempt)
        for taken in turn.taken:
            if taken.before.attempt is not None:
                _see(found, taken.before.attempt)
            _end(found, taken)
            if taken.after.attempt is not None:
                _see(found, taken.after.attempt)
    return tuple(found[number] for number in sorted(found))


def _see(found: dict[int, PastAttempt], attempt: Attempt) -> None:
    old = found.get(attempt.number) or PastAttempt(number=attempt.number, begun_at=attempt.begun_at)
    found[attempt.number] = edit(
        old,
        # A resumption in place submits and starts the attempt again: keep the first times.
        submitted_at=old.submitted_at or attempt.submitted_at,
        ready_at=old.ready_at or attempt.ready_at,
        removing_at=attempt.removing_at or old.removing_at,
        gone_at=attempt.gone_at or old.gone_at,
        forced=old.forced or attempt.stage is Stage.FORCING,
        launches=attempt.launches or old.launches,
        evidence=attempt.evidence or old.evidence,
    )


def _end(found: dict[int, PastAttempt], taken: Taken) -> None:
    """Record a decision that ends an attempt."""
    attempt = taken.before.attempt
    record = found.get(attempt.number) if attempt is not None else None
    if record is None or attempt is None or attempt.stage not in {Stage.PLANNED, Stage.PREPARED, Stage.SUBMITTED}:
        return
    match taken.decision:
        case Restart(in_place=True):
            return  # It has not ended: its containers restart.
        case Restart(failure, _, charge):
            end = edit(record, ended_by=Reason.RESETTING, why=failure.sentence(), failure=failure, charged=charge)
        case Expire(failure, why):
            end = edit(record, ended_by=Reason.WALLTIME_EXCEEDED, why=why, failure=failure)
        case Fail(reason, failure, why):
            end = edit(record, ended_by=reason, why=why, failure=failure)
        case Succeed(why):
            end = edit(record, ended_by=Reason.COMPLETED, why=why)
        case Suspend(in_place=True):
            return  # It has not ended: it is resumed in place.
        case Suspend(reason, why) | Cancel(reason, why) | Release(reason, why):
            end = edit(record, ended_by=record.ended_by or reason, why=record.why or why)
        case Resubmit(why):
            end = edit(record, ended_by=Reason.SUBMISSION_FAILED, why=why)
        case Retry(why):
            end = edit(record, ended_by=record.ended_by or Reason.RETRY_REQUESTED, why=record.why or why)
        case _:
            return
    found[record.number] = end


def _gaps(story: Story) -> Iterator[Gap]:
    forgotten = story.runs[0].previous_run_id
    known = sorted(story.causes)
    before = 0
    for number in (*known, story.total + 1):
        if number > before + 1:
            early = before == 0 and forgotten
            why = "Temporal no longer keeps the run they were in" if early else "an older release decided otherwise"
            yield Gap(first=before + 1, last=number - 1, why=why)
        before = number


def _notes(story: Story) -> Iterator[str]:
    if story.runs[0].previous_run_id:
        yield (
            "The workload began before the oldest run that Temporal keeps; the run before it was "
            f"{story.runs[0].previous_run_id}. "
            "What that run handed on is here; attempts that had ended by then are not."
        )
    if story.goes_on:
        yield "Its life went on: the next run is not among the histories, and what it says is not here."
    if story.broken_off:
        yield (
            f"Its workflow was ended from outside, and Temporal says {story.broken_off}: its pods may still run, and "
            "nothing restarts them. `holdfast sweep` removes them."
        )
    for text in story.contradictions[:_SHOWN]:
        yield (
            f"Another release than this one lived it, and decided otherwise ({text}). "
            "From there to the end of that run only what the workflow wrote down itself is here."
        )
    for text in story.other_causes[:_SHOWN]:
        yield (
            f"Another release than this one lived it, decided the same and kept other causes ({text}). "
            "From there to the end of that run only those that the workflow wrote down itself are here."
        )
    if story.reworded:
        yield (
            f"{counted(story.reworded, 'cause is', 'causes are')} worded otherwise by this release: "
            "the workflow's own words are here."
        )
    for text in story.unread[:_SHOWN]:
        yield f"{text[0].upper()}{text[1:]}: what it said is not here."
