"""The news of a gang for its rendezvous: posts that were not forwarded yet, gathered into batches (record 0030).

The hub forwards changes, not heartbeats. Batches go one at a time: the first at once, the next one a second later at
the earliest. Before the hub forwards a failure, it asks all others to post, and waits at most for the keep-alive. So
related events arrive together: peers of a lost member fail too, and the earliest failure is charged.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from holdfast.model.gang.state import Absence, GangEvent, Lost, Reported, Said
from holdfast.model.gang.wire import Join, MemberState, Report, bounded
from holdfast.policy.rendezvous.members import supersedes
from holdfast.policy.values.edit import edit

PAUSE: Final = timedelta(seconds=1)
"""The shortest time between the ends of two batches."""
FAILURES_WHOLE: Final = 64
"""How many members' failures one batch contains in full."""
CURT: Final = 64
"""The characters sent of any other member's error: a batch of 4,096 stays below a MiB."""


@dataclass(frozen=True, slots=True)
class Word:
    """The last post of one agent."""

    join: Join
    report: Report

    def same(self, other: Word | None) -> bool:
        """Whether it equals another post: the time since which a state lasts is no news."""
        return (
            other is not None
            and self.join == other.join
            and (self.report.state, self.report.round, self.report.failures)
            == (other.report.state, other.report.round, other.report.failures)
        )


@dataclass(slots=True)
class News:
    """The posts of one gang to forward. `at` is always the hub's clock, in seconds."""

    keep_alive: timedelta
    handed: dict[str, Word] = field(default_factory=dict[str, Word])
    """The posts that the rendezvous has received, by member."""
    waiting: dict[str, Word] = field(default_factory=dict[str, Word])
    """The posts that the rendezvous has not received yet, by member."""
    losses: dict[str, Lost] = field(default_factory=dict[str, Lost])
    failing: float | None = None
    """The time since which a failure waits for the others' posts."""
    spoken: set[str] = field(default_factory=set[str])
    """The members that have posted since then."""
    ended: float | None = None
    """When the last batch ended."""

    def said(self, word: Word, at: float) -> bool:
        """Record the post of an agent; return whether it is news."""
        member = word.join.member
        last = self.waiting.get(member) or self.handed.get(member)
        if last is not None and last.join.incarnation != word.join.incarnation and not supersedes(word.join, last.join):
            return False
        self.spoken.add(member)
        if member in self.losses and self.losses[member].absence is Absence.SILENT:
            del self.losses[member]
        if word.same(last):
            return False
        if word.same(self.handed.get(member)):
            # It is back in the known state; the change in between was not forwarded, and need not be.
            self.waiting.pop(member, None)
            return False
        self.waiting[member] = word
        if word.report.state is MemberState.FAILED and self.failing is None:
            self.failing, self.spoken = at, {member}
        return True

    def lost(self, loss: Lost) -> None:
        """Note that a pod that held a place is gone or silent."""
        known = self.losses.get(loss.member)
        if known is None or known.absence is Absence.SILENT or known.pod_uid != loss.pod_uid:
            self.losses[loss.member] = loss

    def asks(self, others: Collection[str]) -> bool:
        """Return whether others of the round must post before a failure is forwarded."""
        return self.failing is not None and any(one not in self.spoken and one not in self.losses for one in others)

    def due(self, at: float, others: Collection[str]) -> float | None:
        """Return the time from which a batch may be taken; None while there is no news.

        Args:
            at: the current time.
            others: the members to wait for before a failure is forwarded: those that run in the round.
        """
        if not self.waiting and not self.losses:
            return None
        after = self.ended + PAUSE.total_seconds() if self.ended is not None else at
        if self.failing is not None and self.asks(others):
            after = max(after, self.failing + self.keep_alive.total_seconds())
        return after

    def taken(self) -> Batch:
        """Return the next batch; its posts count as forwarded once `done` is called."""
        words, losses = dict(self.waiting), dict(self.losses)
        # A flood of failures is shortened: the earliest is charged, and its error is sent in full.
        failed = sorted((word.report.failures[0].at, member) for member, word in words.items() if word.report.failures)
        curt = {member for _, member in failed[FAILURES_WHOLE:]}
        # A member's post goes before its loss: an earlier success counts. And a loss concerns one pod, by its uid.
        events = [_event(word, self.handed.get(member), curt=member in curt) for member, word in words.items()]
        return Batch((*events, *losses.values()), words, losses)

    def unsure(self, batch: Batch) -> None:
        """Note that a batch may have been taken in: whom it lost is news once heard again, even if it is as before."""
        for member, loss in batch.losses.items():
            known = self.handed.get(member)
            if known is not None and known.join.pod_uid == loss.pod_uid:
                del self.handed[member]

    def done(self, batch: Batch, at: float) -> None:
        """Mark a batch as forwarded."""
        self.ended = at
        for member, word in batch.words.items():
            self.handed[member] = word
            if self.waiting.get(member) is word:
                del self.waiting[member]
        for member, loss in batch.losses.items():
            if self.losses.get(member) is loss:
                del self.losses[member]
        self.unsure(batch)
        if not any(word.report.state is MemberState.FAILED for word in self.waiting.values()):
            self.failing, self.spoken = None, set()


@dataclass(frozen=True, slots=True)
class Batch:
    """Events that are sent together."""

    events: tuple[GangEvent, ...]
    words: Mapping[str, Word]
    losses: Mapping[str, Lost]


def _event(word: Word, known: Word | None, *, curt: bool) -> GangEvent:
    report = word.report
    if curt:
        first = report.failures[0]
        report = edit(report, failures=(edit(first, error=bounded(first.error, CURT)),))
    if known is not None and known.join == word.join:
        return Reported(member=word.join.member, incarnation=word.join.incarnation, report=report)
    return Said(join=word.join, report=report)
