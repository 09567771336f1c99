"""Decides which changes need a signal, and tracks what workflows acknowledged. Pure: callers pass time and changes."""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from holdfast.model import Interval, Observation
from holdfast.model.observation import Asked
from holdfast.worker.watch.cache import Cache
from holdfast.worker.watch.facts import DIGEST_BYTES, KEY_BYTES, Facts, Urgency, facts_of, short_key, urgency
from holdfast.worker.watch.seen import AnchorSeen, AttemptSeen, KindKey, Place
from holdfast.worker.watch.signals import Signals, Wanted

HOT: Final = 0.02
"""Seconds until a change that may be a failure is checked: changes that come with it are checked in one look."""
WARM: Final = 0.1
PER_POD: Final = 0.00005
"""Seconds between two looks at a workload for each pod it has, so that large workloads do not fill the loop."""
RECORD_BYTES: Final = KEY_BYTES + DIGEST_BYTES
DOUBT_FIRST: Final = 1.0
UNADMITTED: Final = 5.0
"""Seconds that pods may be absent before their namespace's Events are read."""
DOUBT_AGAIN: Final = 5.0
ACKNOWLEDGED_MAXIMUM: Final = 50_000
"""How many workloads' digests a heartbeat carries: under 1 MiB."""


@dataclass(frozen=True, slots=True)
class Send:
    """One signal to send: its workflow, its content, and the keys it acknowledges."""

    workload_uid: str
    workflow_id: str
    wanted: Wanted
    observation: Observation
    facts: Facts
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Doubt:
    """A component that should exist but has not been seen: it may be gone, or its stream may be late."""

    workload_uid: str
    attempt_uid: str
    place: Place


@dataclass(slots=True)
class _Subject:
    """What one workload's workflow was last told."""

    told: Facts | None = None
    keys: tuple[str, ...] = ()
    owed: bool = False
    """Whether its workflow must be told of a blindness that has ended, even without other news."""
    blind_told: datetime | None = None
    looked: float = 0.0
    closed: set[str] = field(default_factory=lambda: set[str]())
    """Keys of attempts and anchors whose workflow has ended."""

    def told_of(self, key: str) -> Facts | None:
        """Return what was told about this attempt; None if the last news was about another."""
        return self.told if self.keys and self.keys[0] == key else None


@dataclass(slots=True)
class Counts:
    """Counts what happened to the changes, for the metrics."""

    same: int = 0
    own_deletion: int = 0
    not_submitted: int = 0
    coalesced: int = 0


class Attention:
    """Turns changes into signals. It owns no clock, no task and no connection."""

    def __init__(
        self,
        cache: Cache,
        signals: Signals,
        *,
        blind: Callable[[datetime, Collection[KindKey]], tuple[Interval, ...]] = lambda _, __: (),
        unseen: Callable[[], frozenset[KindKey]] = frozenset,
        unserved: Callable[[], frozenset[KindKey]] = frozenset,
        settled: Callable[[AttemptSeen], bool] = lambda _: True,
        listed: Callable[[], bool] = lambda: True,
        version: Callable[[str, Collection[KindKey]], int] = lambda _, __: 0,
    ) -> None:
        """Start with nothing told.

        Args:
            cache: the objects seen.
            signals: the waiting signals.
            blind: returns the spans since a time in which the watch could not see some kinds.
            unseen: returns the kinds that the watch cannot read.
            unserved: returns those of them that the cluster does not serve.
            settled: whether everything about an attempt has been listed once; before that, no signal is sent about it.
            listed: whether all anchors and attempts have been listed once; before that, none counts as missing.
            version: returns the version up to which some kinds, and those all attempts need, are known in a namespace.
        """
        self._cache = cache
        self._signals = signals
        self._blind = blind
        self._unseen = unseen
        self._unserved = unserved
        self._settled = settled
        self._listed = listed
        self._version = version
        self._looks: dict[str, float] = {}
        self._since: dict[str, float] = {}
        self._subjects: dict[str, _Subject] = {}
        self._acknowledged: dict[bytes, bytes] = {}
        self._busy: set[str] = set()
        self._doubts: dict[Doubt, float] = {}
        self._unadmitted: dict[str, float] = {}
        self.counts = Counts()

    # What happened.

    def changed(self, workloads: Iterable[str], now: float, hot: bool) -> None:
        """Schedule a look at these workloads soon."""
        for uid in workloads:
            subject = self._subjects.get(uid)
            pause = PER_POD * self._cache.pods_of(uid)
            earliest = subject.looked + pause if subject is not None and subject.looked else 0.0
            due = max(now + (HOT if hot else WARM), earliest)
            self._looks[uid] = min(due, self._looks.get(uid, due))
            self._since.setdefault(uid, now)

    def sight_regained(self, now: float, concerns: Callable[[AttemptSeen], bool] = lambda _: True) -> None:
        """Tell every workload with a clock that may run against it that its objects could not be seen for a while."""
        for uid in self._cache.workloads:
            live = self._live(uid)
            if live is None or not live.facts.submitted or not self._settled(live) or not concerns(live):
                continue
            subject = self._subjects.setdefault(uid, _Subject())
            told = subject.told_of(live.facts.uid)
            if live.facts.uid not in subject.closed and (told is None or told.unhealthy):
                subject.owed = True
                self._signals.want(uid, Urgency.SOON, now)

    # What follows.

    def look(self, now: float, at: datetime, most: int = 200) -> None:
        """Look at the workloads that are due, and decide whether to signal each one's workflow."""
        for uid in [uid for uid, due in self._looks.items() if due <= now][:most]:
            del self._looks[uid]
            self._look(uid, now, self._since.pop(uid, now), at)

    def take(self, now: float, at: datetime, most: int) -> list[Send]:
        """Return the signals to send now. The caller must report each by `arrived`, `closed` or `lost`."""
        sends: list[Send] = []
        for wanted in self._signals.take(now, most, self._busy):
            send = self._send(wanted, at)
            if send is not None:
                self._busy.add(send.workload_uid)
                sends.append(send)
        return sends

    def next_due(self, now: float, asking: bool = True) -> float | None:
        """Return when `look`, `take` or, if `asking`, `doubts` next have something to do; None if nothing waits."""
        times = [*self._looks.values(), *(self._doubts.values() if asking else ())]
        signal = self._signals.next_due(now, self._busy)
        if signal is not None:
            times.append(signal)
        return min(times, default=None)

    def doubts(self, now: float, most: int) -> list[Doubt]:
        """Return at most `most` components to get by name, because their streams have not shown them."""
        due = [doubt for doubt, ask in self._doubts.items() if ask <= now]
        asked: list[Doubt] = []
        missing: dict[str, set[Place]] = {}
        for doubt in due:
            if len(asked) >= most:
                break
            live = self._live(doubt.workload_uid)
            if live is not None and live.facts.uid not in missing:
                missing[live.facts.uid] = self._missing(live)
            if live is not None and live.facts.uid == doubt.attempt_uid and doubt.place in missing[live.facts.uid]:
                self._doubts[doubt] = now + DOUBT_AGAIN
                asked.append(doubt)
            else:
                del self._doubts[doubt]
        return asked

    def unadmitted(self, now: float) -> list[AttemptSeen]:
        """Return the attempts whose pods have not all been created for some time: Events may say why."""
        uids = [uid for uid, since in self._unadmitted.items() if now - since >= UNADMITTED]
        return [live for live in map(self._live, uids) if live is not None]

    # Results of sending.

    def arrived(self, send: Send, now: float) -> None:
        """Record that the workflow received the signal."""
        self._busy.discard(send.workload_uid)
        self._signals.sent(send.workload_uid)
        subject = self._subjects.setdefault(send.workload_uid, _Subject())
        self._tell(subject, send.facts, send.keys)
        subject.owed = False
        if send.observation.blind:
            subject.blind_told = send.observation.blind[-1].end
        # The workload may have changed while the signal was in flight.
        self.changed([send.workload_uid], now, hot=True)

    def closed(self, send: Send) -> None:
        """Record that the workflow has ended: nothing more is sent about this attempt."""
        self._busy.discard(send.workload_uid)
        self._subjects.setdefault(send.workload_uid, _Subject()).closed.update(send.keys)
        self._forget_if_gone(send.workload_uid)

    def is_beginning(self, send: Send) -> bool:
        """Whether a workflow that is not found has yet to start: its custom resource does not say how it ended."""
        anchor = self._cache.anchor(send.workload_uid)
        return anchor is not None and anchor.asked is not None and not anchor.over

    def lost(self, send: Send, now: float) -> None:
        """Record that the signal did not arrive."""
        self._busy.discard(send.workload_uid)
        self._signals.failed(send.wanted, now)

    # What a heartbeat carries.

    def digests(self) -> str:
        """Return all acknowledged digests in compact form."""
        for key in list(self._acknowledged)[: max(0, len(self._acknowledged) - ACKNOWLEDGED_MAXIMUM)]:
            del self._acknowledged[key]
        return base64.b64encode(b"".join(key + value for key, value in self._acknowledged.items())).decode()

    def recall(self, digests: str) -> None:
        """Restore the digests that another process had sent."""
        data = base64.b64decode(digests)
        for begin in range(0, len(data) - len(data) % RECORD_BYTES, RECORD_BYTES):
            record = data[begin : begin + RECORD_BYTES]
            self._acknowledged[record[:KEY_BYTES]] = record[KEY_BYTES:]

    def forget(self, now: float) -> None:
        """Forget what was told, because the cluster was restored: whatever exists again is news."""
        self._acknowledged.clear()
        for subject in self._subjects.values():
            subject.told, subject.keys = None, ()
        self.changed(self._cache.workloads, now, hot=True)

    # Below: one workload.

    def _missing(self, live: AttemptSeen) -> set[Place]:
        return {place for _, place in self._cache.doubtful(live, self._unseen())}

    def _live(self, uid: str) -> AttemptSeen | None:
        newest = self._cache.newest(uid)
        return newest if newest is not None and not newest.facts.deleting else None

    def _look(self, uid: str, now: float, since: float, at: datetime) -> None:
        found = self._news(uid, at)
        if found is None:
            self._signals.drop(uid)
            if uid not in self._cache.workloads and not self._listed():
                self._looks[uid] = now + DOUBT_FIRST  # It counts as vanished only once everything can be read.
                return
            self._forget_if_gone(uid)
            self._note_admission(uid, None, now)
            return
        facts, key, observation = found
        live = self._live(uid)
        self._note_admission(uid, observation if live is not None else None, now)
        for place in self._missing(live) if live is not None else ():
            self._doubts.setdefault(Doubt(uid, key, place), now + DOUBT_FIRST)
        stuck = self._cache.stuck_next(live, at) if live is not None else None
        if stuck is not None:
            self._looks.setdefault(uid, now + (stuck - at).total_seconds())
        subject = self._subjects.setdefault(uid, _Subject())
        subject.looked = now
        if self._known(subject, facts, key):
            self.counts.same += 1
            if not subject.owed:
                self._signals.drop(uid)
                self._forget_if_gone(uid)
            return
        told = subject.told_of(key) or Facts(owner_uid=facts.owner_uid)
        soon = urgency(told, facts)
        if soon is not Urgency.URGENT and live is not None and self._missing(live):
            soon = Urgency.LAZY  # Good news may be wrong: the components in doubt are checked first.
        self.counts.coalesced += self._signals.want(uid, soon, now, since)

    def _note_admission(self, uid: str, seen: Observation | None, now: float) -> None:
        """Store since when a workload's pods are absent; once they exist, drop the reasons why they did not."""
        if seen is not None and any(view.absent for view in seen.components.values()):
            self._unadmitted.setdefault(uid, now)
        else:
            self._unadmitted.pop(uid, None)
            self._cache.put_refused(uid, {})

    def _known(self, subject: _Subject, facts: Facts, key: str) -> bool:
        acknowledged = self._acknowledged.get(short_key(key))
        if acknowledged is None and facts.blank and self._asked_known(subject, facts):
            self._tell(subject, facts, (key,))
            return True
        if acknowledged != facts.digest():
            return False
        if subject.told_of(key) is None:
            subject.told, subject.keys = facts, (key,)
        return True

    def _asked_known(self, subject: _Subject, facts: Facts) -> bool:
        """Whether the custom resource's request was already told, as news of another attempt."""
        return not facts.asked or (subject.told is not None and subject.told.asked == facts.asked)

    def _tell(self, subject: _Subject, facts: Facts, keys: tuple[str, ...]) -> None:
        for key in set(subject.keys) - set(keys):
            self._acknowledged.pop(short_key(key), None)
        subject.told, subject.keys = facts, keys
        for key in keys:
            short = short_key(key)
            self._acknowledged.pop(short, None)  # so that the oldest come first
            self._acknowledged[short] = facts.digest()

    def _news(self, uid: str, at: datetime) -> tuple[Facts, str, Observation] | None:
        """Return the current news of a workload: its facts, the key that they belong to, and the observation."""
        anchor, newest, live = self._cache.anchor(uid), self._cache.newest(uid), self._live(uid)
        if live is not None and live.facts.submitted:
            subject = self._subjects.get(uid)
            if not self._settled(live) or (subject is not None and live.facts.uid in subject.closed):
                return None
            version = self._version(live.namespace, live.kinds)
            observation = self._cache.observe(
                live, at, self._unseen(), self._blind_for(uid, live), version, self._unserved()
            )
            facts = facts_of(observation, self._cache.made_since(live), live.facts.resumed)
            return facts, live.facts.uid, observation
        if anchor is not None and not anchor.deletion_wanted and _orphaned(anchor, newest) and self._listed():
            observation = self._owner_lost(anchor, newest, at)
            return facts_of(observation), f"{anchor.facts.uid}/{anchor.attempt}", observation
        last = self._cache.last_anchor(uid)
        if last is not None and self._vanished(last) and self._listed():
            observation = self._owner_lost(last, None, at)
            return facts_of(observation), f"{last.facts.uid}/{last.attempt}", observation
        if newest is not None and newest.facts.deleting:
            self.counts.own_deletion += 1
        elif newest is not None:
            self.counts.not_submitted += 1
        if anchor is not None and anchor.asked is not None and not anchor.deletion_wanted:
            return self._only_asked(anchor, anchor.asked, at)
        if anchor is None or not anchor.deletion_wanted or self._anchor_told(anchor):
            return None
        observation = self._anchor_deleted(anchor, newest, at)
        return facts_of(observation), anchor.facts.uid, observation

    def _only_asked(self, anchor: AnchorSeen, asked: Asked, at: datetime) -> tuple[Facts, str, Observation] | None:
        """Return a custom resource's request while no attempt exists to carry it, if it is news (row F7)."""
        subject, key = self._subjects.get(anchor.workload_uid), f"{anchor.facts.uid}/asked"
        observation = Observation(
            workload_uid=anchor.workload_uid, attempt=0, owner_uid="", at=at, owner_found=False, asked=asked
        )
        facts = Facts(asked=facts_of(observation).asked)
        if subject is not None and key in subject.closed:
            return None
        if self._asked_known(subject or _Subject(), facts):
            return None
        return facts, key, observation

    def _vanished(self, last: AnchorSeen) -> bool:
        """Whether anchor and attempt are both gone, not deleted by us: only this watch still knows of them."""
        subject = self._subjects.get(last.workload_uid)
        if subject is None or subject.told is None or not last.deployed or not last.attempt:
            return False
        return not subject.closed & {*subject.keys, last.facts.uid, f"{last.facts.uid}/{last.attempt}"}

    def _anchor_told(self, anchor: AnchorSeen) -> bool:
        subject = self._subjects.get(anchor.workload_uid)
        if subject is not None and anchor.facts.uid in subject.closed:
            return True
        return short_key(anchor.facts.uid) in self._acknowledged

    def _owner_lost(self, anchor: AnchorSeen, newest: AttemptSeen | None, at: datetime) -> Observation:
        same = newest if newest is not None and newest.number == anchor.attempt else None
        return Observation(
            workload_uid=anchor.workload_uid,
            attempt=anchor.attempt,
            owner_uid="",  # Empty, so that deleting and deleted are the same news.
            at=at,
            revision=self._revision(anchor),
            owner_found=same is not None,
            owner_deleting=same is not None,
        )

    def _anchor_deleted(self, anchor: AnchorSeen, newest: AttemptSeen | None, at: datetime) -> Observation:
        return Observation(
            workload_uid=anchor.workload_uid,
            attempt=newest.number if newest is not None else anchor.attempt,
            owner_uid=newest.facts.uid if newest is not None else "",
            at=at,
            revision=self._revision(anchor),
            owner_found=newest is not None,
            owner_deleting=newest is not None and newest.facts.deleting,
            anchor_deleting=True,
            asked=anchor.asked,
        )

    def _revision(self, anchor: AnchorSeen) -> int:
        return max(self._version(anchor.namespace, ()), self._cache.revision(anchor.workload_uid))

    def _blind_for(self, uid: str, attempt: AttemptSeen) -> tuple[Interval, ...]:
        subject = self._subjects.get(uid)
        told = subject.blind_told if subject is not None else None
        since = max((time for time in (told, attempt.facts.created) if time is not None), default=None)
        return self._blind(since, attempt.kinds) if since is not None else ()

    def _keys(self, uid: str, key: str, facts: Facts) -> tuple[str, ...]:
        """Return the keys that the news belongs to: the attempt's or anchor's, plus the anchor's once it is deleted."""
        anchor = self._cache.anchor(uid)
        if facts.anchor_deleting and anchor is not None and anchor.facts.uid != key:
            return (key, anchor.facts.uid)
        return (key,)

    def _send(self, wanted: Wanted, at: datetime) -> Send | None:
        found = self._news(wanted.key, at)
        if found is None:
            return None
        facts, key, observation = found
        uid = wanted.key
        holder = self._cache.newest(uid) or self._cache.anchor(uid) or self._cache.last_anchor(uid)
        if holder is None:
            return None
        return Send(
            workload_uid=wanted.key,
            workflow_id=holder.workflow_id,
            wanted=wanted,
            observation=observation,
            facts=facts,
            keys=self._keys(wanted.key, key, facts),
        )

    def _forget_if_gone(self, uid: str) -> None:
        if uid in self._cache.workloads:
            self._forget_attempt_if_gone(uid)
            return
        self._cache.forget(uid)
        subject = self._subjects.pop(uid, None)
        for key in subject.keys if subject is not None else ():
            self._acknowledged.pop(short_key(key), None)
        self._signals.forget(uid)

    def _forget_attempt_if_gone(self, uid: str) -> None:
        """Forget what was told about an attempt that is gone: if the cluster is restored, its return is news."""
        subject, anchor = self._subjects.get(uid), self._cache.anchor(uid)
        if subject is None or anchor is None or self._cache.newest(uid) is not None or not self._listed():
            return  # An attempt that cannot be read is not gone.
        ours = (anchor.facts.uid, f"{anchor.facts.uid}/{anchor.attempt}", f"{anchor.facts.uid}/asked")
        if subject.keys and not set(subject.keys) & set(ours):
            for key in subject.keys:
                self._acknowledged.pop(short_key(key), None)
            # The custom resource's request does not belong to that attempt alone.
            asked = subject.told.asked if subject.told is not None else ""
            subject.told, subject.keys = Facts(asked=asked) if asked else None, ()


def _orphaned(anchor: AnchorSeen, newest: AttemptSeen | None) -> bool:
    """Whether the owner of the attempt that the anchor reports as deployed is deleting or gone, not deleted by us."""
    if not anchor.deployed or not anchor.held or not anchor.attempt:
        return False
    return newest is None or newest.number < anchor.attempt or newest.facts.deleting
