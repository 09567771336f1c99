"""The ledger of every workload that a site makes, judged by its history and by the audit log (row P5).

What must hold for each: the ten buckets add up to its age, no pod is there in a bucket without pods, it is not
productive before its pods run, and an attempt is made and removed inside its own buckets. These hold to the
millisecond, whatever a test does to the cluster: a workflow that hears late counts late, never early.

How late it may count is judged too, where nothing keeps the news away: see `LATE`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import BinaryIO, Final

from temporalio.client import Client
from temporalio.service import RPCError

from holdfast import names
from holdfast.client.connection import Place
from holdfast.client.past import fetch
from holdfast.errors import HoldfastError
from holdfast.model import FailureClass, Stage
from holdfast.model.life.ledger import Bucket, Ledger, Span, totals
from holdfast.past import Story, ledger_of
from holdfast.past.ledger import moments_of
from holdfast.policy.attempt.health import declared_now
from holdfast.policy.status.ledger import Moment
from tests.e2e.witness import ledger as witnessed
from tests.e2e.witness.law import SET_ASIDE, WORKER
from tests.e2e.witness.ledger import Life

LATE: Final = timedelta(seconds=60)
"""How much later than the audit log a bucket may begin, where nothing keeps the news away.

The watch gathers news for up to a second, the kubelet tells of an end about a second later, and a removal looks up to
a second after the last object is gone. The rest is for a machine on which the whole suite runs at once: 13 s were seen.
"""
AT_ONCE: Final = 8
"""How many histories are read at once."""
_WITHOUT_PODS: Final = frozenset({Bucket.QUEUED, Bucket.STAGING, Bucket.PAUSING, Bucket.SUSPENDED})
_MILLISECOND: Final = timedelta(milliseconds=1)


@dataclass(frozen=True)
class Verdict:
    """What came of judging the ledgers of some workloads."""

    counted: int = 0
    """Workloads whose ledger was counted."""
    beside: int = 0
    """Those of them that were also judged by the audit log."""
    timed: int = 0
    """Those of them whose buckets had to begin in time, too."""
    unread: int = 0
    """Workflows whose history, document or payloads this site cannot read: their ledgers are not counted."""
    broken: tuple[str, ...] = ()

    def __add__(self, other: Verdict) -> Verdict:
        """Return both together."""
        return Verdict(
            self.counted + other.counted,
            self.beside + other.beside,
            self.timed + other.timed,
            self.unread + other.unread,
            self.broken + other.broken,
        )


@dataclass
class _Pod:
    """A pod, by the audit log."""

    life: Life
    ran: list[datetime] = field(default_factory=list[datetime])
    """When it began to run: again after each restart in place."""
    waited: list[datetime] = field(default_factory=list[datetime])
    """When it fell back to waiting for its containers."""
    finished: list[datetime] = field(default_factory=list[datetime])
    """When its containers ended, in whole seconds."""
    over: datetime | None = None
    """When it was first said to have succeeded or failed: what is left of it is a record."""

    def began(self, at: datetime) -> datetime | None:
        """Return since when it had run at a time; None if it had not begun, or waited again."""
        begun = max((one for one in self.ran if one <= at), default=None)
        waiting = begun is not None and any(begun < one <= at for one in self.waited)
        return None if waiting else begun

    def is_there(self, begin: datetime, end: datetime) -> bool:
        """Whether it was there, and had not ended, at any time between two instants."""
        ends = [at for at in (self.over, self.life.asked or self.life.gone) if at is not None]
        gone = min(ends, default=None)
        return self.life.received < end and (gone is None or gone > begin + _MILLISECOND)


async def judged(
    client: Client, target: str, query: str, log: Iterable[BinaryIO], *, timed: bool, done: set[str]
) -> Verdict:
    """Judge the ledger of each workload of a Temporal namespace.

    Args:
        client: Reads the histories.
        target: The address of its server.
        query: Which workloads, in the words of Temporal's visibility; empty: all.
        log: The API server's audit log, since before the first of them began.
        timed: Whether nothing kept news from the workers, so that buckets must begin in time.
        done: Runs that are judged already; those that are judged now are added.
    """
    limit, place = asyncio.Semaphore(AT_ONCE), Place(target, client.namespace)

    async def story(workflow_id: str, run_id: str) -> Story | None:
        async with limit:
            try:
                return await fetch(client, place, workflow_id, run_id)
            except HoldfastError:
                return None

    latest = f'WorkflowType = "{names.WORKLOAD_WORKFLOW}" AND ExecutionStatus != "ContinuedAsNew"'
    listed = client.list_workflows(f"{latest} AND {query}" if query else latest)
    try:
        found = [(one.id, one.run_id) async for one in listed if one.run_id not in done]
    except RPCError:  # A test has stopped this server, and its histories cannot be read.
        return Verdict(unread=1)
    done.update(run for _, run in found)
    now = datetime.now(UTC)
    read = await asyncio.gather(*(story(*one) for one in found))
    stories = [one for one in read if one is not None]
    if not stories:
        return Verdict(unread=len(read))
    seen = await asyncio.to_thread(witnessed.within, log, *{one.spec.namespace for one in stories})
    verdict = Verdict(unread=len(read) - len(stories))
    for one in stories:
        verdict += judge(one, now, seen, timed=timed)
    return verdict


def judge(story: Story, now: datetime, seen: witnessed.Ledger, *, timed: bool) -> Verdict:
    """Judge the ledger of one life.

    Args:
        story: The life.
        now: Up to when to count it, if it goes on.
        seen: What the audit log tells.
        timed: Whether its buckets must begin in time.
    """
    ledger = ledger_of(story, now)
    broken = [*_added_up(story, ledger)]
    # Where another release lived it, or its beginning is gone, its states are not known at each moment.
    beside = not story.contradictions and not story.runs[0].previous_run_id
    # Where memory and cluster contradict each other, one of them was restored, and does not tell of what the other saw.
    beside = beside and not any(turn.after.held is not None and not turn.after.held.rule for turn in story.turns)
    beside = beside and not story.spec.namespace.startswith(tuple(SET_ASIDE))
    timed = timed and beside and not any(turn.after.blind for turn in story.turns)
    if beside:
        witness = _Witness(story, ledger, seen)
        broken += witness.early()
        broken += witness.late() if timed else ()
    name = f"{ledger.namespace}/{ledger.name}"
    return Verdict(1, int(beside), int(timed), broken=tuple(f"{name}: {text}" for text in broken))


def _added_up(story: Story, ledger: Ledger) -> Iterator[str]:
    """Say where a ledger does not add up, if it does not."""
    spans, first = ledger.spans, story.runs[0].began_at
    total = sum(ledger.milliseconds.values())
    if total != ledger.age or ledger.age != (ledger.until - ledger.begun_at) // _MILLISECOND:
        yield f"its buckets are {total} ms, its age is {ledger.age} ms, from {ledger.begun_at} to {ledger.until}"
    if not timedelta() <= first - ledger.begun_at < _MILLISECOND:
        yield f"it began at {first}, and is counted from {ledger.begun_at} on"
    if story.ended_at is not None and ledger.until > story.ended_at:
        yield f"it ended at {story.ended_at}, and is counted until {ledger.until}"
    if set(ledger.milliseconds) != set(Bucket) or min(ledger.milliseconds.values()) < 0:
        yield f"a bucket is missing or negative: {ledger.milliseconds}"
    if totals(spans) != ledger.milliseconds or any(span.milliseconds <= 0 for span in spans):
        yield f"its spans are not its buckets: {ledger.milliseconds}"
    yield from (f"{_told(one)} and {_told(two)} do not meet" for one, two in pairwise(spans) if one.end != two.begin)


class _Witness:
    """A ledger beside what the audit log tells of the same workload."""

    def __init__(self, story: Story, ledger: Ledger, seen: witnessed.Ledger) -> None:
        self._spans = ledger.spans
        self._spec = story.spec
        self._moments = moments_of(story)
        mine = [life for life in seen.lives.values() if _is_in(life, story)]
        owners = {life.attempt: life for life in mine if life.place[1] == names.ATTEMPT_PLURAL}
        # Another hand's objects are no part of its life, nor is what a worker that lost touch had sent.
        self._lives = [life for life in mine if _is_own(life, owners.get(life.attempt))]
        self._pods = [_pod(life, seen) for life in self._lives if life.place[1] == "pods"]
        self._unsure = seen.unsure
        self._place = (story.spec.namespace, story.uid)
        self._deletions = [one for one in seen.deletions if one.user == WORKER]

    def early(self) -> Iterator[str]:
        """Say where the ledger is ahead of what happened."""
        for span in self._spans:
            if span.bucket in _WITHOUT_PODS and not self._is_kept(span):
                there = [pod.life for pod in self._pods if pod.is_there(span.begin, span.end)]
                yield from (f"{_told(span)}: {life} was there" for life in there)
        for span in self._ready():
            moment = self._at(span.begin)
            wanted = declared_now(moment.spec, moment.state)
            ran = len(self._began(span))
            if ran + self._unsure[*self._place, span.attempt, "pods"] < wanted:
                yield f"{_told(span)}: {ran} of {wanted} pods had run by then"
        for span, life in self._made():
            if life.received < span.begin:
                yield f"{_told(span)}: {life} was asked for before"

    def late(self) -> Iterator[str]:
        """Say where the ledger is further behind what happened than `LATE`."""
        for span in self._ready():
            ran = self._began(span)
            if ran and self._spec.gang is None:
                yield from _behind(span, max(ran), span.begin, "its last pod ran")
        for span, life in self._made():
            yield from _behind(span, life.received, span.begin, "its first object was asked for")
        for before, span in pairwise(self._spans):
            if span.bucket is Bucket.DETECTING and before.bucket is not Bucket.CHECKPOINTING and self._died(span):
                ends = [end for pod in self._of(span.attempt) for end in pod.finished if end <= span.begin]
                if ends:
                    yield from _behind(span, max(ends), span.begin, "its container ended")
        for span in self._removals():
            asked = [one.received for one in self._deletions if self._is_of(one, span)]
            gone = [life.gone for life in self._lives if life.attempt == span.attempt and life.gone is not None]
            gone = [at for at in gone if span.begin <= at <= span.end]
            if asked:
                yield from _behind(span, min(asked), span.begin, "its removal was asked for")
            if gone:
                yield from _behind(span, max(gone), span.end, "the last of it was gone")

    def _began(self, span: Span) -> list[datetime]:
        """Return since when each pod had run that had as a span began."""
        return [at for pod in self._of(span.attempt) if (at := pod.began(span.begin)) is not None]

    def _ready(self) -> Iterator[Span]:
        """Yield the spans that began as the last pod ran."""
        for before, span in pairwise(self._spans):
            if before.bucket is Bucket.STARTING and span.bucket in {Bucket.PRODUCTIVE, Bucket.LOST}:
                yield span

    def _made(self) -> Iterator[tuple[Span, Life]]:
        """Yield the first span of each attempt, and the first object that was asked for it."""
        known = 0
        for span in self._spans:
            if span.attempt > known:
                known = span.attempt
                made = [life for life in self._lives if life.attempt == known]
                if made:
                    yield span, min(made, key=lambda life: life.received)

    def _removals(self) -> Iterator[Span]:
        """Yield the spans of removals that were carried out to their end."""
        for span, after in zip(self._spans, [*self._spans[1:], None], strict=True):
            if span.bucket is Bucket.REMOVING and (after.bucket in _WITHOUT_PODS if after else self._is_gone()):
                yield span

    def _is_gone(self) -> bool:
        """Whether the last attempt was proven gone."""
        attempt = self._moments[-1].state.attempt
        return attempt is not None and attempt.stage is Stage.GONE

    def _died(self, span: Span) -> bool:
        """Whether a span began as a container ended: a pod that restarts in place failed as it began again."""
        attempt = self._at(span.begin).state.attempt
        return span.cause == FailureClass.APP and attempt is not None and attempt.barrier is None

    def _is_of(self, deletion: witnessed.Deletion, span: Span) -> bool:
        """Whether a deletion was sent for an attempt's removal."""
        mine = any(life.place == deletion.place and life.attempt == span.attempt for life in self._lives)
        return mine and span.begin <= deletion.received <= span.end

    def _is_kept(self, span: Span) -> bool:
        """Whether pods may be there: it is held, or scaled to nothing, or its outcome is settled and it was retried."""
        if span.bucket is not Bucket.SUSPENDED:
            return False
        state = self._at(span.begin).state
        return state.held is not None or not state.intent.suspend

    def _at(self, at: datetime) -> Moment:
        """Return the state that held at a time."""
        return [one for one in self._moments if one.at <= at + _MILLISECOND][-1]

    def _of(self, attempt: int) -> Sequence[_Pod]:
        return [pod for pod in self._pods if pod.life.attempt == attempt]


def _is_in(life: Life, story: Story) -> bool:
    """Whether an object is of this life: tests give workloads the same uid, and begin one again."""
    mine = (life.place[2], life.workload) == (story.spec.namespace, story.uid)
    return mine and life.received >= story.runs[0].began_at


def _is_own(life: Life, owner: Life | None) -> bool:
    copied = life.place[1] == names.ATTEMPT_PLURAL and life.user != WORKER
    late = owner is not None and owner.gone is not None and owner.gone <= life.received
    return not copied and not late


def _pod(life: Life, seen: witnessed.Ledger) -> _Pod:
    pod = _Pod(life)
    for status in seen.statuses.get(life.place, ()):
        if life.received <= status.received and (life.gone is None or status.received <= life.gone):
            pod.finished += status.finished
            if status.phase in {"Running", "Succeeded"}:
                pod.ran.append(status.received)
            elif status.phase == "Pending":
                pod.waited.append(status.received)
            if status.phase in {"Succeeded", "Failed"}:
                pod.over = pod.over or status.received
    return pod


def _behind(span: Span, seen: datetime, counted: datetime, what: str) -> Iterator[str]:
    """Say it if what the audit log has seen is too far from when the ledger counts it."""
    if abs(counted - seen) > LATE:
        yield f"{_told(span)}: {what} at {seen:%H:%M:%S.%f}, and it counts {counted:%H:%M:%S.%f}"


def _told(span: Span) -> str:
    return f"{span.bucket} of attempt {span.attempt} [{span.begin:%H:%M:%S.%f} - {span.end:%H:%M:%S.%f}]"
