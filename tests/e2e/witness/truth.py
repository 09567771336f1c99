"""What really happened: each object's birth and death in the cluster's own order, its audit log, workflow history.

Versions order everything that etcd has stored, whatever watch it is read from: so "before" below means before in the
cluster, not before in this process.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, BinaryIO

from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowHandle

from bench.audit import mark, whole
from holdfast import names
from holdfast.activities.kube.client import Unreachable
from holdfast.model import OperationKind
from tests.e2e.ground.site import Site, until
from tests.e2e.witness.audit import since

KINDS = (
    ("v1", "Pod"),
    ("v1", "ConfigMap"),
    ("v1", "Service"),
    ("batch/v1", "Job"),
    ("apps/v1", "Deployment"),
    ("apps/v1", "ReplicaSet"),
    ("apps/v1", "StatefulSet"),
    (names.API_VERSION, names.ATTEMPT_KIND),
    (names.API_VERSION, names.ANCHOR_KIND),
)
WORKER = f"system:serviceaccount:{names.WORKER_NAMESPACE}:{names.WORKER_SERVICE_ACCOUNT}"


@dataclass
class Life:
    """One object, from the version at which it came to be to the one at which it was gone."""

    kind: str
    name: str
    uid: str
    attempt: int
    born: int
    object: dict[str, Any]
    died: int | None = None

    def alive(self, version: int) -> bool:
        return self.born <= version and (self.died is None or version < self.died)


@dataclass(frozen=True)
class Status:
    """The status that an anchor showed from a version on."""

    version: int
    phase: str
    reason: str
    attempt: int
    conditions: Mapping[str, tuple[bool, str]]


@dataclass(frozen=True)
class Request:
    """One successful change, as the audit log has it."""

    time: datetime
    verb: str
    resource: str
    subresource: str
    name: str
    user: str
    """As whom."""
    worker: bool = False
    """Whether a worker made it, as itself or as an account that it acts as."""
    body: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class Act:
    """One activity, as workflow history has it."""

    name: str
    scheduled: datetime
    ended: datetime | None
    given: Any
    result: Any


class Truth:
    """Watches a namespace from its beginning."""

    def __init__(self, site: Site, namespace: str, kinds: Sequence[tuple[str, str]]) -> None:
        self.site = site
        self.namespace = namespace
        self.kinds = kinds
        self.lives: dict[str, Life] = {}
        self.statuses: dict[str, list[Status]] = {}
        self._begun = mark(site.stack.audit_log)
        self._tasks: list[asyncio.Task[None]] = []

    # --- watching

    async def start(self) -> None:
        for api_version, kind in self.kinds:
            listed = await self._list(api_version, kind)
            for item in listed["items"]:
                self._see(kind, "ADDED", item)
            version = listed["metadata"]["resourceVersion"]
            self._tasks.append(asyncio.create_task(self._watch(api_version, kind, version)))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _watch(self, api_version: str, kind: str, version: str) -> None:
        while True:
            stream = self.site.kube.watch(api_version, kind, self.namespace, resource_version=version)
            with contextlib.suppress(Unreachable):
                async for event in stream:
                    version = event["object"]["metadata"]["resourceVersion"]
                    if event["type"] != "BOOKMARK":
                        self._see(kind, event["type"], event["object"])

    async def _list(self, api_version: str, kind: str) -> dict[str, Any]:
        """List a kind; while its definition is applied again the API server has no answer for a moment."""
        while True:
            try:
                return await self.site.kube.list(api_version, kind, self.namespace)
            except Unreachable:
                await asyncio.sleep(0.2)

    def _see(self, kind: str, event: str, found: dict[str, Any]) -> None:
        metadata = found["metadata"]
        version, uid = int(metadata["resourceVersion"]), metadata["uid"]
        life = self.lives.get(uid)
        if life is None:
            attempt = int((metadata.get("labels") or {}).get(names.LABEL_ATTEMPT, 0))
            life = self.lives[uid] = Life(kind, metadata["name"], uid, attempt, version, found)
        life.object = found
        if event == "DELETED":
            life.died = version
        elif kind == names.ANCHOR_KIND and found.get("status"):
            status = found["status"]
            conditions = {
                one["type"]: (one["status"] == "True", one.get("reason", "")) for one in status.get("conditions", ())
            }
            self.statuses.setdefault(uid, []).append(
                Status(version, status["phase"], status["reason"], status["attempt"], conditions)
            )

    async def settle(self) -> None:
        """Wait until everything that has happened so far has been seen."""
        for api_version, kind in self.kinds:
            listed = await self._list(api_version, kind)
            there = {item["metadata"]["uid"]: int(item["metadata"]["resourceVersion"]) for item in listed["items"]}
            now = int(listed["metadata"]["resourceVersion"])

            async def seen(kind: str = kind, there: dict[str, int] = there, now: int = now) -> bool:
                alive = {life.uid: life for life in self.lives.values() if life.kind == kind}
                caught_up = all(
                    uid in alive and int(alive[uid].object["metadata"]["resourceVersion"]) >= version
                    for uid, version in there.items()
                )
                # What was born since may live on.
                return caught_up and all(life.died or uid in there or life.born > now for uid, life in alive.items())

            await until(seen, 90, f"all of {kind} has been seen")

    # --- reading

    def of(self, attempt: int, kind: str | None = None, workload: str | None = None) -> list[Life]:
        """Return what an attempt made, in the order in which it was made; its owner object is the first."""
        found = [life for life in self.lives.values() if life.attempt == attempt and kind in {None, life.kind}]
        if workload is not None:
            found = [life for life in found if _workload(life) == workload]
        return sorted(found, key=lambda life: life.born)

    def attempts(self, workload: str) -> list[int]:
        return sorted({life.attempt for life in self.lives.values() if life.attempt and _workload(life) == workload})

    def anchor(self, workload: str) -> Life:
        """Return the latest anchor of this name."""
        found = [life for life in self.lives.values() if life.kind == names.ANCHOR_KIND and life.name == workload]
        return max(found, key=lambda life: life.born)

    def shown(self, workload: str) -> list[Status]:
        """Return every status the anchor has shown."""
        return self.statuses.get(self.anchor(workload).uid, [])

    def alive(self, workload: str, version: int) -> list[Life]:
        """Return what of any attempt was there at a version."""
        return [
            life for life in self.lives.values() if life.attempt and _workload(life) == workload and life.alive(version)
        ]

    def requests(self) -> list[Request]:
        """Return the successful changes in the namespace, in the order of the audit log."""
        return self._requested(f'"namespace":"{self.namespace}"')

    def requests_of_node(self, name: str) -> list[Request]:
        """Return the successful changes of a node, whoever made them, in the order of the audit log."""
        return [one for one in self._requested('"resource":"nodes"', f'"name":"{name}"') if one.resource == "nodes"]

    def _requested(self, *words: str) -> list[Request]:
        needles, found = [word.encode() for word in words], list[Request]()
        for log in self.log():
            for line in whole(log):
                if all(needle in line for needle in needles):
                    found += _requests(json.loads(line))
        return sorted(found, key=lambda one: one.time)

    def log(self) -> Iterator[BinaryIO]:
        """Open the API server's audit log from where it was at the beginning."""
        return since(self.site.stack.audit_log, self._begun)

    # --- judging

    def assert_one_attempt_at_a_time(self, workload: str) -> None:
        """Nothing of an attempt was made before the last object and pod of the one before was gone."""
        attempts = self.attempts(workload)
        for before, after in pairwise(attempts):
            first = self.of(after, workload=workload)[0]
            late = [life for life in self.of(before, workload=workload) if life.died is None or life.died > first.born]
            assert not late, f"{[(life.kind, life.name) for life in late]} outlived the birth of attempt {after}"

    def assert_told_truly(self, workload: str) -> None:
        """Whenever anything of the workload was there, its anchor said so, and kept its quota (row A10)."""
        shown = self.shown(workload)
        assert shown
        for status, following in zip(shown, [*shown[1:], None], strict=True):
            deployed, quota = status.conditions["ResourcesDeployed"][0], status.conditions["QuotaReserved"][0]
            if deployed:
                continue
            # What came to be while this status stood, or was there when it began to stand.
            end = following.version if following is not None else None
            there = [
                life
                for life in self.lives.values()
                if life.attempt
                and life.kind != names.ATTEMPT_KIND
                and _workload(life) == workload
                and (end is None or life.born < end)
                and (life.died is None or life.died > status.version)
            ]
            assert not there, f"{status}: yet {[(life.kind, life.name) for life in there]} were there"
            assert quota or status.phase in {"Pending", "Suspended", "Succeeded", "Failed", "Cancelled", "Terminating"}


@asynccontextmanager
async def watched(site: Site, namespace: str, *more: tuple[str, str]) -> AsyncIterator[Truth]:
    """Watch a namespace for as long as the block lasts."""
    truth = Truth(site, namespace, (*KINDS, *more))
    await truth.start()
    try:
        yield truth
    finally:
        await truth.stop()


async def activities(handle: WorkflowHandle[Any, Any]) -> list[Act]:
    """Return the activities of a workflow's latest run, in the order in which they were scheduled.

    A reset that has ended is told as the look and the removal that it is (record 0086).
    """
    acts: dict[int, Act] = {}
    for event in (await handle.fetch_history()).events:
        at = event.event_time.ToDatetime(tzinfo=UTC)
        match event.event_type:
            case EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
                scheduled = event.activity_task_scheduled_event_attributes
                given = _payload(scheduled.input.payloads)
                acts[event.event_id] = Act(scheduled.activity_type.name, at, None, given, None)
            case EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
                completed = event.activity_task_completed_event_attributes
                _end(acts, completed.scheduled_event_id, at, _payload(completed.result.payloads))
            case EventType.EVENT_TYPE_ACTIVITY_TASK_CANCELED:
                _end(acts, event.activity_task_canceled_event_attributes.scheduled_event_id, at, None)
            case EventType.EVENT_TYPE_ACTIVITY_TASK_FAILED:
                _end(acts, event.activity_task_failed_event_attributes.scheduled_event_id, at, None)
            case _:
                pass
    return [part for act in acts.values() for part in _parts(act)]


def _parts(act: Act) -> list[Act]:
    if act.name != OperationKind.RESET or act.result is None:
        return [act]
    look, removal = act.given["look"], act.given["removal"]
    parts = [Act(OperationKind.OBSERVE, act.scheduled, act.ended, look, act.result["seen"])]
    if act.result["confirmed"]:
        parts.append(Act(OperationKind.REMOVE, act.scheduled, act.ended, removal, act.result["removed"]))
    return parts


def _end(acts: dict[int, Act], number: int, at: datetime, result: Any) -> None:
    act = acts[number]
    acts[number] = Act(act.name, act.scheduled, at, act.given, result)


def _payload(payloads: Sequence[Any]) -> Any:
    return json.loads(payloads[0].data) if payloads and payloads[0].data else None


def _workload(life: Life) -> str:
    return (life.object["metadata"].get("annotations") or {}).get(names.ANNOTATION_WORKLOAD, "")


def _requests(line: Mapping[str, Any]) -> Iterator[Request]:
    if line["verb"] in {"get", "list", "watch"} or line["responseStatus"].get("code", 500) >= 300:
        return
    if "dryRun=All" in line.get("requestURI", ""):
        return  # Nothing came of it.
    place = line["objectRef"]
    yield Request(
        time=datetime.fromisoformat(line["stageTimestamp"]),
        verb=line["verb"],
        resource=place["resource"],
        subresource=place.get("subresource", ""),
        name=place.get("name", ""),
        user=(line.get("impersonatedUser") or line["user"])["username"],
        worker=line["user"]["username"] == WORKER,
        body=line.get("requestObject") or {},
    )
