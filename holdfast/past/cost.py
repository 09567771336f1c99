"""Counts what another policy would have cost: the real life with the other policy's times (row P6). Pure.

Where the other policy decides earlier or later, the time before that decision is shorter or longer, and all that
follows takes as long as it really did. Where it ends the workload, its life ends there. Where it takes another way that
reality did not show, both lives are counted only up to that point.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from holdfast.model import Model, Stage, State, Time, Workload
from holdfast.model.entities.queue import PODS
from holdfast.model.life.ledger import Bucket, Span, milliseconds, totals
from holdfast.past.ledger import end_of, moments_of
from holdfast.past.story import Story
from holdfast.policy.attempt.health import LIVE, REMOVING
from holdfast.policy.sides.demand import demand
from holdfast.policy.status.ledger import Moment, spans_of, whole
from holdfast.policy.values.edit import edit

_HOUR: Final = 3_600_000
_THOUSANDTHS: Final = 1000
_IDLE: Final = (Bucket.STARTING, Bucket.LOST, Bucket.CHECKPOINTING, Bucket.DETECTING, Bucket.REMOVING)
"""The buckets in which pods exist and bring nothing."""
_UNAWARE: Final = (Bucket.STARTING, Bucket.PRODUCTIVE, Bucket.LOST)
"""The buckets of time in which only the other policy knows of a failure, such as the end of a shorter grace."""


@dataclass(frozen=True, slots=True)
class Change:
    """A decision of reality that the other policy takes at another time, or does not take."""

    at: datetime
    """When reality decided; if only the other policy did, when it did."""
    before: State
    """The state in which that was decided."""
    shift: timedelta = timedelta()
    """How much later the other policy decides; negative: earlier."""
    failed: datetime | None = None
    """Since when the other policy counts the failure that it decides on, if it decides earlier."""
    ends: State | None = None
    """The state after the other policy's decision, if that ends the workload."""
    unknown: bool = False
    """Whether what the other policy would have met after it is not known."""


class Cost(Model):
    """What one policy cost."""

    attempts: int
    milliseconds: dict[Bucket, int]
    idle_hours: dict[str, float]
    """Hours in which `pods`, and each extended resource that they request, were held and brought nothing."""
    to_end: int | None
    """Milliseconds from the submission to the end of its life; None if it has none, or it is not known."""


class Costs(Model):
    """What the real policy and the other one cost, counted over the same part of the life."""

    real: Cost
    other: Cost
    known_until: Time | None = None
    """Up to when both are counted, if the other policy would have met something else after that."""


def costs(story: Story, changes: Sequence[Change]) -> Costs:
    """Return what both policies cost.

    Args:
        story: The real life; one that has not ended is counted up to its last decision.
        changes: Where the other policy's course differs; none: the two are the same.
    """
    moments, begin, until = moments_of(story), story.runs[0].began_at, end_of(story)
    ordered = sorted(changes, key=lambda one: one.at)
    stop = next((one for one in ordered if one.unknown or one.ends is not None), None)
    real, other = (moments, until), (moments, until)
    if stop is not None:
        ordered = ordered[: ordered.index(stop) + 1]
        before = [one for one in moments if one.at < stop.at]
        before.append(Moment(stop.at, story.spec, stop.before))
        if stop.ends is None:
            real = other = before, stop.at
        else:
            before += _ending(moments, stop, stop.ends)
            other = before, before[-1].at
    real_time, other_time = _time(begin, *real, ()), _time(begin, *other, ordered)
    has_ended = story.state is not None and story.state.outcome is not None
    to_end = sum(_time(begin, moments, until, ()).values()) if has_ended else None
    unknown = stop is not None and stop.unknown
    known = has_ended or (stop is not None and stop.ends is not None)
    return Costs(
        real=_cost(story.spec, real[0], real_time, to_end),
        other=_cost(story.spec, other[0], other_time, sum(other_time.values()) if known and not unknown else None),
        known_until=stop.at if stop is not None and unknown else None,
    )


def _ending(moments: Sequence[Moment], stop: Change, ends: State) -> list[Moment]:
    """Return the end of a life that the other policy ends: the decision, and a removal as long as the real one."""
    ending = [Moment(stop.at, moments[0].spec, ends)]
    if ends.attempt is None or ends.attempt.stage not in REMOVING:
        return ending
    begun: datetime | None = None
    for one in moments:
        attempt = one.state.attempt
        if attempt is None or attempt.number != ends.attempt.number or attempt.stage in LIVE:
            continue
        begun = begun or one.at
        ending.append(Moment(stop.at + (one.at - begun), one.spec, edit(ends, attempt=attempt)))
        if attempt.stage is Stage.GONE:
            break
    return ending


def _time(begin: datetime, moments: Sequence[Moment], until: datetime, changes: Sequence[Change]) -> dict[Bucket, int]:
    """Return the milliseconds of each bucket, if decisions come earlier or later than they did."""
    spans = spans_of(begin, moments, until)
    total = totals(spans)
    for change in changes:
        for span in spans:
            total[span.bucket] += _difference(span, change)
            if span.bucket in _UNAWARE and change.failed is not None:
                unaware = _overlap(span, change.failed, change.at + min(change.shift, timedelta()))
                total[span.bucket] -= unaware
                total[Bucket.DETECTING] += unaware
    return total


def _difference(span: Span, change: Change) -> int:
    """Return by how many milliseconds a span is longer if a decision comes at another time."""
    at = whole(change.at)
    if change.shift >= timedelta():
        return milliseconds(at, whole(change.at + change.shift)) if span.begin < at <= span.end else 0
    return -_overlap(span, change.at + change.shift, at)


def _overlap(span: Span, begin: datetime, end: datetime) -> int:
    """Return how many milliseconds of a span lie between two instants."""
    return max(0, milliseconds(max(span.begin, whole(begin)), min(span.end, whole(end))))


def _cost(spec: Workload, moments: Sequence[Moment], time: dict[Bucket, int], to_end: int | None) -> Cost:
    idle = sum(time[bucket] for bucket in _IDLE)
    wanted = {name: amount for name, amount in demand(spec).items() if name == PODS or "/" in name}
    return Cost(
        attempts=moments[-1].state.executions if moments else 0,
        milliseconds=time,
        idle_hours={name: idle * amount / (_THOUSANDTHS * _HOUR) for name, amount in wanted.items()},
        to_end=to_end,
    )
