"""Counts a life that was read from its history: its turns become moments, and its spans a ledger (row P5). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Final

from holdfast.model import Kind
from holdfast.model.entities.queue import PODS
from holdfast.model.life.ledger import Bucket, Ledger, Span, charges, goodput, milliseconds, totals
from holdfast.past.life import Turn
from holdfast.past.story import Story
from holdfast.policy.loop.measures import moments as moments_in
from holdfast.policy.sides.demand import demand
from holdfast.policy.status.ledger import Moment, spans_of

_THOUSANDTHS: Final = 1000


def moments(turns: Iterable[Turn]) -> Iterator[Moment]:
    """Yield the states of a life, oldest first: as each turn found it, around each of its decisions, and after it."""
    for turn in turns:
        yield from moments_in(turn.spec, turn.folded, turn.taken, turn.after, turn.at)


def moments_of(story: Story) -> list[Moment]:
    """Return the states of a life; if its beginning is no longer kept, from the memory on with which the rest began."""
    first = story.runs[0]
    carried = [Moment(first.began_at, story.spec, first.carried)] if first.carried is not None else []
    return [*carried, *moments(story.turns)]


def end_of(story: Story) -> datetime:
    """Return when a life's workflow ended; if it has not, or its end is not in the histories, its last turn."""
    return story.known_until or (story.turns[-1].at if story.turns else story.runs[-1].began_at)


def ledger_of(story: Story, now: datetime) -> Ledger:
    """Return the ledger of a life.

    Args:
        story: The life, from its workflow's histories.
        now: Up to when to count it, if its workflow runs.
    """
    end = story.known_until or now
    spans = spans_of(story.runs[0].began_at, moments_of(story), end)
    last = story.state.outcome if story.state is not None else None
    kept = last is not None and bool(spans) and milliseconds(spans[-1].end, end) > 0
    total = totals(spans)
    wanted = demand(story.spec)
    figures = story.state or story.status
    return Ledger(
        name=story.spec.name,
        namespace=story.spec.namespace,
        cluster=story.spec.cluster,
        uid=story.uid,
        queue=story.spec.queue,
        begun_at=spans[0].begin if spans else story.runs[0].began_at,
        until=spans[-1].end if spans else story.runs[0].began_at,
        ended=kept or story.ended_at is not None,
        age=milliseconds(spans[0].begin, spans[-1].end) if spans else 0,
        milliseconds=total,
        goodput=goodput(total),
        executions=figures.executions if figures is not None else 0,
        pods=wanted[PODS] // _THOUSANDTHS,
        devices={name: amount // _THOUSANDTHS for name, amount in wanted.items() if "/" in name},
        charges=charges(spans),
        spans=spans,
        notes=tuple(_notes(story, spans)),
    )


def _notes(story: Story, spans: Sequence[Span]) -> Iterator[str]:
    if story.spec.checkpoint is None and any(span.bucket is Bucket.LOST for span in spans):
        yield (
            "This workload declares no checkpoint, so each restart is counted as a start from the beginning: "
            "what it had done is lost. "
            "If the program saves by itself, less was lost."
        )
    if story.spec.kind is Kind.SERVICE:
        yield "It is a service: a restart loses nothing of what it has served."
    if story.runs[0].previous_run_id:
        yield (
            "The workload began before the oldest run that Temporal keeps: what came before that run is not counted."
        )
    if story.goes_on:
        yield "Its life went on: the next run is not among the histories, and it is counted up to there."
    for text in story.contradictions[:1]:
        yield f"Another release lived it, and decided otherwise ({text}): the last known state counts until a next run."
