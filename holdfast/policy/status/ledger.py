"""Counts a workload's life: from its states over time to spans, each in one bucket (row P5). Pure.

Three things are known only later, and are corrected then: that a pod had failed, since its own time is earlier than
the news of it; that work was lost, once its pods go without having saved it; since when a reset removed its attempt.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, NamedTuple

from holdfast.model import ActionKind, Failure, Kind, OperationKind, Parking, Phase, Reason, Stage, State, Workload
from holdfast.model.life.ledger import Bucket, Span, totals
from holdfast.policy.attempt.health import LIVE, REMOVING, current, not_ready
from holdfast.policy.attempt.scale import is_at_nothing
from holdfast.policy.failures.rules import rule_on
from holdfast.policy.sides.staging import is_staging
from holdfast.policy.values.edit import edit

_NEVER: Final = datetime.min.replace(tzinfo=UTC)
_HIDE_A_FAILURE: Final = frozenset({Reason.RESETTING, Reason.REQUEUED})
"""Reasons of a removal that say nothing about the failure behind it."""
_RAN: Final = frozenset({Bucket.STARTING, Bucket.PRODUCTIVE})
"""The buckets in which a failure may have been unknown for a while."""


class Moment(NamedTuple):
    """A state, and when it began to hold."""

    at: datetime
    spec: Workload
    state: State


def spans_of(begin: datetime, moments: Iterable[Moment], end: datetime) -> tuple[Span, ...]:
    """Return the spans of a life, from its beginning to its end, without a gap; all instants are whole milliseconds.

    The life ends when its outcome is settled and its removal, if that begins at once, is done. What is kept after that
    is not counted.

    Args:
        begin: When its workflow began. It is queued until the first moment.
        moments: Its states, oldest first. An earlier time than that of the moment before counts as the same time.
        end: Up to when to count a life that has not ended.
    """
    book = _Book(whole(begin))
    for moment in moments:
        book.take(moment)
    return book.close(whole(end))


class Tally:
    """Counts a life while it goes on: what its time was spent on, attempt by attempt (for the metrics)."""

    def __init__(self, begin: datetime) -> None:
        """Begin to count.

        Args:
            begin: When its workflow, or this run of it, began.
        """
        self._book = _Book(whole(begin))
        self._last: Moment | None = None

    def take(self, moments: Iterable[Moment]) -> None:
        """Add states, oldest first."""
        for moment in moments:
            self._book.take(moment)
            self._last = moment

    def settled(self, now: datetime) -> dict[Bucket, int]:
        """Return the milliseconds in each bucket since it was last asked, and count anew from now on.

        What is corrected later than that is not counted again: so it is asked once an attempt is over.
        """
        spans = self._book.close(whole(now))
        self._book = _Book(self._book.at)
        if self._last is not None:
            self._book.take(self._last)
        return {bucket: spent for bucket, spent in totals(spans).items() if spent}


def bucket_of(spec: Workload, state: State) -> Bucket | None:
    """Return the bucket of the time in which a state holds; None: its outcome is settled, and nothing is removed."""
    attempt = state.attempt
    if attempt is not None and attempt.stage in REMOVING:
        return Bucket.REMOVING
    if state.outcome is not None:
        return None
    if state.held is not None or is_at_nothing(state):
        return Bucket.SUSPENDED
    if attempt is None or attempt.stage is Stage.GONE:
        return _bucket_without_pods(state)
    if attempt.suspended:
        return Bucket.REMOVING if attempt.parking is Parking.GOING else Bucket.SUSPENDED
    if state.phase is Phase.CHECKPOINTING:
        return Bucket.CHECKPOINTING
    if state.unhealthy is not None:
        return Bucket.DETECTING
    if attempt.ready_at is None or state.phase is not Phase.RUNNING or attempt.making:
        return Bucket.STARTING
    if not_ready(spec, state) <= _ignored(state):
        return Bucket.PRODUCTIVE
    return Bucket.DETECTING if _failure_in(state) is not None else Bucket.STARTING


def _ignored(state: State) -> int:
    """Return how many failed pods its rules ignore, so that it goes on without them."""
    seen = current(state)
    failures = seen.failures if seen is not None else ()
    return sum(rule_on(state.policy, one).action.kind is ActionKind.IGNORE for one in failures)


def _failure_in(state: State) -> Failure | None:
    """Return the failure that a decision or its healing must follow; None if there is none."""
    if state.unhealthy is not None:
        return state.unhealthy.failure
    seen = current(state)  # A failure for which one component alone is made again is no failure of the workload.
    return seen.failures[0] if seen is not None and seen.failures else None


def _bucket_without_pods(state: State) -> Bucket:
    if state.intent.suspend:
        return Bucket.SUSPENDED
    if is_staging(state) or (state.operation is not None and state.operation.kind is OperationKind.STAGE):
        return Bucket.STAGING
    return Bucket.PAUSING if state.phase is Phase.RESETTING else Bucket.QUEUED


def _is_up(state: State) -> bool:
    """Whether an attempt exists and its pods are not being removed."""
    attempt = state.attempt
    return state.outcome is None and attempt is not None and attempt.stage in LIVE and not attempt.suspended


class _Piece(NamedTuple):
    bucket: Bucket | None
    attempt: int
    cause: str
    node: str


_BEFORE: Final = _Piece(Bucket.QUEUED, 0, "", "")


@dataclass(slots=True)
class _Loss:
    """Pods that went without success: what they did after the last save is lost."""

    first: int
    """The index of the first span of these pods."""
    cause: str
    node: str


@dataclass(slots=True)
class _Book:
    """The spans so far, and the piece that is not closed yet."""

    at: datetime
    piece: _Piece = _BEFORE
    spans: list[Span] = field(default_factory=list[Span])
    cause: str = ""
    """What the time is the price of, until the workload is productive again."""
    node: str = ""
    last: State | None = None
    up_since: int | None = None
    """The index of the first span since the living pods were created; None while there are none."""
    loss: _Loss | None = None
    kept_from: datetime | None = None
    """When its outcome was settled and nothing was being removed; None while it lives."""

    def take(self, moment: Moment) -> None:
        """Add a moment."""
        _, spec, state = moment
        self._advance(max(whole(moment.at), self.at))
        self._correct_reset(state)
        self._follow_pods(spec, state)
        bucket = bucket_of(spec, state)
        if bucket is Bucket.DETECTING:
            self._detect(state)
        self._follow_cause(bucket, state)
        number = state.attempt.number if state.attempt is not None else 0
        self.piece = _Piece(bucket, number, self.cause, self.node)
        if state.outcome is None:
            self.kept_from = None
        elif bucket is None and self.kept_from is None:
            self.kept_from = self.at
        self.last = state

    def close(self, end: datetime) -> tuple[Span, ...]:
        """Return all spans, up to the end of the life."""
        self._advance(max(end, self.at))
        self._settle()
        until = self.kept_from or self.at
        return _joined([edit(span, end=min(span.end, until)) for span in self.spans if span.begin < until])

    def _advance(self, at: datetime) -> None:
        """Close the piece at a later time."""
        if at > self.at:
            bucket, attempt, cause, node = self.piece
            # What is kept after an end counts only if a person has it retried: until then it was held.
            span = Span(
                bucket=bucket or Bucket.SUSPENDED, begin=self.at, end=at, attempt=attempt, cause=cause, node=node
            )
            # A long attempt has many turns and few spans. Those of the pods that are up begin where they begin.
            before = self.spans[self.up_since or 0 :]
            if before and edit(before[-1], begin=span.begin, end=span.end) == span:
                self.spans[-1] = edit(before[-1], end=at)
            else:
                self.spans.append(span)
        self.at = at

    def _correct_reset(self, state: State) -> None:
        """Correct the time of a reset that has removed its attempt, or begun to: until its end that was not known."""
        operation, attempt = self.last.operation if self.last is not None else None, state.attempt
        if self.up_since is None or operation is None or operation.restart is None or attempt is None:
            return
        if attempt.number > operation.attempt or attempt.stage not in LIVE:
            since, (cause, node) = whole(operation.restart.at), _blamed(operation.restart.failure)
            self._change(self.up_since, since, {Bucket.DETECTING}, Bucket.REMOVING, cause, node)

    def _follow_pods(self, spec: Workload, state: State) -> None:
        """Note when pods come and go."""
        up, last = _is_up(state), self.last
        anew = up and self.up_since is not None and last is not None and _is_anew(spec, last, state)
        if self.up_since is not None and (anew or not up):
            self.cause, self.node = self._cause_of_end(state)
            if spec.kind is not Kind.SERVICE and state.outcome not in {Phase.SUCCEEDED, Phase.CANCELLED}:
                self.loss = _Loss(self.up_since, self.cause, self.node)
            self.up_since = None
        if up and self.up_since is None:
            self._settle()
            self.up_since = len(self.spans)

    def _cause_of_end(self, after: State) -> tuple[str, str]:
        """Return why pods go, and the node to blame: the failure behind it, or the reason of the removal."""
        if after.outcome is Phase.FAILED and after.outcome_failure is not None:
            return _blamed(after.outcome_failure)
        if self.last is not None and self.last.held is not None and self.last.held.rule:
            return self.cause, self.node  # A person has only confirmed what the rule would have done.
        if after.reason in _HIDE_A_FAILURE or _is_up(after):
            if self.last is not None and self.last.unhealthy is not None:
                return _blamed(self.last.unhealthy.failure)
            if self.piece.bucket is Bucket.DETECTING:
                return self.cause, self.node
        return after.reason.value, ""

    def _follow_cause(self, bucket: Bucket | None, state: State) -> None:
        match bucket:
            case Bucket.PRODUCTIVE:
                self.cause = self.node = ""
            case Bucket.CHECKPOINTING if state.checkpoint is not None:
                self.cause, self.node = state.checkpoint.reason.value, ""
            case Bucket.SUSPENDED if state.held is None and state.intent.suspend:
                self.cause, self.node = state.intent.suspend_reason.value, ""
            case Bucket.SUSPENDED if not self.cause:
                self.cause = state.reason.value
            case Bucket.STARTING if self.piece.bucket is Bucket.PRODUCTIVE:
                self.cause = Reason.INSUFFICIENT_PODS_READY.value
            case _:
                pass

    def _detect(self, state: State) -> None:
        """Correct the time since the pod failed, by its own time: it was not known then."""
        failure = _failure_in(state)
        assert failure is not None
        death = state.unhealthy.death if state.unhealthy is not None else None
        failed = failure.time if death is None else min(failure.time, death.time)
        self.cause, self.node = _blamed(failure)
        if self.up_since is not None:
            self._change(self.up_since, whole(failed), _RAN, Bucket.DETECTING, self.cause, self.node)

    def _settle(self) -> None:
        """Correct the productive time since the last save of pods that have gone: it was lost."""
        loss, self.loss = self.loss, None
        if loss is None or self.last is None:
            return
        saved = whole(self.last.saved.at) if self.last.saved is not None else _NEVER
        self._change(loss.first, saved, {Bucket.PRODUCTIVE}, Bucket.LOST, loss.cause, loss.node)

    def _change(
        self, first: int, since: datetime, which: Iterable[Bucket], bucket: Bucket, cause: str, node: str
    ) -> None:
        """Move the part after `since` of the spans from `first` on that are in one of some buckets to another one."""
        kept, self.spans = self.spans[first:], self.spans[:first]
        for span in kept:
            if span.bucket not in which or span.end <= since:
                self.spans.append(span)
                continue
            if span.begin < since:
                self.spans.append(edit(span, end=since))
            self.spans.append(edit(span, begin=max(span.begin, since), bucket=bucket, cause=cause, node=node))


def _is_anew(spec: Workload, before: State, after: State) -> bool:
    """Whether all that ran began anew: in the next attempt, in place, or with all components made again."""
    old, new = before.attempt, after.attempt
    assert old is not None
    assert new is not None
    if new.number != old.number:
        return True
    if old.barrier is not None and new.barrier is not None and new.barrier.attempt > old.barrier.attempt:
        return True
    again = {name for name, launch in new.launches.items() if launch > old.launches.get(name, 0)}
    return bool(again) and again >= {one.name for one in spec.components if one.expected_pods}


def _blamed(failure: Failure) -> tuple[str, str]:
    node = failure.node or (failure.death.node if failure.death is not None else "")
    return failure.cls.value, node


def whole(at: datetime) -> datetime:
    """Return an instant without parts of a millisecond."""
    return at.replace(microsecond=at.microsecond // 1000 * 1000)


def _joined(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Return the spans with neighbours of the same kind made one."""
    found: list[Span] = []
    for span in spans:
        if found and edit(found[-1], begin=span.begin, end=span.end) == span:
            found[-1] = edit(found[-1], end=span.end)
        else:
            found.append(span)
    return tuple(found)
