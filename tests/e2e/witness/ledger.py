"""The lives of a workload's objects as the API server's audit log alone tells them: when each came, and when it went.

An object is gone with the request that removed it: a deletion that left nothing to wait for, or the change that took
the last finalizer off a dying one. Where that request is not in the log, a read that found nothing under it tells.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from bench.audit import whole
from holdfast import names

Place = tuple[str, str, str, str]
"""API group, resource, namespace and name."""
_ALONE = "jobset.sigs.k8s.io/job-restart-attempt"
_CHANGES = frozenset({"create", "delete", "patch", "update"})


@dataclass
class Life:
    """One object of an attempt."""

    place: Place
    uid: str
    workload: str
    """The workload's uid."""
    attempt: int
    component: str
    """The component it is, or came of; empty for the attempt's owner."""
    launch: int
    """How often the component had been made again within the attempt."""
    copy: str
    """Which copy of the component it is, or came of; empty where there is but one."""
    user: str
    """Who created it."""
    received: datetime
    """When the request that made it was received."""
    born: datetime
    """When that request was answered."""
    version: int = 0
    """The cluster's version in which it came to be; 0 if the log does not say."""
    alone: bool = False
    """Whether its copy may be made again without the other copies of the component (row J23)."""
    asked: datetime | None = None
    """When the request that removed it was received."""
    gone: datetime | None = None
    """When it was certainly gone: that request answered, or its name found free."""
    gone_version: int = 0

    def __str__(self) -> str:
        _, resource, namespace, name = self.place
        end = f"{self.gone:%H:%M:%S.%f}" if self.gone else "not gone"
        launch = f", launch {self.launch}" if self.launch else ""
        return f"{resource} {namespace}/{name} of attempt {self.attempt}{launch} [{self.received:%H:%M:%S.%f} - {end}]"


@dataclass(frozen=True)
class Deletion:
    """One deletion that was sent, whatever came of it."""

    place: Place
    user: str
    received: datetime
    code: int
    options: Mapping[str, Any]


@dataclass(frozen=True)
class PodStatus:
    """One change of a pod's status."""

    received: datetime
    phase: str
    """Empty: the change left it as it was."""
    finished: tuple[datetime, ...]
    """When containers ended that have ended by now, in the whole seconds that the API server keeps."""


@dataclass
class Ledger:
    """What a log tells."""

    lives: dict[str, Life] = field(default_factory=dict[str, Life])
    deletions: list[Deletion] = field(default_factory=list[Deletion])
    submitted: dict[Place, datetime] = field(default_factory=dict[Place, datetime])
    """When each attempt's owner was marked submitted, by the place of the owner."""
    statuses: dict[Place, list[PodStatus]] = field(default_factory=dict[Place, list[PodStatus]])
    """The changes of each pod's status, oldest first, by the place of the pod."""
    unsure: Counter[tuple[str, str, int, str]] = field(default_factory=Counter[tuple[str, str, int, str]])
    """How many objects may have been made although the answer was an error of the server: by namespace, workload,
    attempt and resource."""
    _removed: dict[str, tuple[datetime, datetime, int]] = field(default_factory=dict)
    _free: dict[Place, list[datetime]] = field(default_factory=dict)

    def workloads(self) -> dict[tuple[str, str], list[Life]]:
        """Return the lives of each workload, by namespace and uid, in the order in which they were asked for."""
        found: dict[tuple[str, str], list[Life]] = {}
        for life in sorted(self.lives.values(), key=lambda one: one.received):
            found.setdefault((life.place[2], life.workload), []).append(life)
        return found

    def note(self, entry: Mapping[str, Any]) -> None:
        """Take in one entry of the log."""
        thing = entry.get("objectRef") or {}
        code = (entry.get("responseStatus") or {}).get("code", 0)
        if "dryRun=All" in entry.get("requestURI", ""):
            return
        verb = entry["verb"]
        if thing.get("subresource"):
            if thing["resource"] == names.ATTEMPT_PLURAL and _marks_submitted(entry) and code == 200:
                self.submitted.setdefault(_place(thing), _answered(entry))
            elif (thing["resource"], thing["subresource"], code) == ("pods", "status", 200):
                self.statuses.setdefault(_place(thing), []).append(_pod_status(entry))
            return
        if verb == "delete":
            self.deletions.append(_deletion(entry, thing, code))
        if code == 404 and verb in {"get", "delete"} and "resourceVersion=" not in entry.get("requestURI", ""):
            self._free.setdefault(_place(thing), []).append(_answered(entry))
        elif code == 201 and verb in {"create", "patch", "update"}:
            self._note_birth(entry, thing)
        elif verb == "create" and _is_unsure(entry, code):
            self._note_unsure(entry, thing)
        elif code in {200, 202} and verb in _CHANGES:
            self._note_removal(entry)

    def settle(self) -> Ledger:
        """Say of each life when it ended, now that everything has been read."""
        for life in self.lives.values():
            if life.uid in self._removed:
                life.asked, life.gone, life.gone_version = self._removed[life.uid]
            free = [at for at in self._free.get(life.place, ()) if at > life.born]
            if free and (life.gone is None or min(free) < life.gone):
                life.gone = min(free)
        return self

    def _note_birth(self, entry: Mapping[str, Any], thing: Mapping[str, Any]) -> None:
        metadata = (entry.get("responseObject") or {}).get("metadata") or {}
        labels = metadata.get("labels") or {}
        if names.LABEL_WORKLOAD_UID not in labels or names.LABEL_ATTEMPT not in labels:
            return
        place = _place({**thing, "name": metadata["name"]})
        self.lives[metadata["uid"]] = Life(
            place=place,
            uid=metadata["uid"],
            workload=labels[names.LABEL_WORKLOAD_UID],
            attempt=int(labels[names.LABEL_ATTEMPT]),
            component=labels.get(names.LABEL_COMPONENT, ""),
            launch=int(labels.get(names.LABEL_LAUNCH) or 0),
            copy=labels.get(names.LABEL_COPY, ""),
            user=entry["user"].get("username", ""),
            received=_received(entry),
            born=_answered(entry),
            version=int(metadata.get("resourceVersion") or 0),
            alone=_ALONE in labels,
        )
        # Whatever had this name before had gone by then.
        self._free.setdefault(place, []).append(_answered(entry))

    def _note_unsure(self, entry: Mapping[str, Any], thing: Mapping[str, Any]) -> None:
        labels = ((entry.get("requestObject") or {}).get("metadata") or {}).get("labels") or {}
        if names.LABEL_WORKLOAD_UID in labels and names.LABEL_ATTEMPT in labels:
            workload, attempt = labels[names.LABEL_WORKLOAD_UID], int(labels[names.LABEL_ATTEMPT])
            self.unsure[thing["namespace"], workload, attempt, thing["resource"]] += 1

    def _note_removal(self, entry: Mapping[str, Any]) -> None:
        answer = entry.get("responseObject") or {}
        metadata = answer.get("metadata") or {}
        if answer.get("kind") == "Status":
            uid = (answer.get("details") or {}).get("uid", "") if entry["verb"] == "delete" else ""
        else:
            dying = entry["verb"] == "delete" or "deletionTimestamp" in metadata
            waits = metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds")
            uid = metadata.get("uid", "") if dying and not waits else ""
        if uid:
            # Only the answer to a deletion shows the version in which the object went.
            version = metadata.get("resourceVersion") if entry["verb"] == "delete" else None
            self._removed.setdefault(uid, (_received(entry), _answered(entry), int(version or 0)))


def read(lines: Iterable[bytes]) -> Ledger:
    """Return what these lines of an audit log tell; reads that found something tell nothing and are not parsed."""
    ledger = Ledger()
    for line in whole(lines):
        if b'"code":404' in line or any(b'"verb":"%s"' % verb.encode() in line for verb in _CHANGES):
            ledger.note(json.loads(line))
    return ledger.settle()


def within(logs: Iterable[Iterable[bytes]], *namespaces: str) -> Ledger:
    """Return what logs tell of some namespaces."""
    needles = [f'"namespace":"{namespace}"'.encode() for namespace in namespaces]
    return read(line for log in logs for line in log if any(needle in line for needle in needles))


def lines_of(log: Path) -> Iterator[bytes]:
    """Yield all lines of a log, those that the API server has put aside first."""
    for path in [*sorted(log.parent.glob(f"{log.stem}-*{log.suffix}")), log]:
        with path.open("rb") as file:
            yield from file


def _is_unsure(entry: Mapping[str, Any], code: int) -> bool:
    """Whether etcd may have carried a request out that the API server has given up."""
    return code == 504 or (code >= 500 and "etcdserver" in (entry.get("responseStatus") or {}).get("message", ""))


def _marks_submitted(entry: Mapping[str, Any]) -> bool:
    return ((entry.get("requestObject") or {}).get("status") or {}).get("submitted") is True


def _pod_status(entry: Mapping[str, Any]) -> PodStatus:
    status = (entry.get("requestObject") or {}).get("status") or {}
    states = [one.get("state") or {} for one in status.get("containerStatuses") or ()]
    ends = [state["terminated"]["finishedAt"] for state in states if (state.get("terminated") or {}).get("finishedAt")]
    finished = tuple(datetime.fromisoformat(end).replace(microsecond=0) for end in ends)
    return PodStatus(_received(entry), status.get("phase") or "", finished)


def _deletion(entry: Mapping[str, Any], thing: Mapping[str, Any], code: int) -> Deletion:
    return Deletion(
        place=_place(thing),
        user=entry["user"].get("username", ""),
        received=_received(entry),
        code=code,
        options=entry.get("requestObject") or {},
    )


def _place(thing: Mapping[str, Any]) -> Place:
    return (thing.get("apiGroup", ""), thing.get("resource", ""), thing.get("namespace", ""), thing.get("name", ""))


def _received(entry: Mapping[str, Any]) -> datetime:
    return datetime.fromisoformat(entry["requestReceivedTimestamp"])


def _answered(entry: Mapping[str, Any]) -> datetime:
    return datetime.fromisoformat(entry["stageTimestamp"])
