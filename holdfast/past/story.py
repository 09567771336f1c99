"""Assembles the runs of one life: its causes by number, the workflow's own records, and where the two differ.

A replayed value is trusted only as far as it agrees with the workflow's own records: its memo at each phase, the memory
it passed on, its result. If an older release decided otherwise, or kept other causes of the same decisions, only the
records count from there to the end of that run; the next run begins with the memory that was passed on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from pydantic import ValidationError

from holdfast.model import Cause, Phase, State, Status, Workload
from holdfast.model.words import counted
from holdfast.past.life import Life, Turn
from holdfast.past.tasks import Run, Task
from holdfast.policy.values.displayed import displayed


@dataclass(frozen=True, slots=True)
class Told:
    """A cause, and whether the workflow's own record of it was found."""

    cause: Cause
    written: bool


@dataclass(slots=True)
class Story:
    """A workload's whole life, as far as Temporal still keeps it."""

    spec: Workload
    """The workload as of the last run."""
    uid: str
    runs: tuple[Run, ...]
    turns: list[Turn] = field(default_factory=list[Turn])
    causes: dict[int, Told] = field(default_factory=dict[int, Told])
    """Causes by number, from 1 on."""
    total: int = 0
    state: State | None = None
    """The memory at the end, if the replay reached the end."""
    status: Status | None = None
    """The last status that the workflow wrote."""
    contradictions: list[str] = field(default_factory=list[str])
    """Where this release decides otherwise than the one that ran the workflow; one sentence each."""
    other_causes: list[str] = field(default_factory=list[str])
    """Where it decides the same, but keeps other causes; one sentence each."""
    reworded: int = 0
    """Number of causes with another text in this release; the workflow's own text is kept."""
    unread: list[str] = field(default_factory=list[str])

    @property
    def exact(self) -> bool:
        """Whether the whole replay agrees with all records."""
        return not (self.contradictions or self.other_causes or self.unread)

    @property
    def goes_on(self) -> bool:
        """Whether the last run was continued by one that is not here."""
        return bool(self.runs[-1].next_run_id)

    @property
    def broken_off(self) -> str:
        """Temporal's close status, if its workflow was ended from outside: `Terminated`; else empty."""
        closed = self.runs[-1].closed
        cancelled = self.state is not None and self.state.phase is Phase.CANCELLED
        outside = closed in {"Terminated", "TimedOut"} or (closed == "Canceled" and not cancelled)
        return closed if outside else ""

    @property
    def known_until(self) -> datetime | None:
        """When the last run ended; None: it runs."""
        return self.runs[-1].ended_at

    @property
    def ended_at(self) -> datetime | None:
        """When its workflow ended, if that is here."""
        return None if self.goes_on else self.known_until


def story_of(runs: Sequence[Run]) -> Story:
    """Return the story of a life.

    Args:
        runs: All of its runs that Temporal still keeps, oldest first.

    Raises:
        ValueError: if there is none, or this release cannot read the document as a workload.
    """
    if not runs:
        raise ValueError("expected at least one run")
    story: Story | None = None
    for run in runs:
        try:
            spec = Workload.model_validate(run.document)
        except ValidationError as error:
            raise ValueError(f"its document is no workload to this release: {error.errors()[0]['msg']}") from None
        if story is None:
            story = Story(spec, spec.uid or run.first_run_id, tuple(runs))
        _relive(story, run, spec)
    assert story is not None
    return story


@dataclass(slots=True)
class _Reliving:
    """One run being replayed."""

    story: Story
    run: Run
    life: Life
    sure: int
    """The number of the last replayed cause that the records confirm."""
    counts: bool = True
    """Whether the replayed causes agree with the recorded ones."""

    def live(self, task: Task) -> None:
        """Replay a task, and compare it with the records.

        Raises:
            ValueError: if the replay decides otherwise.
        """
        turns = self.life.live(task)
        left = list(turns)
        for status in task.statuses:
            while left and not _same(left[0].after, status):
                left.pop(0)
            if not left:
                raise ValueError(f"it wrote {_figures(status)}, where this release has {_figures_of(turns)}")
            # Of several turns of one task, the one with the same number of causes wrote the status.
            alike = [turn for turn in left if _same(turn.after, status)]
            total = {turn.after.causes_total for turn in alike}
            self._compare(task, status.causes, status.causes_total, status.causes_total in total)
        if task.ended is not None and task.ended.status is not None:
            status = task.ended.status
            if not turns or not _same(turns[-1].after, status):
                raise ValueError(f"it ended with {_figures(status)}, and here with {_figures_of(turns)}")
            self._compare(task, status.causes, status.causes_total, turns[-1].after.causes_total == status.causes_total)
        if task.ended is not None and task.ended.state is not None:
            theirs, ours = task.ended.state, self.life.state
            if ours is None or _essence(ours) != _essence(theirs):
                raise ValueError("the memory it handed on is not the one that this release would have handed on")
            self._compare(task, theirs.causes, theirs.causes_total, ours.causes_total == theirs.causes_total)
        self.story.turns += turns

    def _compare(self, task: Task, written: Sequence[Cause], total: int, as_many: bool) -> None:
        if not self.counts:
            return
        for number, cause in _numbered(written, total):
            ours = self.life.causes.get(number)
            if ours is None or ours == cause:
                continue
            if ours.model_copy(update={"message": cause.message}) == cause:
                self.story.reworded += 1
                self.life.causes[number] = cause
                continue
            as_many = False
        if as_many:
            self.sure = total
            return
        self.counts = False
        self.story.other_causes.append(f"run {self.run.run_id}, event {task.event}: from cause {self.sure + 1} on")

    def kept(self) -> dict[int, Cause]:
        """Return the causes that can be trusted."""
        if self.counts:
            return self.life.causes
        return {number: cause for number, cause in self.life.causes.items() if number <= self.sure}


def _relive(story: Story, run: Run, spec: Workload) -> None:
    story.unread += run.unreadable
    if run.carried is not None:
        _write(story, run.carried.causes, run.carried.causes_total)
    known = run.carried.causes_total if run.carried is not None else 0
    reliving = _Reliving(story, run, Life(spec, story.uid, run.carried), known)
    following = True
    for task in run.tasks:
        if following:
            try:
                reliving.live(task)
            except (ValueError, AssertionError, AttributeError, KeyError, IndexError, TypeError) as error:
                story.contradictions.append(f"run {run.run_id}, event {task.event}: {error}")
                following = reliving.counts = False
        _read(story, task)
    for number, cause in reliving.kept().items():
        story.causes.setdefault(number, Told(cause, written=False))
        story.total = max(story.total, number)
    story.spec = reliving.life.spec
    story.state = reliving.life.state if following else None


def _same(state: State, status: Status) -> bool:
    """Whether the workflow in this state would write this status."""
    state = displayed(state)
    number = state.attempt.number if state.attempt is not None else 0
    return (state.phase, number, state.restarts, state.executions) == (
        status.phase,
        status.attempt,
        status.restarts,
        status.executions,
    )


def _essence(state: State) -> object:
    """Return the memory without texts and causes, which may differ between releases."""
    attempt = state.attempt
    return (
        (state.phase, state.since, state.outcome, state.intent.suspend, state.intent.cancel, state.held is not None),
        (attempt.number, attempt.stage, attempt.begun_at, attempt.submitted_at, attempt.ready_at) if attempt else None,
        (state.executions, state.restarts, state.used, state.runs, state.unhealthy is not None),
        (state.pause_until, state.hold_until, state.anchored, state.observed_at),
    )


def _figures(status: Status) -> str:
    return _how_far(status.phase, status.attempt, status.restarts, status.causes_total)


def _figures_of(turns: Sequence[Turn]) -> str:
    if not turns:
        return "nothing"
    state = displayed(turns[-1].after)
    number = state.attempt.number if state.attempt is not None else 0
    return _how_far(state.phase, number, state.restarts, state.causes_total)


def _how_far(phase: Phase, attempt: int, restarts: int, causes: int) -> str:
    return f"{phase.value}, attempt {attempt}, {counted(restarts, 'restart')}, {counted(causes, 'cause')}"


def _numbered(causes: Sequence[Cause], total: int) -> list[tuple[int, Cause]]:
    return [(total - len(causes) + index + 1, cause) for index, cause in enumerate(causes)]


def _read(story: Story, task: Task) -> None:
    """Take over the workflow's own records of a task."""
    for status in (*task.statuses, *((task.ended.status,) if task.ended and task.ended.status else ())):
        story.status = status
        _write(story, status.causes, status.causes_total)
    if task.ended is not None and task.ended.state is not None:
        _write(story, task.ended.state.causes, task.ended.state.causes_total)


def _write(story: Story, causes: Sequence[Cause], total: int) -> None:
    for number, cause in _numbered(causes, total):
        story.causes[number] = Told(cause, written=True)
    story.total = max(story.total, total)
