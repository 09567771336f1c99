"""What of a gang is news to its rendezvous: what was said and not handed on yet, gathered into batches (record 0030).

A heartbeat is not handed on, a change is. Batches go one at a time: the first at once, the next one a second later at
the earliest. Before a failure is handed on all others are asked to speak, at most for the keep-alive, so that what
belongs together is told together: who met a lost member fails too, and of failures the earliest is charged.
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
"""Between the ends of two batches."""
FAILURES_WHOLE: Final = 64
"""Members whose failures are told in full, in one batch."""
CURT: Final = 64
"""Characters that are told of any other's: a batch of 4,096 stays below a MiB."""


@dataclass(frozen=True, slots=True)
class Word:
    """What one agent said last."""

    join: Join
    report: Report

    def same(self, other: Word | None) -> bool:
        """Whether it says the same as another word: since when a state lasts is no news."""
        return (
            other is not None
            and self.join == other.join
            and (self.report.state, self.report.round, self.report.failures)
            == (other.report.state, other.report.round, other.report.failures)
        )


@dataclass(slots=True)
class News:
    """What is to be handed on of one gang. `at` is always the hub's clock, in seconds."""

    keep_alive: timedelta
    handed: dict[str, Word] = field(default_factory=dict[str, Word])
    """What the rendezvous has taken in, by member."""
    waiting: dict[str, Word] = field(default_factory=dict[str, Word])
    """What it is still to be told."""
    losses: dict[str, Lost] = field(default_factory=dict[str, Lost])
    failing: float | None = None
    """Since when a failure waits for the others' words."""
    spoken: set[str] = field(default_factory=set[str])
    """Who has spoken since then."""
    ended: float | None = None
    """When the last batch was."""

    def said(self, word: Word, at: float) -> bool:
        """Take in what an agent says; return whether that is news."""
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
            # It has come back to what is known; what lay between was never told, and needs not be.
            self.waiting.pop(member, None)
            return False
        self.waiting[member] = word
        if word.report.state is MemberState.FAILED and self.failing is None:
            self.failing, self.spoken = at, {member}
        return True

    def lost(self, loss: Lost) -> None:
        """Note that a pod that held a place is gone, or silent."""
        known = self.losses.get(loss.member)
        if known is None or known.absence is Absence.SILENT or known.pod_uid != loss.pod_uid:
            self.losses[loss.member] = loss

    def asks(self, others: Collection[str]) -> bool:
        """Return whether others of the round are to speak before a failure is handed on."""
        return self.failing is not None and any(one not in self.spoken and one not in self.losses for one in others)

    def due(self, at: float, others: Collection[str]) -> float | None:
        """Return from when on a batch may be taken; None while there is nothing to say.

        Args:
            at: now.
            others: of whom a word is waited for before a failure is handed on: those that run in the round.
        """
        if not self.waiting and not self.losses:
            return None
        after = self.ended + PAUSE.total_seconds() if self.ended is not None else at
        if self.failing is not None and self.asks(others):
            after = max(after, self.failing + self.keep_alive.total_seconds())
        return after

    def taken(self) -> Batch:
        """Return the next batch; its words count as handed on once `done` says so."""
        words, losses = dict(self.waiting), dict(self.losses)
        # A flood of failures is told in short: the earliest is charged, and all its words go with it.
        failed = sorted((word.report.failures[0].at, member) for member, word in words.items() if word.report.failures)
        curt = {member for _, member in failed[FAILURES_WHOLE:]}
        # What a member said goes before its loss: who had succeeded, has. And a loss is of one pod, by its uid.
        events = [_event(word, self.handed.get(member), curt=member in curt) for member, word in words.items()]
        return Batch((*events, *losses.values()), words, losses)

    def done(self, batch: Batch, at: float) -> None:
        """Count a batch as handed on."""
        self.ended = at
        for member, word in batch.words.items():
            self.handed[member] = word
            if self.waiting.get(member) is word:
                del self.waiting[member]
        for member, loss in batch.losses.items():
            if self.losses.get(member) is loss:
                del self.losses[member]
            known = self.handed.get(member)
            if known is not None and known.join.pod_uid == loss.pod_uid:
                # Should it be heard again, that is news, even if it says what it said before.
                del self.handed[member]
        if not any(word.report.state is MemberState.FAILED for word in self.waiting.values()):
            self.failing, self.spoken = None, set()


@dataclass(frozen=True, slots=True)
class Batch:
    """What is told together."""

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
