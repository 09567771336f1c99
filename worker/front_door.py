"""The front door: custom resources that ask for workloads, each given its one workflow (rows F1, F3, F7).

Its workflow lives by itself from then on: the watch tells it what its resource asks for, its activities write the
status. Here are only those that have no workflow yet, or none any more.
"""

from __future__ import annotations

import asyncio
import time
import warnings
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import structlog
from temporalio.client import Client, WorkflowExecutionDescription, WorkflowExecutionStatus
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from holdfast import formats, names
from holdfast.activities.anchor import claim_of, is_held
from holdfast.activities.contract import AnchorKind, Target
from holdfast.activities.kube import Conflict, KubeError, NotFound, Object
from holdfast.activities.raw import mapping, time_of
from holdfast.activities.report import events_of
from holdfast.activities.sight import Sight
from holdfast.errors import DocumentWarning, HoldfastError
from holdfast.formats.life import Life, life_in, noted
from holdfast.model import Phase, Reason, Report, Workload
from holdfast.model.report import Event
from holdfast.policy.front_door import Act, Resource, Run, Verdict, judge
from holdfast.worker.cache import KindKey
from holdfast.worker.feeds import Feed
from holdfast.worker.informer import Informer, StreamSight
from holdfast.worker.kube import WorkerKube
from holdfast.worker.metrics import Metrics
from holdfast.worker.pulse import Pulse
from holdfast.workflows import start

AT_ONCE: Final = 20
"""Resources that are seen to at the same time."""
AGAIN: Final = 5.0
"""Seconds after which one is looked at again that waits, or could not be seen to."""
AUDIT: Final = 10.0
"""Seconds between two comparisons of all resources with the workflows that run."""
_DEADLINE: Final = timedelta(seconds=10)
_TICK: Final = 0.5
_MESSAGE_MAXIMUM: Final = 900

Log: Any = structlog.stdlib.get_logger("holdfast.front_door")
Connect = Callable[[Sight, float | None], Awaitable[WorkerKube]]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a front door is."""

    client: Client
    cluster: str
    cluster_uid: str
    installation: str
    managed_by: str
    namespaces: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Seen:
    """What is kept of a custom resource that is ours to run."""

    kind: KindKey
    uid: str
    namespace: str
    name: str
    resource: Resource
    life: Life | None
    document: Object | None
    """The whole of it, while its life has not begun."""

    @property
    def over(self) -> bool:
        """Whether its life has ended, and nobody waits for anything of it."""
        ended = self.life is not None and self.life.phase.ended
        return (ended and not self.resource.deleting) or (self.resource.deleting and not self.resource.held)


def seen(kind: KindKey, managed_by: str) -> Callable[[Mapping[str, Any]], Seen | None]:
    """Return what reads a raw custom resource of a kind; None if its `managedBy` names another controller."""
    form = formats.RESOURCES[kind]

    def decode(raw: Mapping[str, Any]) -> Seen | None:
        document: Object = {**raw, "apiVersion": kind[0], "kind": kind[1]}
        if not isinstance(raw.get("spec"), dict) or form.managed_by(document) != managed_by:
            return None
        metadata = mapping(raw["metadata"])
        life = life_in(mapping(raw.get("status")))
        shown = life.phase if life is not None and (life.sequence or life.phase.ended) else None
        return Seen(
            kind=kind,
            uid=str(metadata["uid"]),
            namespace=str(metadata["namespace"]),
            name=str(metadata["name"]),
            resource=Resource(
                uid=str(metadata["uid"]),
                life=str(mapping(metadata.get("annotations")).get(names.ANNOTATION_LIFE) or ""),
                deleting="deletionTimestamp" in metadata,
                held=is_held(raw),
                shown=shown,
            ),
            life=life,
            document=document if shown is None else None,
        )

    return decode


class FrontDoor:
    """Sees to the custom resources of one cluster."""

    def __init__(self, place: Place, connect: Connect, pulse: Pulse, metrics: Metrics) -> None:
        """Prepare; nothing is seen yet."""
        self._place, self._connect, self._pulse, self._metrics = place, connect, pulse, metrics
        self._seen: dict[str, Seen] = {}
        self._due: dict[str, float] = {}
        self._missed: set[str] = set()
        """Those whose workflow was not among the running ones when they were last compared."""
        self._flying: dict[str, asyncio.Task[None]] = {}
        self._wake = asyncio.Event()

    async def run(self) -> None:
        """See to them until cancelled.

        Raises:
            Restored: if the cluster was put back to an earlier version.
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

        try:
            begin(self._attend())
            begin(self._audit())
            for kind in formats.RESOURCES:
                await self._follow(kind, begin)
            await broken
        finally:
            for task in (*tasks, *self._flying.values()):
                task.cancel()
            await asyncio.gather(*tasks, *self._flying.values(), return_exceptions=True)

    async def _follow(self, kind: KindKey, begin: Callable[[Coroutine[Any, Any, None]], None]) -> None:
        place = self._place
        kubes = [await self._connect(StreamSight(self._pulse), None) for _ in range(1 + len(place.namespaces))]

        def start_in(namespace: str) -> Informer[Seen]:
            informer = Informer(
                kubes.pop(),
                *kind,
                sink=self,
                decode=seen(kind, place.managed_by),
                pulse=self._pulse,
                metrics=self._metrics,
                namespace=namespace,
            )
            begin(informer.run())
            return informer

        feed = Feed(kind, start_in, place.namespaces)
        for informer in feed.informers:
            informer.on_standing(feed.standing_changed)

    # What the informers say.

    def put(self, item: Seen) -> None:
        """There is a resource, or it has changed."""
        self._seen[item.uid] = item
        if item.document is not None:  # Those whose life has begun are told by the watch, and compared now and then.
            self._due.setdefault(item.uid, 0.0)
            self._wake.set()

    def drop(self, item: Seen, revision: int) -> None:
        """A resource is gone, or cannot be read any more."""
        for memory in (self._seen, self._due):
            memory.pop(item.uid, None)
        self._missed.discard(item.uid)

    # What is done about it.

    async def _attend(self) -> None:
        while True:
            now = time.monotonic()
            for uid in [uid for uid, at in self._due.items() if at <= now and uid not in self._flying]:
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
                self._due.setdefault(item.uid, time.monotonic() + AGAIN)
        except (RPCError, KubeError, TimeoutError) as error:
            why = getattr(error, "message", "") or str(error) or type(error).__name__
            self._log(item).warning("a custom resource was not seen to: tried again", why=why)
            self._due.setdefault(item.uid, time.monotonic() + AGAIN)
        except Exception:  # A mistake with one of them must not leave the others without their door.
            self._log(item).exception("a custom resource was not seen to: tried again")
            self._due.setdefault(item.uid, time.monotonic() + AGAIN)
        finally:
            self._flying.pop(item.uid, None)
            self._wake.set()

    def _log(self, item: Seen) -> Any:
        return Log.bind(kind=item.kind[1], namespace=item.namespace, name=item.name)

    async def _handled(self, item: Seen) -> bool:
        """Do what is to be done with a resource; false where it is to be looked at again."""
        if item.over:
            return True
        fresh = not item.resource.deleting and item.document is not None
        # Most are new, and Temporal knows nothing of them: to begin says so without asking first.
        verdict = judge(item.resource, None) if fresh else await self._judged(item)
        if verdict.act is Act.BEGIN and not await self._begun(item, again=False):
            verdict = await self._judged(item)
            if verdict.act is Act.BEGIN:
                return await self._begun(item, again=True)
        match verdict.act:
            case Act.RELEASE:
                await self._release(item)
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

    @property
    def _kube(self) -> WorkerKube:
        kube = self._pulse.kube
        assert isinstance(kube, WorkerKube)
        return kube

    async def _run_of(self, item: Seen) -> Run | None:
        workflow_id = names.workflow_id(self._place.cluster, item.namespace, item.name)
        try:
            found = await self._place.client.get_workflow_handle(workflow_id).describe(rpc_timeout=_DEADLINE)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            return None
        return await _run(found)

    async def _begun(self, item: Seen, *, again: bool) -> bool:
        """Begin the life of a resource; false where Temporal knows its workflow id already."""
        assert item.document is not None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DocumentWarning)
                workload = formats.asking(item.document, cluster=self._place.cluster)
        except HoldfastError as error:
            await self._refuse(item, str(error))
            return True
        if not item.resource.held or item.resource.life != item.uid:
            await self._claim(item, workload)
        created = time_of(mapping(item.document["metadata"]).get("creationTimestamp"))
        workload = workload.model_copy(update={"submitted_at": created or datetime.now(UTC)})
        reuse = WorkflowIDReusePolicy.ALLOW_DUPLICATE if again else WorkflowIDReusePolicy.REJECT_DUPLICATE
        try:
            await self._place.client.start_workflow(
                names.WORKLOAD_WORKFLOW,
                start.document(workload),
                id=workload.workflow_id,
                task_queue=names.QUEUE_WORKFLOWS,
                id_reuse_policy=reuse,
                id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
                memo=start.memo(workload),
                search_attributes=start.search_attributes(workload),
                static_summary=start.summary(workload),
                static_details=start.details(workload),
                rpc_timeout=_DEADLINE,
            )
        except WorkflowAlreadyStartedError:
            return False
        self._log(item).info("its life has begun", workflow_id=workload.workflow_id)
        return True

    async def _claim(self, item: Seen, workload: Workload) -> None:
        """Mark a resource as ours before its life begins, so that it goes last.

        Raises:
            KubeError: if that is not done: it has changed, and is looked at again.
        """
        assert item.document is not None
        target = Target(
            cluster=self._place.cluster,
            namespace=item.namespace,
            name=item.name,
            workload_uid=item.uid,
            workflow_id=workload.workflow_id,
            shard=names.shard_of(item.uid),
            run_as=workload.run_as,
            anchor=AnchorKind(api_version=item.kind[0], kind=item.kind[1]),
        )
        await self._patch(item, claim_of(self._place.installation, target, item.document))

    async def _patch(self, item: Seen, patch: Object, *, version: str = "", subresource: str = "") -> None:
        document = item.document or {}
        version = version or str(mapping(document.get("metadata")).get("resourceVersion") or "")
        await self._kube.patch(
            *item.kind,
            item.name,
            item.namespace,
            uid=item.uid,
            resource_version=version,
            patch=patch,
            subresource=subresource,
        )

    async def _refuse(self, item: Seen, why: str) -> None:
        """Say that what a resource asks for cannot be run, for good."""
        message = why[:_MESSAGE_MAXIMUM]
        events = (Event(type="Warning", reason=Reason.REFUSED, message=message),)
        self._log(item).warning("a custom resource was refused", why=message)
        report = Report(sequence=0, phase=Phase.FAILED, reason=Reason.REFUSED, message=message, events=events)
        await self._tell(item, report, formats.RESOURCES[item.kind].status)

    async def _say(self, item: Seen, verdict: Verdict) -> None:
        """Say in a resource's status what it waits for; what its workflow said of it last stays."""
        life = item.life
        report = Report(
            sequence=life.sequence if life is not None else 0,
            attempt=life.attempt if life is not None else 0,
            phase=life.phase if life is not None else Phase.PENDING,
            reason=verdict.reason,
            message=verdict.why[:_MESSAGE_MAXIMUM],
        )
        await self._tell(item, report, noted)

    async def _tell(self, item: Seen, report: Report, shown: Callable[[Object, Report, datetime], Object]) -> None:
        kind, now = item.kind, datetime.now(UTC)
        found = await self._kube.find(*kind, item.name, item.namespace)
        if found is None or mapping(found["metadata"]).get("uid") != item.uid:
            return
        found = {**found, "apiVersion": kind[0], "kind": kind[1]}
        status = shown(found, report, now)
        if status == mapping(found.get("status")):
            return
        self._log(item).info("said on it", reason=report.reason.value, why=report.message)
        version = str(mapping(found["metadata"])["resourceVersion"])
        try:
            await self._patch(item, {"status": status}, version=version, subresource="status")
        except (Conflict, NotFound):
            return  # It has changed meanwhile, and is looked at again.
        for event in events_of(report, found, now, kind):
            await self._kube.create(event)

    async def _release(self, item: Seen) -> None:
        found = await self._kube.find(*item.kind, item.name, item.namespace)
        if found is None or mapping(found["metadata"]).get("uid") != item.uid:
            return
        metadata = mapping(found["metadata"])
        left = [one for one in metadata.get("finalizers") or () if one != names.FINALIZER]
        await self._patch(item, {"metadata": {"finalizers": left}}, version=str(metadata["resourceVersion"]))
        self._log(item).info("let go: nothing of it is left")

    # What nobody says.

    async def _audit(self) -> None:
        """Compare all resources whose life has not ended with the workflows that run, again and again."""
        while True:
            await asyncio.sleep(AUDIT)
            living = {uid: item for uid, item in self._seen.items() if not item.over}
            if not living:
                continue
            try:
                running = await self._running()
            except (RPCError, TimeoutError) as error:
                Log.warning("Temporal cannot list workloads: compared later", why=str(error) or type(error).__name__)
                continue
            missed = {
                uid
                for uid, item in living.items()
                if names.workflow_id(self._place.cluster, item.namespace, item.name) not in running
            }
            # The list may be behind: what is missed twice is asked for by its id.
            for uid in missed & self._missed:
                self._due.setdefault(uid, 0.0)
            self._missed = missed
            self._wake.set()

    async def _running(self) -> set[str]:
        cluster = self._place.cluster.replace("\\", "\\\\").replace("'", "\\'")
        kinds = ", ".join(f"'{kind}'" for _, kind in formats.RESOURCES)
        query = (
            f"WorkflowType = '{names.WORKLOAD_WORKFLOW}' AND ExecutionStatus = 'Running' "
            f"AND {names.SA_CLUSTER} = '{cluster}' AND {names.SA_KIND} IN ({kinds})"
        )
        return {one.id async for one in self._place.client.list_workflows(query, rpc_timeout=_DEADLINE)}


async def _run(found: WorkflowExecutionDescription) -> Run:
    memo: Mapping[str, Any] = await found.memo()
    word = found.status.name.replace("_", " ").title().replace(" ", "") if found.status else "Unknown"
    uid = str(memo.get(names.MEMO_UID) or found.raw_info.first_run_id or "")
    return Run(uid=uid, running=found.status is WorkflowExecutionStatus.RUNNING, word=word)
