"""The logic of a gang's hub: which agent speaks for a member, what the hub forwards, and its answer to each agent.

It lies between the agents' exchanges and the rendezvous' updates, and performs neither (decision record 0030). `at` is
a monotonic clock in seconds; `now` is the time of day, which the rendezvous' deadlines use.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from holdfast.model.gang.orders import Holder, Orders
from holdfast.model.gang.state import Absence, Gang, GangEvent, Listening, Lost
from holdfast.model.gang.status import GangPhase
from holdfast.model.gang.wire import EXIT_AGAIN, Announcement, Directive, DirectiveKind, Join, MemberState
from holdfast.policy.rendezvous.clocks import Clocks
from holdfast.policy.rendezvous.incarnation import Lives
from holdfast.policy.rendezvous.liveness import Hearing
from holdfast.policy.rendezvous.members import supersedes
from holdfast.policy.rendezvous.news import Batch, News, Word
from holdfast.policy.rendezvous.orders import directives_of, leave
from holdfast.policy.values.edit import edit

_OUT: Final = {DirectiveKind.LEAVE, DirectiveKind.FINISH}
_RUNS: Final = {MemberState.INIT, MemberState.HEALTHY, MemberState.UNKNOWN}
NOBODY_KNOWS: Final = Directive(revision=0, kind=DirectiveKind.WAIT, why="its word is on its way to the rendezvous")


class GangHub:
    """One gang, from the time a hub has attached until another one does."""

    def __init__(self, gang: Gang, orders: Orders, holders: tuple[Holder, ...], at: float) -> None:
        """Begin with the current orders and holders, and with no agent heard."""
        self.gang = gang
        self.attempt = orders.attempt
        self.orders = orders
        self.news = News(gang.keep_alive)
        self.hearing = Hearing(gang.keep_alive, gang.heartbeat, since=at, ticked=at)
        self.holders = {one.member: one for one in holders}
        self.clocks = Clocks()
        self.lives = Lives(gang.keep_alive.total_seconds(), at)
        self.directives: dict[str, Directive] = {}
        self.doomed: dict[str, str] = {}
        """Pods that are gone or about to go, or whose nodes are, according to the cluster: the reason by uid.

        A pod that is still heard is alive. One that is silent is lost, even if this hub hears no agent at all.
        """
        self._asked: tuple[datetime, float] | None = None
        """The deadline that fell due, and when the hub last told the rendezvous that it listens."""
        self.takes(orders)

    # --- agents' posts, and the answers

    def hears(self, said: Announcement, at: float, now: datetime | None = None) -> bool:
        """Record a post of an agent; return whether it must be forwarded.

        Args:
            said: the post.
            at: the time of the hub's clock.
            now: the time of day, with which the times of failures are corrected; None: they are not corrected.
        """
        if said.join.attempt != self.attempt:
            return False
        holder = self.holders.get(said.join.member)
        life = self.lives.hears(said.join, holder, at)
        if life is None:
            return False
        join = edit(said.join, life=life)
        if holder is not None and not _holds(holder, join) and not supersedes(join, holder):
            return False
        self.hearing.speaks(join.member, at)
        if self.orders.phase is GangPhase.CLOSED and holder is not None and _holds(holder, join):
            return False
        if holder is not None and not _holds(holder, join):
            self.clocks.forgets(holder.incarnation)
        report = self.clocks.hears(said, now) if now is not None else said.report
        return self.news.said(Word(join, report), at)

    def answer(self, join: Join) -> Directive | None:
        """Return the directive for an agent; None: it cannot be decided here yet."""
        if join.attempt < self.attempt:
            return leave(self.orders.revision, f"attempt {join.attempt} has ended", 0)
        if join.attempt > self.attempt:
            return None
        holder, life = self.holders.get(join.member), self.lives.of(join)
        if holder is None:
            return NOBODY_KNOWS
        join = edit(join, life=life or 0)
        if not _holds(holder, join):
            return (
                NOBODY_KNOWS
                if life is None or supersedes(join, holder)
                else leave(self.orders.revision, "a later agent holds its place", EXIT_AGAIN)
            )
        given = self.directives.get(join.member, NOBODY_KNOWS)
        return edit(given, ask=True) if self.asks(join.member) else given

    def asks(self, member: str) -> bool:
        """Return whether a member must post at once, since another one has failed."""
        return self.news.failing is not None and member not in self.news.spoken and member in self._running()

    # --- forwarding

    def lost(self, member: str, pod_uid: str, absence: Absence, why: str) -> None:
        """Note that a pod that holds a place is gone or silent."""
        holder, told_last = self.holders.get(member), self.directives.get(member)
        if told_last is not None and told_last.kind in _OUT:
            return  # It was told to go.
        if holder is not None and holder.pod_uid == pod_uid and holder.absent in {None, Absence.SILENT} - {absence}:
            self.news.lost(Lost(member=member, pod_uid=pod_uid, absence=absence, why=why))

    def tick(self, at: float) -> timedelta:
        """Advance the clock, and note members that fell silent; return how long this process stood still, if it did."""
        stood = self.hearing.tick(at)
        if self.orders.phase is not GangPhase.CLOSED:
            present, span = self.present(), self.gang.keep_alive.total_seconds()
            pods = {member: self.holders[member].pod_uid for member in present}
            doomed = {member for member, uid in pods.items() if uid in self.doomed}
            for member in self.hearing.silent(present, at, doomed):
                why = self.doomed.get(pods[member], "")
                told = f"nothing was heard for {span:g} s" + (f", and {why}" if why else "")
                self.lost(member, pods[member], Absence.SILENT, told)
        return stood

    def suspects(self, at: float) -> dict[str, str]:
        """Return the pods, by member, that are silent but not known to be lost."""
        quiet = self.hearing.quiet(self.present(), at) if self.orders.phase is not GangPhase.CLOSED else ()
        return {member: self.holders[member].pod_uid for member in quiet}

    def present(self) -> list[str]:
        """Return the members that should be heard."""
        return [
            name
            for name, one in self.holders.items()
            if one.absent is None and (name not in self.directives or self.directives[name].kind not in _OUT)
        ]

    def due(self, at: float, now: datetime) -> float | None:
        """Return when a message to the rendezvous is due, on the hub's clock; None: not before the next post."""
        news = self.news.due(at, self._running())
        falls = self._falls_due(at, now)
        return min((one for one in (news, falls) if one is not None), default=None)

    def batch(self, at: float, now: datetime) -> tuple[Batch, tuple[GangEvent, ...]]:
        """Return the message due now: the news, if it may be sent yet, and that the hub listens to the gang."""
        news = self.news.due(at, self._running())
        batch = self.news.taken() if news is not None and news <= at else Batch((), {}, {})
        since = now - timedelta(seconds=max(at - self.hearing.since, 0.0))
        if self.orders.due is not None and self.orders.due <= now:
            self._asked = (self.orders.due, at)
        return batch, (*batch.events, Listening(since=since))

    def done(self, batch: Batch, at: float) -> None:
        """Mark a batch as delivered: each agent in it holds its place, unless a later agent does."""
        self.news.done(batch, at)
        for member, word in batch.words.items():
            holder, join = self.holders.get(member), word.join
            if holder is not None and holder.absent is Absence.GONE and holder.pod_uid == join.pod_uid:
                continue
            if holder is None or _holds(holder, join) or supersedes(join, holder):
                absent = holder.absent if holder is not None and _holds(holder, join) else None
                self.holders[member] = Holder(
                    member=member,
                    pod_uid=join.pod_uid,
                    incarnation=join.incarnation,
                    started_at=join.started_at,
                    absent=None if absent is Absence.SILENT else absent,
                    life=join.life,
                )
        for member, loss in batch.losses.items():
            holder = self.holders.get(member)
            if holder is not None and holder.pod_uid == loss.pod_uid:
                self.holders[member] = edit(holder, absent=loss.absence)

    def takes(self, orders: Orders) -> Mapping[str, Directive]:
        """Record the orders of the rendezvous; return the directives that have changed."""
        news = directives_of(orders, self.gang.heartbeat)
        self.orders = orders
        self.directives |= news
        return news

    # --- when news may be sent

    def _running(self) -> set[str]:
        """Return the members to wait for before a failure is forwarded: those that run, as far as is known."""
        return {
            name
            for name in self.present()
            if name in self.directives
            and self.directives[name].kind is DirectiveKind.RUN
            and self._state(name) in _RUNS
        }

    def _state(self, member: str) -> MemberState:
        word = self.news.waiting.get(member) or self.news.handed.get(member)
        return word.report.state if word is not None else MemberState.UNKNOWN

    def _falls_due(self, at: float, now: datetime) -> float | None:
        """Return when to tell the rendezvous that the hub listens to its gang, because a deadline falls due."""
        due = self.orders.due
        if due is None:
            return None
        falls = at + max((due - now).total_seconds(), 0.0)
        if self._asked is None or self._asked[0] != due:
            return falls
        # It was told already, without effect: a failure by deadline waits for a whole keep-alive. If it must wait
        # longer for a member's post, the news of that post triggers it.
        span = self.gang.keep_alive.total_seconds()
        whole, asked = self.hearing.since + span, self._asked[1]
        return max(falls, whole if asked < whole else asked + span)


def _holds(holder: Holder, join: Join) -> bool:
    return holder.incarnation == join.incarnation
