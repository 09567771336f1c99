"""A life as a page shows it: its phases and deadlines in time, its attempts, its nodes. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from holdfast.cli.common.render import phase_word
from holdfast.model import Deadline, Phase, Status
from holdfast.model.life.history import History
from holdfast.model.life.ledger import Ledger
from holdfast.past import Story, history_of, ledger_of
from holdfast.policy.status.explain import status_of

_SAME: Final = timedelta(seconds=1)
"""Two deadlines of one kind that differ by less are one: Kubernetes' times have a resolution of a second."""


@dataclass(frozen=True, slots=True)
class Span:
    """A time in which the workload was in one phase of one attempt."""

    begin: datetime
    end: datetime
    attempt: int
    """0 before the first attempt."""
    phase: Phase
    word: str
    """The phase for people."""
    why: str


@dataclass(frozen=True, slots=True)
class Due:
    """A deadline: when it was set, when it was due, and whether that time came while it stood."""

    begin: datetime
    at: datetime
    end: datetime
    """When it no longer stood: it was met, or what it waited for had happened."""
    attempt: int
    what: str
    open: bool = False
    """Whether it is still to come."""

    @property
    def met(self) -> bool:
        """Whether its time came."""
        return self.at <= self.end


@dataclass(frozen=True, slots=True)
class NodeUse:
    """What is known of pods on one node: those that failed there, and whether the workload avoids it."""

    name: str
    failed: tuple[str, ...]
    """One sentence for each failure that decided something, with its attempt, oldest first."""
    avoided: str = ""
    """Why pods avoid the node; empty if they do not."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """One life, from its submission to its end or to the time at which it was read."""

    history: History
    begin: datetime
    end: datetime
    spans: tuple[Span, ...]
    dues: tuple[Due, ...]
    nodes: tuple[NodeUse, ...]
    ledger: Ledger
    """What its time was spent on."""
    known_until: datetime | None = None
    """When the last run ended; None: it runs."""


def timeline_of(story: Story, now: datetime) -> Timeline:
    """Return the timeline of a life.

    Phases and deadlines come from each turn of the workflow. Where another release decided otherwise, and turns are
    therefore not known, they come from what the workflow recorded; the history's notes say so.

    Args:
        story: the life, from Temporal's record.
        now: the time at which it is read; a life that is over ends when its workflow did, and one whose next run is
            not here ends where its last one did.
    """
    history = history_of(story)
    points = sorted(_points(story), key=lambda one: one.at)
    # No span may have a negative length, although this machine's clock may be behind Temporal's.
    end = max(story.known_until or now, history.begun_at, *(one.at for one in points))
    return Timeline(
        history=history,
        begin=history.begun_at,
        end=end,
        spans=tuple(_spans(points, history.begun_at, end)),
        dues=tuple(_dues(points, end, goes_on=story.ended_at is None)),
        nodes=_nodes(story, history, now),
        ledger=ledger_of(story, now),
        known_until=story.known_until,
    )


class _Point(NamedTuple):
    """The workload's state after one turn, or as recorded."""

    at: datetime
    attempt: int
    phase: Phase
    word: str
    why: str
    next: Deadline | None


def _points(story: Story) -> Iterator[_Point]:
    lived = {(turn.event, turn.at) for turn in story.turns}
    for turn in story.turns:
        # A turn may pass through several phases at one time: only the last of them lasts.
        yield _point(status_of(turn.spec, turn.after, turn.at, story.uid), turn.at)
    for run in story.runs:
        for task in run.tasks:
            if (task.event, task.at) not in lived:
                for status in task.statuses:
                    yield _point(status, task.at)


def _point(status: Status, at: datetime) -> _Point:
    why = status.message or status.reason.value
    return _Point(at, status.attempt, status.phase, phase_word(status), why, status.next)


def _spans(points: Sequence[_Point], begin: datetime, end: datetime) -> Iterator[Span]:
    """Yield the phases without a gap between them; one that took no time is left out, except the last."""
    last: _Point | None = None
    since = begin
    for point in points:
        if last is not None and (point.phase, point.attempt) == (last.phase, last.attempt):
            continue
        if last is not None and point.at > since:
            yield Span(since, point.at, last.attempt, last.phase, last.word, last.why)
        since, last = point.at if last is not None else begin, point
    if last is not None:
        yield Span(since, end, last.attempt, last.phase, last.word, last.why)


def _dues(points: Sequence[_Point], end: datetime, *, goes_on: bool) -> Iterator[Due]:
    """Yield the deadlines; one that is set again for the same time is the same.

    Args:
        points: the life, in order.
        end: until when it is known.
        goes_on: whether the life is not over then.
    """
    standing: Due | None = None
    for point in points:
        coming = point.next
        due = Due(point.at, coming.at, end, point.attempt, coming.what) if coming is not None else None
        if standing is not None:
            if due is not None and _is_same(standing, due):
                continue
            yield replace(standing, end=point.at)
        standing = due
    if standing is not None:
        yield replace(standing, open=goes_on and not standing.met)


def _is_same(one: Due, other: Due) -> bool:
    return (one.attempt, one.what) == (other.attempt, other.what) and abs(one.at - other.at) < _SAME


def _nodes(story: Story, history: History, now: datetime) -> tuple[NodeUse, ...]:
    """Return the nodes that the record names, by name."""
    failed: dict[str, list[str]] = {}
    for attempt in history.attempts:
        failure = attempt.failure
        node = failure and (failure.node or (failure.death.node if failure.death is not None else ""))
        if failure is not None and node:
            failed.setdefault(node, []).append(f"attempt {attempt.number}: {failure.sentence()}")
    status = status_of(story.spec, story.state, now, story.uid) if story.state is not None else story.status
    avoided = {one.name: one.why or "avoided" for one in status.avoided} if status is not None else {}
    names = sorted({*failed, *avoided})
    return tuple(NodeUse(name, tuple(failed.get(name, ())), avoided.get(name, "")) for name in names)
