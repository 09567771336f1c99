"""What really happened: the API server's audit log, every object's life as a watcher saw it, a workflow's history."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO

from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowHandle

from bench.audit import Mark, mark
from holdfast import names
from holdfast.activities.kube.client import Gone, Kube, KubeError

WORKER = f"system:serviceaccount:{names.WORKER_NAMESPACE}:{names.WORKER_SERVICE_ACCOUNT}"
OBJECT_KINDS = (
    ("v1", "Pod"),
    ("batch/v1", "Job"),
    ("apps/v1", "Deployment"),
    ("apps/v1", "StatefulSet"),
    (names.API_VERSION, names.ATTEMPT_KIND),
)


# --- requests


@dataclass(frozen=True)
class Request:
    """One finished request, as the API server logged it."""

    received: datetime
    at: datetime
    verb: str
    user: str
    resource: str
    name: str
    subresource: str
    code: int
    why: str
    """What a refusal said."""
    body: dict[str, Any] | None

    @property
    def worker(self) -> bool:
        """Whether a Holdfast worker sent it, as itself or as a run-as account."""
        return self.user == WORKER

    @property
    def write(self) -> bool:
        """Whether it was to change something."""
        return self.verb not in {"get", "list", "watch"}

    def __str__(self) -> str:
        what = f"{self.resource}/{self.name}" + (f"/{self.subresource}" if self.subresource else "")
        return f"{self.at:%H:%M:%S.%f} {self.verb} {what} {self.code}"


def since(log: Path, begun: Mark) -> Iterator[BinaryIO]:
    """Open the audit log from a place on: what the API server has put aside meanwhile, and then what it writes now.

    Args:
        log: the file that it writes.
        begun: where to begin.
    """
    with log.open("rb") as opened:
        if os.fstat(opened.fileno()).st_ino == begun.inode:
            opened.seek(begun.offset)
            yield opened
            return
    aside = sorted(log.parent.glob(f"{log.stem}-*{log.suffix}"), key=lambda path: path.stat().st_mtime)
    logs = [*aside, log]
    inodes = [path.stat().st_ino for path in logs]
    first = inodes.index(begun.inode) if begun.inode in inodes else 0
    for path in logs[first:]:
        with path.open("rb") as opened:
            if os.fstat(opened.fileno()).st_ino == begun.inode:
                opened.seek(begun.offset)
            yield opened


class Audit:
    """The requests that concern one namespace, from now on."""

    def __init__(self, log: Path, namespace: str) -> None:
        self._log, self._namespace = log, namespace
        self._read_to = mark(log)
        self._rest = b""
        self._seen: list[Request] = []

    def requests(self, wanted: Callable[[Request], bool] = lambda _: True) -> list[Request]:
        """Return what has been logged so far."""
        self._read()
        return [each for each in self._seen if wanted(each)]

    def worker_writes(self) -> list[Request]:
        """Return what workers have changed or tried to change, Events aside."""
        return self.requests(lambda each: each.worker and each.write and each.resource != "events")

    async def until(self, wanted: Callable[[Request], bool], seconds: float, what: str) -> Request:
        """Return the first request of that sort, as soon as it is in the log."""
        deadline = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < deadline:
            if found := self.requests(wanted):
                return found[0]
            await asyncio.sleep(0.002)
        raise AssertionError(f"not within {seconds:g} s: {what}; so far: {[str(one) for one in self.worker_writes()]}")

    def created(self) -> list[str]:
        """Return what workers have created, each as often as it was created."""
        return [
            f"{each.resource}/{each.name}"
            for each in self.requests(lambda one: one.worker and one.verb == "create" and one.code == 201)
            if each.resource not in {"events", "selfsubjectaccessreviews"}
        ]

    def check_deletions(self) -> int:
        """Check that each deletion by a worker named the object's uid; return for how many the log can tell."""
        known = [each for each in self.requests(lambda one: one.worker and one.verb == "delete") if each.body]
        for each in known:
            assert each.body is not None
            assert (each.body.get("preconditions") or {}).get("uid"), f"deleted without a uid: {each}: {each.body}"
        assert not self.requests(lambda one: one.worker and one.verb == "deletecollection")
        return len(known)

    def _read(self) -> None:
        for log in since(self._log, self._read_to):
            data = log.read()
            self._read_to = Mark(os.fstat(log.fileno()).st_ino, log.tell())
            *whole, self._rest = (self._rest + data).split(b"\n")
            self._take(whole)

    def _take(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            if self._namespace.encode() in line:
                entry = json.loads(line)
                dry = "dryRun=All" in entry.get("requestURI", "")
                if (entry.get("objectRef") or {}).get("namespace") == self._namespace and not dry:
                    self._seen.append(_request(entry))


def _request(entry: dict[str, Any]) -> Request:
    thing = entry["objectRef"]
    return Request(
        received=datetime.fromisoformat(entry["requestReceivedTimestamp"]),
        at=datetime.fromisoformat(entry["stageTimestamp"]),
        verb=entry["verb"],
        user=entry["user"].get("username", ""),
        resource=thing.get("resource", ""),
        name=thing.get("name", ""),
        subresource=thing.get("subresource", ""),
        code=(entry.get("responseStatus") or {}).get("code", 0),
        why=(entry.get("responseStatus") or {}).get("message", ""),
        body=entry.get("requestObject"),
    )


# --- lives of objects


@dataclass
class Life:
    """One object, from the cluster version in which it came to that in which it went."""

    kind: str
    name: str
    uid: str
    attempt: int
    component: bool
    """Whether the attempt itself owns it: Holdfast created it, and no controller."""
    began: int
    ended: int | None = None
    failed: bool = False

    def __str__(self) -> str:
        return f"{self.kind} {self.name} of attempt {self.attempt} [{self.began}, {self.ended}]"


@dataclass
class Witness:
    """Sees every object of a namespace come and go, in the order of the cluster's own versions."""

    kube: Kube
    namespace: str
    lives: dict[str, Life] = field(default_factory=dict)

    async def follow(self, api_version: str, kind: str) -> None:
        """Watch one kind for ever, from the beginning."""
        version = "1"
        while True:
            if version == "1":
                with contextlib.suppress(KubeError):
                    listed = await self.kube.list(api_version, kind, self.namespace)
                    for found in listed["items"]:
                        self._seen(kind, found)
                    version = listed["metadata"]["resourceVersion"]
            try:
                async for event in self.kube.watch(api_version, kind, self.namespace, resource_version=version):
                    raw = event["object"]
                    version = raw["metadata"]["resourceVersion"]
                    if event["type"] in {"ADDED", "MODIFIED"}:
                        self._seen(kind, raw)
                    elif event["type"] == "DELETED":
                        self._seen(kind, raw)
                        self.lives[raw["metadata"]["uid"]].ended = int(version)
            except Gone:
                with contextlib.suppress(KubeError):
                    version = await self._again(api_version, kind, int(version))
            except KubeError:
                await asyncio.sleep(0.2)

    async def _again(self, api_version: str, kind: str, version: int) -> str:
        """List a kind anew, since an API server that was started again no longer tells what happened after a version.

        What is gone counts as gone since then, although it went later: nobody can tell when.
        """
        listed = await self.kube.list(api_version, kind, self.namespace)
        for found in listed["items"]:
            self._seen(kind, found)
        there = {found["metadata"]["uid"] for found in listed["items"]}
        for life in self.of(kind):
            if life.uid not in there and life.ended is None:
                life.ended = version
        return listed["metadata"]["resourceVersion"]

    def _seen(self, kind: str, raw: dict[str, Any]) -> None:
        metadata = raw["metadata"]
        attempt = (metadata.get("labels") or {}).get(names.LABEL_ATTEMPT)
        owners = [owner["kind"] for owner in metadata.get("ownerReferences") or ()]
        life = self.lives.setdefault(
            metadata["uid"],
            Life(
                kind=kind,
                name=metadata["name"],
                uid=metadata["uid"],
                attempt=int(attempt or 0),
                component=names.ATTEMPT_KIND in owners,
                began=int(metadata["resourceVersion"]),
            ),
        )
        life.failed = life.failed or (raw.get("status") or {}).get("phase") == "Failed"

    def of(self, kind: str, attempt: int | None = None) -> list[Life]:
        """Return the lives of a kind, of one attempt or of all."""
        return [one for one in self.lives.values() if one.kind == kind and attempt in {None, one.attempt}]

    def check(self) -> None:
        """Check that nothing was there twice within an attempt, and no two attempts at once."""
        ours = [one for one in self.lives.values() if one.attempt]
        made: dict[tuple[int, str, str], Life] = {}
        for life in ours:
            if life.component or life.kind == names.ATTEMPT_KIND:
                key = (life.attempt, life.kind, life.name)
                assert key not in made, f"created twice within one attempt: {made[key]} and {life}"
                made[key] = life
        for earlier in ours:
            for later in ours:
                if earlier.attempt < later.attempt:
                    assert earlier.ended is not None, f"{earlier} is there beside {later}"
                    assert earlier.ended < later.began, f"{earlier} was still there when {later} came"


@asynccontextmanager
async def witness(kubeconfig: Path, namespace: str) -> AsyncIterator[Witness]:
    """See everything that comes and goes in a namespace."""
    kube = await Kube.connect(str(kubeconfig))
    seen = Witness(kube, namespace)
    tasks = [asyncio.create_task(seen.follow(*kind)) for kind in OBJECT_KINDS]
    try:
        yield seen
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await kube.close()


# --- a workflow's history

_FAILED = {
    EventType.EVENT_TYPE_ACTIVITY_TASK_FAILED: "activity_task_failed_event_attributes",
    EventType.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT: "activity_task_timed_out_event_attributes",
    EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED: "workflow_task_failed_event_attributes",
}
_CODE = re.compile(r"Traceback|object at 0x|\b[A-Z]\w+(Error|Exception)\(|^\w*(Error|Exception)$|NoneType")


def summary_of(event: HistoryEvent) -> str:
    """Return what the event's author says it is for."""
    payload: Payload = event.user_metadata.summary
    return json.loads(payload.data) if payload.data else ""


def failures_in(events: list[HistoryEvent]) -> list[str]:
    """Return what is told of operations that failed, of their earlier tries too."""
    told: list[str] = []
    for event in events:
        if event.event_type in _FAILED:
            told.append(getattr(event, _FAILED[event.event_type]).failure.message)
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED:
            failure = event.activity_task_started_event_attributes.last_failure
            if failure.message:
                told.append(failure.message)
    return told


async def check_history(handle: WorkflowHandle[Any, Any]) -> list[HistoryEvent]:
    """Read the history as somebody on call would: each operation and timer says what it is for, each failure why."""
    events = list((await handle.fetch_history()).events)
    for event in events:
        if event.event_type in {
            EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED,
            EventType.EVENT_TYPE_TIMER_STARTED,
        }:
            text = summary_of(event)
            assert len(text) >= 8, f"event {event.event_id} says not what it is for: {text!r}"
            assert not _CODE.search(text), text
    for told in failures_in(events):
        assert told, "a failure without a word"
        assert not _CODE.search(told), f"not for people: {told}"
    return events
