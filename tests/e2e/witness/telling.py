"""What anchors tell of their workloads, judged against what was there in the very same version of the cluster.

An anchor that says ResourcesDeployed False says that no owner, component or pod of its workload exists; one that says
QuotaReserved False, that no pod of it runs or may come to run. Whoever gives the quota to another reads just that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from holdfast import names
from tests.e2e.witness.law import FENCING, LATE_MAXIMUM, SET_ASIDE

FOR_EVER = timedelta(minutes=5)
"""How long an anchor may say that resources are deployed of which nothing is there: the work of writing it again."""
LEAST_SAMPLES, LEAST_FALSE = 30, 30
"""What must at least have been judged for the verdict to mean anything: samples, and tellings that could be lies."""


@dataclass(frozen=True)
class Told:
    """What an anchor says."""

    namespace: str
    name: str
    workload: str
    phase: str
    reason: str
    attempt: int
    deployed: bool
    quota: bool

    def __str__(self) -> str:
        says = f"ResourcesDeployed {self.deployed}, QuotaReserved {self.quota}"
        return f"{self.namespace}/{self.name} says {self.phase} ({self.reason}), attempt {self.attempt}, {says}"


@dataclass(frozen=True)
class Thing:
    """An owner, a component or a pod."""

    kind: str
    name: str
    workload: str
    attempt: int
    live: bool = True
    """Of a pod: whether it runs or may come to run, and has neither succeeded nor failed."""

    def __str__(self) -> str:
        return f"{self.kind} {self.name} of attempt {self.attempt}"


@dataclass(frozen=True)
class Snapshot:
    """Everything there is, as of one version of the cluster."""

    version: int
    at: datetime
    told: Sequence[Told]
    things: Sequence[Thing]


@dataclass
class Verdict:
    """What came of judging snapshots."""

    samples: int = 0
    judged: int = 0
    """Anchors judged, each as often as it was sampled."""
    undeployed: int = 0
    """How many of them said that nothing was deployed."""
    released: int = 0
    """How many of them said that no quota was reserved."""
    lies: list[str] = field(default_factory=list[str])
    excused: Counter[str] = field(default_factory=Counter[str])
    _empty_since: dict[str, datetime] = field(default_factory=dict[str, datetime])
    _spoken: set[str] = field(default_factory=set[str])
    """Workloads whose anchor has said something: if it then says nothing, another hand has wiped its status."""

    def take(self, snapshot: Snapshot) -> None:
        """Judge one more snapshot."""
        self.samples += 1
        things: dict[str, list[Thing]] = {}
        for thing in snapshot.things:
            things.setdefault(thing.workload, []).append(thing)
        empty: dict[str, datetime] = {}
        for told in snapshot.told:
            if told.namespace.startswith(tuple(SET_ASIDE)):
                self.excused["set aside by the name of their namespace"] += 1
                continue
            if told.phase:
                self._spoken.add(told.workload)
            elif told.workload in self._spoken:
                self.excused[WIPED] += 1
                continue
            self.judged += 1
            self.undeployed += not told.deployed
            self.released += not told.quota
            there = things.get(told.workload, [])
            lies, excuse = false_in(told, there)
            self.lies += [f"at version {snapshot.version}, {snapshot.at:%H:%M:%S}: {lie}" for lie in lies]
            if excuse:
                self.excused[excuse] += 1
            if told.deployed and not there and told.reason != "Held":
                empty[told.workload] = self._empty_since.get(told.workload, snapshot.at)
                if snapshot.at - empty[told.workload] > FOR_EVER:
                    self.lies.append(f"at version {snapshot.version}: {told}, for {FOR_EVER} with nothing there")
                    empty[told.workload] = snapshot.at
        self._empty_since = empty

    @property
    def too_few(self) -> bool:
        """Whether too little was judged to say anything."""
        return self.samples < LEAST_SAMPLES or min(self.undeployed, self.released) < LEAST_FALSE

    def sentence(self) -> str:
        """Say it in a line."""
        text = (
            f"{self.samples} samples of anchors' status against live objects: {self.judged} anchors judged, "
            f"{self.undeployed} of them said ResourcesDeployed False and {self.released} QuotaReserved False, "
            f"{len(self.lies)} lies"
        )
        return text + "".join(f"; {count} {what}" for what, count in sorted(self.excused.items()))


LATE = "excused, since what a fenced worker had sent landed late, alone"
WIPED = "excused, since another hand had just wiped their status"
PREPARED = "excused, since only the owner of an attempt that is being prepared was there"


def false_in(told: Told, there: Iterable[Thing]) -> tuple[list[str], str]:
    """Return in what way an anchor lies about what is there, and what excuses what looks like it.

    The owner of an attempt is made before anything under it, and it is Holdfast's own. Preparation says True right
    before it makes it, but what a restored workflow says is not written over what is newer.
    """
    things = list(there)
    lies: list[str] = []
    excuse = ""
    if told.namespace.startswith(FENCING) and not told.deployed:
        late = [one for one in things if one.kind == "Pod"][:LATE_MAXIMUM]
        things, excuse = [one for one in things if one not in late], LATE if late else ""
    if not told.deployed and things:
        # A new anchor says nothing before its first attempt's owner is there.
        number = told.attempt if told.phase else 1
        alone = all(one.kind == names.ATTEMPT_KIND and one.attempt == number for one in things)
        if alone and told.phase in {"Resuming", ""}:
            excuse = PREPARED
        else:
            lies.append(f"{told}; yet there were {_listed(things)}")
    pods = [one for one in things if one.kind == "Pod" and one.live]
    if not told.quota and pods:
        lies.append(f"{told}; yet there were pods: {_listed(pods)}")
    return lies, excuse


def _listed(things: Sequence[Thing]) -> str:
    more = f" and {len(things) - 5} more" if len(things) > 5 else ""
    return ", ".join(str(one) for one in things[:5]) + more


def told_by(anchor: Mapping[str, Any]) -> Told:
    """Return what an anchor says; one that says nothing yet says that there is nothing."""
    status: Mapping[str, Any] = anchor.get("status") or {}
    conditions = {one["type"]: one["status"] == "True" for one in status.get("conditions") or ()}
    return Told(
        namespace=anchor["metadata"]["namespace"],
        name=anchor["metadata"]["name"],
        workload=(anchor.get("spec") or {}).get("workloadUid", ""),
        phase=status.get("phase", ""),
        reason=status.get("reason", ""),
        attempt=int(status.get("attempt") or 0),
        deployed=conditions.get("ResourcesDeployed", False),
        quota=conditions.get("QuotaReserved", False),
    )


def thing_of(kind: str, item: Mapping[str, Any], *, live: bool = True) -> Thing:
    """Return an object as the judge needs it."""
    metadata = item["metadata"]
    labels: Mapping[str, str] = metadata.get("labels") or {}
    attempt = labels.get(names.LABEL_ATTEMPT, "")
    return Thing(
        kind=kind,
        name=f"{metadata.get('namespace', '')}/{metadata['name']}",
        workload=labels.get(names.LABEL_WORKLOAD_UID, ""),
        attempt=int(attempt) if attempt.isdecimal() else 0,
        live=live,
    )
