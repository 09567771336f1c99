"""A small cluster in memory: objects with uids and owners, deletion as the API server does it, and a ledger of it all.

It carries out requests and keeps the ledger; what becomes of objects by themselves (collector, controllers, nodes) is
in `weather.py`. It never looks at the engine: the oracle judges the engine by this ledger.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from holdfast.activities.facts.pods import PodState
from holdfast.model import Interval, Report
from tests.policy.lives.life import START

HOLD = "example.com/hold"
REFUSES = "refuses"
"""What a pod answers that cannot save its state."""
OURS = "holdfast.dev/anchor"
FOREGROUND = "foregroundDeletion"
TICK = timedelta(milliseconds=1)


class Unreachable(Exception):
    """The API server does not answer."""


class NotFoundError(Exception):
    """404."""


class ConflictError(Exception):
    """409: the object is another than is meant, or is there."""


class RefusedError(Exception):
    """403: a quota is used up, for now."""


class Kind(StrEnum):
    """What there is in the cluster."""

    ANCHOR = "Anchor"
    OWNER = "Attempt"
    COMPONENT = "Job"
    POD = "Pod"


class Hand(StrEnum):
    """Who sent a request."""

    HOLDFAST = "holdfast"
    LATE = "a worker whose place another has taken"
    COLLECTOR = "collector"
    CONTROLLER = "controller"
    NODE = "node"
    PERSON = "person"

    @property
    def ours(self) -> bool:
        """Whether Holdfast sent it."""
        return self in {Hand.HOLDFAST, Hand.LATE}


@dataclass(slots=True, eq=False)
class Thing:
    """One object."""

    kind: Kind
    name: str
    uid: str
    owner: str
    """uid of what owns it; empty for none."""
    attempt: int
    component: str
    born: int
    version: int
    created: datetime
    late: bool
    """Whether a worker made it whose place another had taken, or what came of such an object."""
    launch: int = 0
    """How often its component had been made again within the attempt."""
    copy: int | None = None
    """Which copy of its component it is, or comes of."""
    finalizers: set[str] = field(default_factory=set)
    deleting: datetime | None = None
    deleted_by: Hand | None = None
    died: int | None = None
    state: PodState = PodState.PENDING
    forced: bool = False
    stubborn: bool = False
    node: int = 0
    failed_at: datetime | None = None
    exit_code: int = 0
    submitted: bool = False
    ended: bool = False
    """Of an owner: whether its workload has ended."""
    suspended: bool = False
    asleep: bool = False
    """Of a component: whether its controller has seen that it is suspended."""
    turn: int = 0
    """The last turn of suspension or back that it, or as an owner its attempt, has taken."""
    parked: int = 0
    """Of an owner: the turn of which it was proven that no pod is left."""
    verdict: str = ""
    noticed: bool = False
    """Whether its controller has seen that it is being deleted."""
    report: Report | None = None
    begun: tuple[int, str] = (0, "")
    removal: str = ""
    """The reset that has begun to remove an attempt, by its mark on the anchor."""
    """Of an anchor: the sequence of the report and the owner under which a preparation began to create."""
    asked: int = 0
    """Of a pod: the request to save its state that it last had."""
    saved: str = ""
    """Of a pod: what it has answered to that: the place, or that it cannot."""

    @property
    def finished(self) -> bool:
        """Whether a pod's processes have ended: it holds nothing any more."""
        return self.state in {PodState.SUCCEEDED, PodState.FAILED}

    def __str__(self) -> str:
        return f"{self.kind} {self.name} ({self.uid}, attempt {self.attempt}{', late' if self.late else ''})"


@dataclass(frozen=True, slots=True)
class Deletion:
    """One deletion that was asked for."""

    at: datetime
    hand: Hand
    thing: Thing
    uid: str
    """The precondition it carried; empty for none."""
    foreground: bool
    forced: bool


class Cluster:
    """The API server and what it stores."""

    def __init__(self) -> None:
        self.asked: dict[tuple[int, int], list[Thing]] = {}
        """Pods that were asked to save their state, by attempt and request."""
        self.now = START
        self.version = 1
        self.hand = Hand.HOLDFAST
        self.alive: dict[str, Thing] = {}
        self.named: dict[tuple[Kind, str], Thing] = {}
        self.all: list[Thing] = []
        self.deletions: list[Deletion] = []
        self.down = False
        self.refusing = False
        """Whether a quota refuses new components."""
        self.looked_at = ""
        """uid of the living owner that Holdfast found when it last looked for one."""
        self.dark_since: datetime | None = None
        self.dark: list[Interval] = []
        self.on_create: list[Callable[[Thing], None]] = []
        self.on_change: list[Callable[[Thing], None]] = []
        self.on_delete: list[Callable[[Deletion], None]] = []
        self.on_refuse: list[Callable[[int], None]] = []
        self.on_strip: list[Callable[[Thing], None]] = []
        self.on_report: list[Callable[[Thing, Report], None]] = []

    # --- the clock and the dark

    def pass_time(self, span: timedelta = TICK) -> None:
        self.now += span

    def go_dark(self, *, down: bool) -> None:
        """From now on nothing can be seen, and if it is down, nothing be done either."""
        self.down = self.down or down
        self.dark_since = self.dark_since or self.now

    def get_light(self) -> None:
        if self.dark_since is not None and self.now > self.dark_since:
            self.dark.append(Interval(begin=self.dark_since, end=self.now))
        self.dark_since, self.down = None, False

    def blind(self) -> tuple[Interval, ...]:
        """Return what an observer of this cluster knows of the dark."""
        spans = self.dark[-32:]
        if self.dark_since is not None and self.now > self.dark_since:
            spans = [*spans, Interval(begin=self.dark_since, end=self.now)]
        return tuple(spans)

    # --- requests

    def ask(self) -> None:
        """Begin a request.

        Raises:
            Unreachable: if nobody answers.
        """
        if self.down and self.hand.ours:
            raise Unreachable
        self.pass_time()

    def find(self, kind: Kind, name: str) -> Thing | None:
        self.ask()
        found = self.named.get((kind, name))
        if kind is Kind.OWNER and self.hand is Hand.HOLDFAST:
            self.looked_at = found.uid if found is not None and found.deleting is None else ""
        return found

    def of(self, kind: Kind, attempt: int | None = None) -> list[Thing]:
        """Return what there is of a kind; reading the ledger, not asking the server."""
        return [one for one in self.alive.values() if one.kind is kind and attempt in {None, one.attempt}]

    def create(
        self,
        kind: Kind,
        name: str,
        owner: str,
        attempt: int,
        component: str = "",
        launch: int = 0,
        copy: int | None = None,
    ) -> Thing:
        """Make an object.

        Raises:
            ConflictError: if the name is taken.
            RefusedError: if a quota refuses it.
        """
        self.ask()
        taken = self.named.get((kind, name))
        foreign = taken is not None and (taken.owner != owner or taken.deleting is not None)
        if kind is Kind.COMPONENT and (foreign or (taken is None and self.refusing)):
            for refused in self.on_refuse:
                refused(attempt)
        # What was under way for seconds is not still under way when an attempt's owner has come and gone.
        stale = self.hand is Hand.LATE and kind is Kind.OWNER and any(one.name == name for one in self.all)
        if taken is not None or stale:
            raise ConflictError(name)
        if kind is Kind.COMPONENT and self.refusing:
            raise RefusedError(name)
        self.version += 1
        parent = self.alive.get(owner)
        thing = Thing(
            kind=kind,
            name=name,
            uid=f"{kind}-{self.version}",
            owner=owner,
            attempt=attempt,
            component=component,
            born=self.version,
            version=self.version,
            created=self.now,
            late=self._is_late(kind, parent, owner),
            launch=parent.launch if kind is Kind.POD and parent is not None else launch,
            copy=parent.copy if kind is Kind.POD and parent is not None else copy,
        )
        if kind is Kind.ANCHOR:
            thing.finalizers.add(OURS)
        self.alive[thing.uid] = self.named[kind, name] = thing
        self.all.append(thing)
        for hook in self.on_create:
            hook(thing)
        return thing

    def _is_late(self, kind: Kind, parent: Thing | None, owner: str) -> bool:
        """Whether an object comes of a request that was under way when its worker's place was taken, or its owner went.

        Under a living owner it is what the next try would have made; an owner is, once that finds it.
        """
        if self.hand is Hand.HOLDFAST and kind is Kind.COMPONENT and parent is None and owner == self.looked_at:
            return True
        if self.hand is not Hand.LATE:
            return parent is not None and parent.late
        return kind is Kind.OWNER or parent is None or parent.late or parent.deleting is not None

    def delete(self, kind: Kind, name: str, uid: str = "", *, foreground: bool = False, forced: bool = False) -> None:
        """Delete an object, if it is the one that is meant.

        Raises:
            NotFoundError: if there is none.
            ConflictError: if it has another uid than the precondition says.
        """
        self.ask()
        thing = self.named.get((kind, name))
        if thing is None:
            raise NotFoundError(name)
        if uid and thing.uid != uid:
            raise ConflictError(name)
        entry = Deletion(self.now, self.hand, thing, uid, foreground, forced)
        self.deletions.append(entry)
        for hook in self.on_delete:
            hook(entry)
        if thing.deleting is None:
            thing.deleting, thing.deleted_by = self.now, self.hand
            if foreground:
                thing.finalizers.add(FOREGROUND)
        thing.forced = thing.forced or forced
        if kind is not Kind.POD or thing.forced:
            self.let_go(thing)
        self.change(thing)

    def let_go(self, thing: Thing) -> None:
        """Remove an object that is being deleted once nothing holds it."""
        if thing.deleting is None or thing.finalizers or thing.died is not None:
            return
        self.version += 1
        thing.died = thing.version = self.version
        del self.alive[thing.uid]
        del self.named[thing.kind, thing.name]
        for hook in self.on_change:
            hook(thing)

    def change(self, thing: Thing) -> None:
        """Give a changed object its new version."""
        if thing.died is None:
            self.version += 1
            thing.version = self.version
            for hook in self.on_change:
                hook(thing)

    def unhold(self, thing: Thing, finalizer: str) -> None:
        """Take a finalizer off."""
        thing.finalizers.discard(finalizer)
        self.change(thing)
        if thing.kind is not Kind.POD or thing.forced:
            self.let_go(thing)

    def strip(self, kind: Kind, name: str, uid: str, version: int, finalizer: str) -> None:
        """Take a finalizer off an object, if it is the one that is meant and as it was read.

        Raises:
            NotFoundError: if there is none.
            ConflictError: if it is another, or has changed.
        """
        self.ask()
        thing = self.named.get((kind, name))
        if thing is None:
            raise NotFoundError(name)
        if (thing.uid, thing.version) != (uid, version):
            raise ConflictError(name)
        for hook in self.on_strip:
            hook(thing)
        self.unhold(thing, finalizer)

    def turn(self, thing: Thing, version: int, turn: int, *, suspended: bool | None = None, parked: int = 0) -> None:
        """Have an object take a turn, if it is still as it was read.

        Raises:
            NotFoundError: if it is gone.
            ConflictError: if it has changed.
        """
        self.ask()
        if thing.died is not None:
            raise NotFoundError(thing.name)
        if thing.version != version:
            raise ConflictError(thing.name)
        thing.turn, thing.parked = turn, parked or thing.parked
        if suspended is not None:
            thing.suspended, thing.asleep = suspended, thing.asleep and suspended
        self.change(thing)

    def asks(self, pod: Thing, request: int) -> None:
        """Ask a pod to save its state; what it answered to an earlier request is gone with that.

        Raises:
            NotFoundError: if it is gone.
        """
        self.ask()
        if pod.died is not None:
            raise NotFoundError(pod.name)
        if pod.asked != request:
            pod.asked, pod.saved = request, ""
            self.asked.setdefault((pod.attempt, request), []).append(pod)
            self.change(pod)

    def apply(self, name: str, report: Report) -> None:
        """Apply a status to an anchor unless a later one is there."""
        anchor = self.find(Kind.ANCHOR, name)
        if anchor is None or (anchor.report is not None and anchor.report.sequence >= report.sequence):
            return
        self.ask()
        anchor.report = report
        self.change(anchor)
        for hook in self.on_report:
            hook(anchor, report)
