"""The front door: starts the one workflow of each custom resource that asks for a workload (rows F1, F3, F7).

From then on the workflow needs no front door: the watch signals it what its resource asks for, and its activities write
the status. The front door handles only resources that have no workflow yet, or no longer have one.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import structlog
from temporalio.client import Client, WorkflowExecution, WorkflowExecutionStatus
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError

from holdfast import formats, names
from holdfast.activities.entities.executions import memo_of, word_for
from holdfast.activities.kube.blindness import Sight
from holdfast.activities.kube.client import (
    AlreadyExists,
    Conflict,
    Forbidden,
    KubeError,
    NotFound,
    Object,
    UnknownKind,
    Unreachable,
)
from holdfast.activities.kube.raw import mapping, time_of
from holdfast.activities.operations.report import event_on, events_of
from holdfast.activities.site.anchor import asks_here, is_held, is_marked, marking
from holdfast.errors import DocumentWarning, HoldfastError, InvalidWorkload, Problem
from holdfast.formats.condition import Life, life_in
from holdfast.model import Phase, Reason, Report, Workload
from holdfast.model.entities.queue import CLOSING
from holdfast.model.life.report import Event
from holdfast.policy.entities.front_door import Act, Resource, Run, Verdict, judge
from holdfast.worker.cleanup.sweep_lookup import describe
from holdfast.worker.runtime.kube import WorkerKube
from holdfast.worker.runtime.metrics import Metrics
from holdfast.worker.watch.binding import Bindings
from holdfast.worker.watch.feeds import Feed
from holdfast.worker.watch.informer import Informer, Standing, StreamSight
from holdfast.worker.watch.pulse import Pulse
from holdfast.worker.watch.seen import KindKey
from holdfast.workflows import start

AT_ONCE: Final = 20
"""Resources that are handled at the same time."""
AGAIN_FIRST: Final = 2.0
"""Seconds until a resource that waits, or could not be handled, is checked again; doubles each time."""
AGAIN_LAST: Final = 120.0
LISTEN: Final = 5.0
"""Seconds between two queries for workflows that have ended recently."""
AUDIT: Final = 300.0
"""Seconds between two comparisons of all resources with all running workflows."""
IGNORED: Final = "AnnotationIgnored"
"""The reason of the Event on a resource that says which of its annotations have no effect."""
_OVERLAP: Final = timedelta(seconds=30)
"""How far the list of ended workflows may lag behind."""
_APART: Final = timedelta(minutes=1)
"""How far apart the clocks of Temporal and of the API server may be."""
_DEADLINE: Final = timedelta(seconds=10)
_TICK: Final = 0.5
_MESSAGE_MAXIMUM: Final = 900

Log: Any = structlog.stdlib.get_logger("holdfast.front_door")
Connect = Callable[[Sight, float | None], Awaitable[WorkerKube]]


@dataclass(frozen=True, slots=True)
class Place:
    """What a front door serves: a cluster and an installation."""

    client: Client
    cluster: str
    installation: str
    managed_by: str
    namespaces: Sequence[str] = ()
    compatible_with: str = ""
    """The earliest release that must be able to read what is started here (row O4)."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The fields kept of a custom resource that is ours to run."""

    kind: KindKey
    uid: str
    namespace: str
    name: str
    resource: Resource
    life: Life | None
    document: Object | None
    """The whole resource, while its life has not begun."""

    @property
    def over(self) -> bool:
        """Whether nothing is left to do: we hold it no longer, and its life has ended or it is being deleted."""
        ended = self.life is not None and self.life.phase.ended
        return not self.resource.held and (ended or self.resource.deleting)


def resource_reader(kind: KindKey, managed_by: str) -> Callable[[Mapping[str, Any]], Seen | None]:
    """Return a function that reads a raw custom resource of a kind; None if its `managedBy` is another controller's."""

    def decode(raw: Mapping[str, Any]) -> Seen | None:
        # Items of a list do not carry their kind.
        document: Object = {**raw, "apiVersion": kind[0], "kind": kind[1]}
        if not asks_here(kind, raw, managed_by):
            return None
        metadata = mapping(raw["metadata"])
        uid, life = str(metadata["uid"]), life_in(mapping(raw.get("status")))
        shown = life.phase if life is not None and (life.sequence or life.phase.ended) else None
        return Seen(
            kind=kind,
            uid=uid,
            namespace=str(metadata["namespace"]),
            name=str(metadata["name"]),
            resource=Resource(
                uid=uid,
                life=str(mapping(metadata.get("annotations")).get(names.ANNOTATION_LIFE) or ""),
                deleting="deletionTimestamp" in metadata,
                held=is_held(raw),
                marked=is_marked(uid, raw),
                shown=shown,
            ),
            life=life,
            document=document if shown is None else None,
        )

    return decode


def _created(item: Seen) -> datetime | None:
    """Return when a resource whose life has not begun was created."""
    return time_of(mapping((item.document or {}).get("metadata")).get("creationTimestamp"))


def _is_settled(feed: Feed) -> bool:
    """Whether all resources of a kind have been listed."""
    # If all namespaces at once may not be read, the configured ones are.
    informers = [one for one in feed.informers if not one.unseen]
    return not feed.unseen and all(one.standing is Standing.SYNCED for one in informers)


def in_turn(due: Mapping[str, float], seen: Mapping[str, Seen], now: float) -> list[str]:
    """Return the uids that are due: deletions first, however many others wait (row F12). Pure."""
    ready = [uid for uid, at in due.items() if at <= now]
    return sorted(ready, key=lambda uid: uid not in seen or not seen[uid].resource.deleting)


class FrontDoor:
    """Handles the custom resources of one cluster."""

    def __init__(self, place: Place, connect: Connect, pulse: Pulse, metrics: Metrics) -> None:
        """Prepare; nothing is seen yet."""
        self._place, self._connect, self._pulse, self._metrics = place, connect, pulse, metrics
        self._kube: WorkerKube
        self._bindings: Bindings
        self._feeds: list[Feed] = []
        self._seen: dict[str, Seen] = {}
        self._due: dict[str, float] = {}
        self._paused: dict[str, float] = {}
        """The last pause of each waiting resource, in seconds."""
        self._begun_here: set[str] = set()
        """Resources whose workflow was started here: they are not checked again until their own status says so."""
        self._flying: dict[str, asyncio.Task[None]] = {}
        self._wake = asyncio.Event()

    async def run(self) -> None:
        """Handle the resources until cancelled.

        Raises:
            Restored: if the cluster was restored to an earlier version.
        """
        tasks: list[asyncio.Task[None]] = []
        broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def begin(work: Coroutine[Any, Any, None]) -> None:
            task = asyncio.create_task(work)
            task.add_done_callback(ended)
            tasks.append(task)

        def ended(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and (error := task.exception()) is not None and not broken.done():
                broken.set_exception(error)

        async with AsyncExitStack() as clients:
            # A client of its own: a webhook that blocks a write to one kind must not make the cluster count as unseen.
            self._kube = await clients.enter_async_context(await self._connect(Sight(), None))
            self._bindings = Bindings(self._kube)
            try:
                begin(self._attend())
                begin(self._compare())
                for kind in formats.RESOURCES:
                    await self._follow(kind, begin, clients)
                await broken
            finally:
                for task in (*tasks, *self._flying.values()):
                    task.cancel()
                await asyncio.gather(*tasks, *self._flying.values(), return_exceptions=True)

    async def _follow(
        self, kind: KindKey, begin: Callable[[Coroutine[Any, Any, None]], None], clients: AsyncExitStack
    ) -> None:
        place = self._place
        kubes = [
            await clients.enter_async_context(await self._connect(StreamSight(self._pulse), None))
            for _ in range(1 + len(place.namespaces))
        ]

        def start_in(namespace: str) -> Informer[Seen]:
            informer = Informer(
                kubes.pop(),
                *kind,
                sink=self,
                decode=resource_reader(kind, place.managed_by),
                pulse=self._pulse,
                metrics=self._metrics,
                namespace=namespace,
            )
            begin(informer.run())
            return informer

        feed = Feed(kind, start_in, place.namespaces)
        self._feeds.append(feed)
        for informer in feed.informers:
            informer.on_standing(feed.standing_changed)

    # Changes from the informers.

    def put(self, item: Seen) -> None:
        """Handle a new or changed resource."""
        before = self._seen.get(item.uid)
        self._seen[item.uid] = item
        if before is None or before.resource != item.resource:
            self._paused.pop(item.uid, None)
        # The watch signals the workflows of resources whose life has begun, and finds those resources by their marks.
        begins = item.document is not None and item.uid not in self._begun_here
        if begins or item.resource.deleting or not item.resource.marked:
            self._hurry(item.uid)

    def drop(self, item: Seen, revision: int) -> None:
        """Forget a resource that is gone, or cannot be read any more."""
        for memory in (self._seen, self._due, self._paused):
            memory.pop(item.uid, None)
        self._begun_here.discard(item.uid)

    # Actions.

    def _hurry(self, uid: str) -> None:
        self._due[uid] = 0.0
        self._wake.set()

    def _later(self, uid: str) -> None:
        pause = self._paused[uid] = min(AGAIN_LAST, self._paused.get(uid, AGAIN_FIRST / 2) * 2)
        self._due.setdefault(uid, time.monotonic() + pause)

    async def _attend(self) -> None:
        while True:
            for uid in in_turn(self._due, self._seen, time.monotonic()):
                if uid in self._flying:
                    continue
                if len(self._flying) >= AT_ONCE:
                    break
                del self._due[uid]
                if uid in self._seen:
                    self._flying[uid] = asyncio.create_task(self._see_to(self._seen[uid]))
            self._wake.clear()
            try:
                async with asyncio.timeout(_TICK):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def _see_to(self, item: Seen) -> None:
        try:
            if not await self._handled(item):
                self._later(item.uid)
        except (RPCError, KubeError, TimeoutError) as error:
            why = getattr(error, "message", "") or str(error) or type(error).__name__
            self._log(item).warning("a custom resource was not seen to: tried again", why=why)
            self._later(item.uid)
        except Exception:  # An error with one resource must not stop the others.
            self._log(item).exception("a custom resource was not seen to: tried again")
            self._later(item.uid)
        finally:
            self._flying.pop(item.uid, None)
            self._wake.set()

    def _log(self, item: Seen) -> Any:
        return Log.bind(kind=item.kind[1], namespace=item.namespace, name=item.name)

    async def _handled(self, item: Seen) -> bool:
        """Handle a resource; return false if it must be checked again."""
        if item.over:
            return True
        fresh = not item.resource.deleting and item.document is not None and item.uid not in self._begun_here
        # Most are new and unknown to Temporal: starting the workflow finds that out without a query first.
        verdict = judge(item.resource, None) if fresh else await self._judged(item)
        if verdict.act is Act.BEGIN:
            verdict = await self._bindings.unchecked(item.kind[1], _created(item)) or verdict
        if verdict.act is Act.BEGIN and not await self._begun(item, again=False):
            verdict = await self._judged(item)
            if verdict.act is Act.BEGIN:
                return await self._begun(item, again=True)
        match verdict.act:
            case Act.RELEASE:
                await self._release(item)
            case Act.MARK:
                await self._mark(item)
            case Act.HOLD:
                await self._say(item, verdict)
                return False
            case Act.BEGIN | Act.LEAVE:
                pass
        return True

    async def _judged(self, item: Seen) -> Verdict:
        run = await self._run_of(item)
        verdict = judge(item.resource, run)
        if verdict.act is Act.RELEASE:
            labels = f"{names.LABEL_WORKLOAD_UID}={item.uid}"
            left = await self._kube.list(names.API_VERSION, names.ATTEMPT_KIND, item.namespace, labels=labels)
            verdict = judge(item.resource, run, remains=bool(left["items"]))
        return verdict

    def _workflow_id(self, item: Seen) -> str:
        return names.workflow_id(self._place.cluster, item.namespace, item.name, item.kind[1])

    async def _run_of(self, item: Seen) -> Run | None:
        found = await describe(self._place.client, self._workflow_id(item))
        if found is None:
            return None
        running = found.status is WorkflowExecutionStatus.RUNNING
        try:
            memo = await found.memo()
        except Exception as error:  # A codec or a converter may raise anything.
            if running:
                raise
            self._log(item).warning("the memo of its ended workflow cannot be read", why=repr(error)[:200])
            # A run that began before the resource was created was not its own.
            created = _created(item)
            earlier = created is not None and found.start_time < created - _APART
            return Run(uid=found.raw_info.first_run_id if earlier else "", running=False, word=word_for(found))
        uid = str(memo.get(names.MEMO_UID) or found.raw_info.first_run_id or "")
        return Run(uid=uid, running=running, word=word_for(found), name=names.name_of(self._workflow_id(item)))

    async def _begun(self, item: Seen, *, again: bool) -> bool:
        """Start the workflow of a resource; return false if Temporal already knows its workflow id."""
        assert item.document is not None
        try:
            with warnings.catch_warnings(record=True) as ignored:
                warnings.simplefilter("always", DocumentWarning)
                workload = formats.asking(item.document, cluster=self._place.cluster)
            queued = formats.RESOURCES[item.kind].own_queue and await self._is_queue(workload)
        except HoldfastError as error:
            run = await self._run_of(item)
            if run is not None and run.running and run.uid == item.uid:
                return False  # It waits already, in the queue that is told to end since.
            await self._refuse(item, str(error))
            return True
        # Even if it is already marked: the patch proves that the resource has not changed since it was read.
        await self._patch(
            item,
            self._marking(item, item.document),
            version=str(item.document["metadata"]["resourceVersion"]),
        )
        created = _created(item)
        workload = start.readable_by(self._place.compatible_with, workload)
        workload = workload.model_copy(update={"submitted_at": created or datetime.now(UTC)})
        if queued:
            workload = workload.model_copy(update={"queued": True})
        options = start.options(workload, again=again)
        try:
            await self._place.client.start_workflow(names.WORKLOAD_WORKFLOW, **options, rpc_timeout=_DEADLINE)
        except WorkflowAlreadyStartedError:
            return False
        self._begun_here.add(item.uid)
        self._log(item).info("its life has begun", workflow_id=workload.workflow_id)
        if told := dict.fromkeys(str(one.message) for one in ignored if issubclass(one.category, DocumentWarning)):
            await self._warn(item, IGNORED, "; ".join(told))
        return True

    async def _warn(self, item: Seen, reason: str, message: str) -> None:
        """Write an Event on a resource, once for a reason: for whoever applied it and sees nothing else (row D29)."""
        metadata = {"name": item.name, "namespace": item.namespace, "uid": item.uid}
        event = event_on(item.kind, metadata, f".{item.uid}.{reason.lower()}", reason, message, datetime.now(UTC))
        with contextlib.suppress(KubeError):  # An Event is never worth failing for.
            await self._kube.create({**event, "type": "Warning"})

    async def _is_queue(self, workload: Workload) -> bool:
        """Whether there is an admission queue of that name (row L9).

        Raises:
            InvalidWorkload: if it is told to end: it takes no more workloads.
        """
        found = await describe(self._place.client, names.queue_id(self._place.cluster, workload.queue))
        if found is None or found.status is not WorkflowExecutionStatus.RUNNING:
            return False
        if (await memo_of(found) or {}).get(names.MEMO_CLOSING):
            raise InvalidWorkload([Problem("queue", CLOSING, workload.queue)], f"workload {workload.name}")
        return True

    async def _fresh(self, item: Seen) -> tuple[Object, Seen] | None:
        """Return a resource as it is now; None if it is no longer what was judged."""
        found = await self._kube.find(*item.kind, item.name, item.namespace)
        now = resource_reader(item.kind, self._place.managed_by)(found) if found is not None else None
        if found is None or now is None or now.resource != item.resource:
            return None
        return {**found, "apiVersion": item.kind[0], "kind": item.kind[1]}, now

    async def _patch(self, item: Seen, patch: Object, *, version: str, subresource: str = "") -> None:
        key = (*item.kind, item.name, item.namespace)
        await self._kube.patch(*key, uid=item.uid, resource_version=version, patch=patch, subresource=subresource)

    def _marking(self, item: Seen, document: Object) -> Object:
        return marking(self._place.installation, item.uid, names.shard_of(item.uid), document)

    async def _mark(self, item: Seen) -> None:
        """Mark a live resource again after someone removed its marks, as `kubectl replace` does."""
        fresh = await self._fresh(item)
        if fresh is not None:
            found, _ = fresh
            version = str(found["metadata"]["resourceVersion"])
            await self._patch(item, self._marking(item, found), version=version)
            self._log(item).warning("its marks were taken off: marked again")

    async def _refuse(self, item: Seen, why: str) -> None:
        """Write to a resource that its request is refused for good."""
        message = why[:_MESSAGE_MAXIMUM]
        self._metrics.refused.labels(item.kind[1]).inc()
        events = (Event(type="Warning", reason=Reason.REFUSED, message=message),)
        self._log(item).warning("a custom resource was refused", why=message)
        report = Report(sequence=0, phase=Phase.FAILED, reason=Reason.REFUSED, message=message, events=events)
        await self._tell(item, lambda _: report, formats.RESOURCES[item.kind].status)

    async def _say(self, item: Seen, verdict: Verdict) -> None:
        """Write to a resource's status what it waits for; the last report of its workflow stays."""

        def report(life: Life | None) -> Report:
            return Report(
                sequence=life.sequence if life is not None else 0,
                attempt=life.attempt if life is not None else 0,
                phase=life.phase if life is not None else Phase.PENDING,
                reason=verdict.reason,
                message=verdict.why[:_MESSAGE_MAXIMUM],
            )

        told = await self._tell(item, report, formats.RESOURCES[item.kind].note)
        if told and verdict.reason is Reason.HELD:  # What is Blocked begins by itself.
            await self._warn(item, verdict.reason.value, verdict.why)

    async def _tell(
        self,
        item: Seen,
        report_of: Callable[[Life | None], Report],
        shown: Callable[[Object, Report, datetime], Object],
    ) -> bool:
        """Write a report to a resource's status, and its Events; return whether it was news and is written."""
        fresh = await self._fresh(item)
        if fresh is None:
            return False  # Its change brings it back here.
        (found, now_seen), now = fresh, datetime.now(UTC)
        report = report_of(now_seen.life)
        status = shown(found, report, now)
        if status == mapping(found.get("status")):
            return False
        self._log(item).info("said on it", reason=report.reason.value, why=report.message)
        version = str(found["metadata"]["resourceVersion"])
        with contextlib.suppress(Conflict, NotFound):  # It has changed meanwhile, and is checked again.
            await self._patch(item, {"status": status}, version=version, subresource="status")
            for event in events_of(report, found, now, item.kind):
                with contextlib.suppress(AlreadyExists):
                    await self._kube.create(event)
            return True
        return False

    async def _release(self, item: Seen) -> None:
        fresh = await self._fresh(item)
        if fresh is None:
            return
        metadata = mapping(fresh[0]["metadata"])
        left = [one for one in metadata.get("finalizers") or () if one != names.FINALIZER]
        await self._patch(item, {"metadata": {"finalizers": left}}, version=str(metadata["resourceVersion"]))
        self._log(item).info("finalizer removed: all of its objects are gone")

    # Comparison: what no event reports.

    async def _compare(self) -> None:
        """Compare resources with workflows: the recently ended ones, and every `AUDIT` seconds all."""
        since, audited = datetime.now(UTC) - _OVERLAP, 0.0
        while True:
            await asyncio.sleep(LISTEN)
            begun, whole = datetime.now(UTC), time.monotonic() - audited >= AUDIT
            try:
                if whole and (kinds := self._settled):
                    await self._audit(kinds)
                    audited = time.monotonic()
                if any(not item.over for item in self._seen.values()):
                    await self._hear_ends(since)
                since = begun - _OVERLAP
            except (RPCError, KubeError, TimeoutError) as error:
                why = getattr(error, "message", "") or str(error) or type(error).__name__
                Log.warning("resources were not compared with workflows: later", why=why)
            except Exception:  # An error with one workflow must not end the watch.
                Log.exception("resources were not compared with workflows: later")

    @property
    def _settled(self) -> frozenset[str]:
        """The kinds of which all resources have been listed: none that is not installed, or that we may not read."""
        return frozenset(feed.kind[1] for feed in self._feeds if _is_settled(feed))

    async def _hear_ends(self, since: datetime) -> None:
        """Handle resources whose workflow has ended recently: it released them, or nothing decides for them now."""
        ended = self._listed(f"ExecutionStatus != 'Running' AND CloseTime > '{since.isoformat()}'")
        ids = {one.id async for one in ended}
        for uid, item in self._seen.items():
            if self._workflow_id(item) in ids and not item.over:
                self._hurry(uid)

    async def _audit(self, kinds: frozenset[str]) -> None:
        """Handle all resources without a workflow, and cancel workflows of these kinds whose resource is gone."""
        living = {self._workflow_id(item): uid for uid, item in self._seen.items() if not item.over}
        async for one in self._listed("ExecutionStatus = 'Running'"):
            living.pop(one.id, None)
            try:
                memo: Mapping[str, Any] = await one.memo()
            except Exception as error:  # A codec or a converter may raise anything. The others are compared.
                Log.warning("a memo cannot be read", workflow_id=one.id, why=repr(error)[:200])
                continue
            uid, kind = str(memo.get(names.MEMO_UID) or ""), str(memo.get(names.MEMO_KIND) or "")
            if memo.get(names.MEMO_APPLIED) and kind in kinds and uid not in self._seen:
                try:
                    await self._end(one, uid, kind)
                except KubeError as error:  # It may exist. One that cannot be read keeps no other from its turn.
                    if isinstance(error, Unreachable) and not error.is_one_kinds:
                        raise
                    Log.warning("a custom resource cannot be read", workflow_id=one.id, why=error.message)
        for uid in living.values():
            self._hurry(uid)

    async def _end(self, run: WorkflowExecution, uid: str, kind: str) -> None:
        """Cancel a workload whose resource, of this kind, is gone because its finalizer was removed."""
        try:
            _, namespace, name = names.parse_workflow_id(run.id)
        except ValueError:
            return  # Somebody has begun it by hand, under an id that is no workload's.
        (key,) = (one for one in formats.RESOURCES if one[1] == kind)
        try:
            found = await self._kube.get(*key, name, namespace)
        except (Forbidden, UnknownKind):
            return  # It may exist: a resource that cannot be read is not known to be gone.
        except NotFound:
            found = None
        if found is not None and mapping(found["metadata"]).get("uid") == uid:
            return
        handle = self._place.client.get_workflow_handle(run.id, run_id=run.run_id)
        await handle.signal(names.SIGNAL_CANCEL, args=["its custom resource is gone", uid], rpc_timeout=_DEADLINE)
        Log.warning("its custom resource is gone: what is left of it is removed", workflow_id=run.id)

    def _listed(self, which: str) -> AsyncIterator[WorkflowExecution]:
        cluster = self._place.cluster.replace("\\", "\\\\").replace("'", "\\'")
        kinds = ", ".join(f"'{kind}'" for _, kind in formats.RESOURCES)
        query = (
            f"WorkflowType = '{names.WORKLOAD_WORKFLOW}' AND {names.SA_CLUSTER} = '{cluster}' "
            f"AND {names.SA_KIND} IN ({kinds}) AND {which}"
        )
        return self._place.client.list_workflows(query, rpc_timeout=_DEADLINE)
