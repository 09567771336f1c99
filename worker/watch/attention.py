"""Decides which changes need a signal, and tracks what workflows acknowledged. Pure: callers pass time and changes."""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import structlog

from holdfast.activities.facts.objects import ObjectFacts
from holdfast.activities.facts.workload_key import WorkloadKey
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
Log: Any = structlog.stdlib.get_logger("holdfast.watch")


@dataclass(frozen=True, slots=True)
class Send:
    """One signal to send: its workflow, its content, and the keys it acknowledges."""

    workload: WorkloadKey
    workflow_id: str
    wanted: Wanted
    observation: Observation
    facts: Facts
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Doubt:
    """What a live look must settle: whether a component that was not seen is gone, or an anchor is being deleted.

    A component's stream may be late. An anchor's deletion ends its workload.
    """

    workload: WorkloadKey
    uid: str
    """Of the attempt that should have the component; of the anchor, if its deletion is in doubt."""
    place: Place
    deletion: bool = False


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
        self._looks: dict[WorkloadKey, float] = {}
        self._since: dict[WorkloadKey, float] = {}
        self._subjects: dict[WorkloadKey, _Subject] = {}
        self._acknowledged: dict[bytes, bytes] = {}
        self._busy: set[WorkloadKey] = set()
        self._doubts: dict[Doubt, float] = {}
        self._unadmitted: dict[WorkloadKey, float] = {}
        self.counts = Counts()

    # What happened.

    def changed(self, workloads: Iterable[WorkloadKey], now: float, hot: bool) -> None:
        """Schedule a look at these workloads soon."""
        for workload in workloads:
            subject = self._subjects.get(workload)
            pause = PER_POD * self._cache.pods_of(workload)
            earliest = subject.looked + pause if subject is not None and subject.looked else 0.0
            due = max(now + (HOT if hot else WARM), earliest)
            self._looks[workload] = min(due, self._looks.get(workload, due))
            self._since.setdefault(workload, now)

    def sight_regained(self, now: float, concerns: Callable[[AttemptSeen], bool] = lambda _: True) -> None:
        """Tell every workload with a clock that may run against it that its objects could not be seen for a while."""
        for workload in self._cache.workloads:
            live = self._live(workload)
            if live is None or not live.facts.submitted or not self._settled(live) or not concerns(live):
                continue
            subject = self._subjects.setdefault(workload, _Subject())
            told = subject.told_of(live.facts.uid)
            if live.facts.uid not in subject.closed and (told is None or told.unhealthy):
                subject.owed = True
                self._signals.want(workload, Urgency.SOON, now)

    # What follows.

    def look(self, now: float, at: datetime, most: int = 200) -> None:
        """Look at the workloads that are due, and decide whether to signal each one's workflow."""
        for workload in [one for one, due in self._looks.items() if due <= now][:most]:
            del self._looks[workload]
            self._look(workload, now, self._since.pop(workload, now), at)

    def take(self, now: float, at: datetime, most: int) -> list[Send]:
        """Return the signals to send now. The caller must report each by `arrived`, `closed` or `lost`."""
        sends: list[Send] = []
        for wanted in self._signals.take(now, most, self._busy):
            send = self._send(wanted, at)
            if send is not None:
                self._busy.add(send.workload)
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
        """Return at most `most` objects to get by name: anchors first, then components not shown by their streams."""
        due = [doubt for doubt, ask in self._doubts.items() if ask <= now]
        due.sort(key=lambda doubt: not doubt.deletion)
        asked: list[Doubt] = []
        missing: dict[str, set[Place]] = {}
        for doubt in due:
            if len(asked) >= most:
                break
            if doubt.deletion:
                anchor = self._cache.unconfirmed(doubt.workload)
                stands = anchor is not None and anchor.facts.uid == doubt.uid
            else:
                live = self._live(doubt.workload)
                if live is not None and live.facts.uid not in missing:
                    missing[live.facts.uid] = self._missing(live)
                stands = live is not None and live.facts.uid == doubt.uid and doubt.place in missing[doubt.uid]
            if stands:
                self._doubts[doubt] = now + DOUBT_AGAIN
                asked.append(doubt)
            else:
                del self._doubts[doubt]
        return asked

    def answered(self, doubt: Doubt, found: ObjectFacts | None) -> set[WorkloadKey]:
        """Store what a live look found in a doubt's place, and return the workloads that this touches."""
        if doubt.deletion:
            if found is None or found.uid != doubt.uid or not found.deleting:
                return set()  # Its stream shows in a moment what it is now.
            self._cache.confirm_deleting(doubt.workload, doubt.uid)
        elif found is not None and doubt.uid in found.owner_uids:
            return self._cache.put_object(doubt.place, found)
        else:  # Ours is gone, even if another owner's object is in its place.
            self._cache.confirm_gone(doubt.uid, doubt.place)
        return {doubt.workload}

    def unadmitted(self, now: float) -> list[AttemptSeen]:
        """Return the attempts whose pods have not all been created for some time: Events may say why."""
        waiting = [one for one, since in self._unadmitted.items() if now - since >= UNADMITTED]
        return [live for live in map(self._live, waiting) if live is not None]

    # Results of sending.

    def arrived(self, send: Send, now: float) -> None:
        """Record that the workflow received the signal."""
        self._busy.discard(send.workload)
        self._signals.sent(send.workload)
        subject = self._subjects.setdefault(send.workload, _Subject())
        self._tell(subject, send.facts, send.keys)
        subject.owed = False
        if send.observation.blind:
            subject.blind_told = send.observation.blind[-1].end
        # The workload may have changed while the signal was in flight.
        self.changed([send.workload], now, hot=True)

    def closed(self, send: Send) -> None:
        """Record that the workflow has ended: nothing more is sent about this attempt."""
        self._busy.discard(send.workload)
        self._subjects.setdefault(send.workload, _Subject()).closed.update(send.keys)
        self._forget_if_gone(send.workload)

    def is_beginning(self, send: Send) -> bool:
        """Whether a workflow that is not found has yet to start: its custom resource does not say how it ended."""
        anchor = self._cache.anchor(send.workload)
        return anchor is not None and anchor.asked is not None and not anchor.over

    def lost(self, send: Send, now: float) -> None:
        """Record that the signal did not arrive."""
        self._busy.discard(send.workload)
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

    def retell(self, workload: WorkloadKey, now: float) -> None:
        """Forget what was told of a workload, so that it is told again."""
        subject, newest = self._subjects.get(workload), self._cache.newest(workload)
        for key in (*(subject.keys if subject else ()), *((newest.facts.uid,) if newest else ())):
            self._acknowledged.pop(short_key(key), None)
        if subject is not None:
            subject.told, subject.keys = None, ()
        self.changed([workload], now, hot=True)

    # Below: one workload.

    def _missing(self, live: AttemptSeen) -> set[Place]:
        return {place for _, place in self._cache.doubtful(live, self._unseen())}

    def _live(self, workload: WorkloadKey) -> AttemptSeen | None:
        newest = self._cache.newest(workload)
        return newest if newest is not None and not newest.facts.deleting else None

    def _look(self, workload: WorkloadKey, now: float, since: float, at: datetime) -> None:
        deleting = self._cache.unconfirmed(workload)
        if deleting is not None:
            self._doubts.setdefault(Doubt(workload, deleting.facts.uid, deleting.place, deletion=True), now)
            self._since.setdefault(workload, since)  # Once confirmed, it counts from when it was seen.
        found = self._news(workload, at)
        if found is None:
            self._signals.drop(workload)
            if workload not in self._cache.workloads and not self._listed():
                self._looks[workload] = now + DOUBT_FIRST  # It counts as vanished only once everything can be read.
                return
            self._forget_if_gone(workload)
            self._note_admission(workload, None, now)
            return
        facts, key, observation = found
        live = self._live(workload)
        self._note_admission(workload, observation if live is not None else None, now)
        for place in self._missing(live) if live is not None else ():
            self._doubts.setdefault(Doubt(workload, key, place), now + DOUBT_FIRST)
        stuck = self._cache.stuck_next(live, at) if live is not None else None
        if stuck is not None:
            self._looks.setdefault(workload, now + (stuck - at).total_seconds())
        subject = self._subjects.setdefault(workload, _Subject())
        subject.looked = now
        if self._known(subject, facts, key):
            self.counts.same += 1
            if not subject.owed:
                self._signals.drop(workload)
                self._forget_if_gone(workload)
            return
        told = subject.told_of(key) or Facts(owner_uid=facts.owner_uid)
        soon = urgency(told, facts)
        if soon is not Urgency.URGENT and live is not None and self._missing(live):
            soon = Urgency.LAZY  # Good news may be wrong: the components in doubt are checked first.
        self.counts.coalesced += self._signals.want(workload, soon, now, since)

    def _note_admission(self, workload: WorkloadKey, seen: Observation | None, now: float) -> None:
        """Store since when a workload's pods are absent; once they exist, drop the reasons why they did not."""
        if seen is not None and any(view.absent for view in seen.components.values()):
            self._unadmitted.setdefault(workload, now)
        else:
            self._unadmitted.pop(workload, None)
            self._cache.put_refused(workload, {})

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

    def _news(self, workload: WorkloadKey, at: datetime) -> tuple[Facts, str, Observation] | None:
        """Return the current news of a workload: its facts, the key that they belong to, and the observation."""
        newest, live = self._cache.newest(workload), self._live(workload)
        if live is not None and live.facts.submitted:
            subject = self._subjects.get(workload)
            if not self._settled(live) or (subject is not None and live.facts.uid in subject.closed):
                return None
            version = self._version(live.namespace, live.kinds)
            try:
                observation = self._cache.observe(
                    live, at, self._unseen(), self._blind_for(workload, live), version, self._unserved()
                )
            except Exception:  # An error with one workload must not leave the others unwatched.
                Log.exception("a workload cannot be observed: it looks for itself", workflow_id=live.workflow_id)
                observation = self._unknown(workload, live, at)
            facts = facts_of(observation, self._cache.made_since(live), live.facts.resumed)
            return facts, live.facts.uid, observation
        if self._cache.unconfirmed(workload) is not None:
            return None  # What it lacks may be gone because it is being deleted: the live look tells (row X8).
        anchor = self._cache.anchor(workload)
        if anchor is not None and not anchor.deletion_wanted and _orphaned(anchor, newest) and self._listed():
            observation = self._owner_lost(anchor, newest, at)
            return facts_of(observation), f"{anchor.facts.uid}/{anchor.attempt}", observation
        last = self._cache.last_anchor(workload)
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

    def _unknown(self, workload: WorkloadKey, live: AttemptSeen, at: datetime) -> Observation:
        """Return what has a workflow look for itself: it confirms that its attempt is gone before it acts on that."""
        anchor = self._cache.anchor(workload)
        return Observation(
            workload_uid=live.workload_uid,
            attempt=live.number,
            owner_uid="",
            at=at,
            revision=max(self._version(live.namespace, live.kinds), self._cache.revision(workload)),
            owner_found=False,
            anchor_deleting=anchor is not None and anchor.deletion_wanted,
            asked=anchor.asked if anchor is not None else None,
        )

    def _only_asked(self, anchor: AnchorSeen, asked: Asked, at: datetime) -> tuple[Facts, str, Observation] | None:
        """Return a custom resource's request while no attempt exists to carry it, if it is news (row F7)."""
        subject, key = self._subjects.get(anchor.key), f"{anchor.facts.uid}/asked"
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
        subject = self._subjects.get(last.key)
        if subject is None or subject.told is None or not last.deployed or not last.attempt:
            return False
        return not subject.closed & {*subject.keys, last.facts.uid, f"{last.facts.uid}/{last.attempt}"}

    def _anchor_told(self, anchor: AnchorSeen) -> bool:
        subject = self._subjects.get(anchor.key)
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
        return max(self._version(anchor.namespace, ()), self._cache.revision(anchor.key))

    def _blind_for(self, workload: WorkloadKey, attempt: AttemptSeen) -> tuple[Interval, ...]:
        subject = self._subjects.get(workload)
        told = subject.blind_told if subject is not None else None
        since = max((time for time in (told, attempt.facts.created) if time is not None), default=None)
        return self._blind(since, attempt.kinds) if since is not None else ()

    def _keys(self, workload: WorkloadKey, key: str, facts: Facts) -> tuple[str, ...]:
        """Return the keys that the news belongs to: the attempt's or anchor's, plus the anchor's once it is deleted."""
        anchor = self._cache.anchor(workload)
        if facts.anchor_deleting and anchor is not None and anchor.facts.uid != key:
            return (key, anchor.facts.uid)
        return (key,)

    def _send(self, wanted: Wanted, at: datetime) -> Send | None:
        workload = wanted.key
        found = self._news(workload, at)
        if found is None:
            return None
        facts, key, observation = found
        holder = self._cache.newest(workload) or self._cache.anchor(workload) or self._cache.last_anchor(workload)
        if holder is None:
            return None
        return Send(
            workload=workload,
            workflow_id=holder.workflow_id,
            wanted=wanted,
            observation=observation,
            facts=facts,
            keys=self._keys(workload, key, facts),
        )

    def _forget_if_gone(self, workload: WorkloadKey) -> None:
        if workload in self._cache.workloads:
            self._forget_attempt_if_gone(workload)
            return
        self._cache.forget(workload)
        subject = self._subjects.pop(workload, None)
        for key in subject.keys if subject is not None else ():
            self._acknowledged.pop(short_key(key), None)
        self._signals.forget(workload)

    def _forget_attempt_if_gone(self, workload: WorkloadKey) -> None:
        """Forget what was told about an attempt that is gone: if the cluster is restored, its return is news."""
        subject, anchor = self._subjects.get(workload), self._cache.anchor(workload)
        if subject is None or anchor is None or self._cache.newest(workload) is not None or not self._listed():
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
