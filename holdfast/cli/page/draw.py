"""Where each part of a drawing stands: bars, marks and ticks, in percent of its width. Pure.

A drawing's width is the page's, so that it needs no scrolling and its text keeps its size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from holdfast.cli.common.render import age
from holdfast.cli.page.timeline import Due, Span, Timeline
from holdfast.cli.workloads.history_text import instant
from holdfast.model import Phase, Reason
from holdfast.model.gang.status import GangPhase, GangStatus
from holdfast.model.life.history import PastAttempt

ROWS_DRAWN: Final = 40
"""The latest attempts that are drawn; the table below the drawing has all."""
_LABELLED: Final = 16.0
"""The least width of a bar, in percent, that has room for its label on a phone."""
_ENDED_SHARE: Final = 10
"""An outcome, which may be kept for days, takes at most this part of the time before it."""
_MEMBERS_DRAWN: Final = 256
_TICKS: Final = 4
_STEPS: Final = tuple(
    timedelta(seconds=one)
    for one in (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200)
)
_DAY: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Bar:
    """A rectangle."""

    x: float
    width: float
    kind: str
    """The class that colours it: a phase, or a bucket of the ledger."""
    label: str
    """Empty where there is no room."""
    title: str
    """What a pointer that rests on it shows."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A point in time."""

    x: float
    kind: str
    """`cause`, `saved`, `failure` or `gone`."""
    title: str


@dataclass(frozen=True, slots=True)
class Row:
    """One attempt."""

    name: str
    bars: tuple[Bar, ...]
    dues: tuple[Bar, ...]
    marks: tuple[Mark, ...]


@dataclass(frozen=True, slots=True)
class Tick:
    """A time on the axis."""

    x: float
    label: str


@dataclass(frozen=True, slots=True)
class Drawing:
    """The drawing of one life."""

    rows: tuple[Row, ...]
    ticks: tuple[Tick, ...]
    left_out: int
    """How many early attempts are not drawn."""
    cut: bool
    """Whether its end is beyond the right edge."""
    phases: tuple[str, ...]
    """The phases that occur, for the legend."""
    saves: bool
    """Whether a checkpoint was completed, for the legend."""


class _Scale:
    """Turns times into percent of the width."""

    def __init__(self, begin: datetime, end: datetime) -> None:
        self.begin, self.end = begin, max(end, begin + timedelta(milliseconds=1))
        self._length = self.end - self.begin

    def x(self, at: datetime) -> float:
        return round(100 * (min(max(at, self.begin), self.end) - self.begin) / self._length, 3)

    def bar(self, begin: datetime, end: datetime, kind: str, label: str, title: str) -> Bar:
        x = self.x(begin)
        width = round(self.x(end) - x, 3)
        return Bar(x, width, kind, label if width >= _LABELLED else "", title)

    def ticks(self) -> tuple[Tick, ...]:
        least = self._length / _TICKS
        step = next((one for one in _STEPS if one >= least), None) or _DAY * -(-least // _DAY)
        form = "%m-%d %H:%M" if self._length > _DAY else "%H:%M:%S" if step < timedelta(minutes=1) else "%H:%M"
        epoch = datetime(1970, 1, 1, tzinfo=UTC)
        at = epoch + step * -(-(self.begin - epoch) // step)
        found: list[Tick] = []
        while at <= self.end:
            found.append(Tick(self.x(at), f"{at.astimezone(UTC):{form}}"))
            at += step
        return tuple(found)


def drawing_of(life: Timeline) -> Drawing:
    """Draw a life: a row for each attempt, with its phases, its deadlines below them, and what decided."""
    scale = _Scale(life.begin, _drawn_until(life))
    attempts = {one.number: one for one in life.history.attempts}
    numbers = sorted({one.attempt for one in life.spans} | set(attempts))
    drawn = numbers[-ROWS_DRAWN:]
    return Drawing(
        rows=tuple(_row(scale, life, number, attempts.get(number)) for number in drawn),
        ticks=scale.ticks(),
        left_out=len(numbers) - len(drawn),
        cut=scale.end < life.end,
        phases=tuple(dict.fromkeys(one.word for one in life.spans)),
        saves=any(one.reason is Reason.CHECKPOINT_COMPLETE for one in life.history.causes),
    )


def ledger_bar(buckets: Sequence[tuple[str, float]]) -> tuple[Bar, ...]:
    """Draw how the seconds of a life divide into buckets, as one bar; nothing if there are none.

    Args:
        buckets: the name and the seconds of each bucket, in the order in which they are drawn.
    """
    total = sum(seconds for _, seconds in buckets)
    bars: list[Bar] = []
    x = 0.0
    for name, seconds in buckets:
        if seconds <= 0:
            continue
        width = 100 * seconds / total
        title = f"{name}: {age(timedelta(seconds=seconds))}, {width:.1f} %"
        bars.append(Bar(round(x, 3), round(width, 3), name, name if width >= _LABELLED else "", title))
        x += width
    return tuple(bars)


def gang_cells(told: GangStatus) -> tuple[str, ...]:
    """Return the colour of each member of a gang, those that are there first; at most 256 are drawn."""
    there = Phase.RUNNING if told.phase is GangPhase.RUNNING else Phase.RESUMING
    missing = max(told.max - told.present, 0)
    return (*(there.value,) * told.present, *(Phase.PENDING.value,) * missing)[:_MEMBERS_DRAWN]


def _drawn_until(life: Timeline) -> datetime:
    last = life.spans[-1] if life.spans else None
    if last is None or not last.phase.ended:
        return life.end
    return min(life.end, last.begin + max((last.begin - life.begin) / _ENDED_SHARE, timedelta(seconds=1)))


def _row(scale: _Scale, life: Timeline, number: int, attempt: PastAttempt | None) -> Row:
    spans = [one for one in life.spans if one.attempt == number]
    marks = [
        Mark(
            scale.x(one.time),
            "saved" if one.reason is Reason.CHECKPOINT_COMPLETE else "cause",
            f"{instant(one.time)} {one.message} ({one.reason.value})",
        )
        for one in life.history.causes
        if one.attempt == number
    ]
    if attempt is not None and attempt.failure is not None:
        marks.append(Mark(scale.x(attempt.failure.time), "failure", attempt.failure.sentence()))
    if attempt is not None and attempt.gone_at is not None:
        marks.append(Mark(scale.x(attempt.gone_at), "gone", "proven gone"))
    return Row(
        name=f"attempt {number}" if number else "before the first attempt",
        bars=tuple(_phase(scale, one) for one in spans),
        dues=tuple(_due(scale, one) for one in life.dues if one.attempt == number),
        marks=tuple(marks),
    )


def _phase(scale: _Scale, span: Span) -> Bar:
    name = span.word
    return scale.bar(span.begin, span.end, name, name, f"{name}, {age(span.end - span.begin)}: {span.why}")


def _due(scale: _Scale, due: Due) -> Bar:
    end = min(due.at, due.end)
    came = "still to come" if due.open else "ran out" if due.met else "ended early"
    title = f"until {instant(due.at)} ({came}): {due.what}"
    return scale.bar(due.begin, end, "met" if due.met else "unmet", "", title)
