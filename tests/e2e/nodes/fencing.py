"""A scene for fencing tests: a worker whose lines to Temporal and to the API server can be cut, and a second worker."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from temporalio.client import WorkflowHandle

from holdfast import names
from holdfast.activities.kube.client import Conflict, Forbidden, NotFound
from holdfast.local import Stack
from holdfast.model import Status
from holdfast.workflows.operations.dispatch import HEARTBEAT
from tests.e2e.crash.scene import pod
from tests.e2e.ground.proxy import Proxy, address_in, redirected
from tests.e2e.ground.reading_proxy import ReadingProxy
from tests.e2e.ground.site import Site, Worker, appwrapper, open_site, until
from tests.e2e.witness.audit import Audit, Life, Request, Witness, check_history, witness
from tests.e2e.witness.law import FENCING
from tests.quotas import limited

HEARTBEAT_SECONDS = HEARTBEAT.total_seconds()
FINALIZER = "example.com/hold"
COLLECTOR = "system:kube-controller-manager"


@dataclass
class Fence:
    """What a fencing test works with: the worker that is to be fenced, its two lines, and who takes over."""

    site: Site
    namespace: str
    api: ReadingProxy
    temporal: Proxy
    audit: Audit
    witness: Witness
    fenced: Worker
    other: Worker | None = None
    mended: datetime | None = None
    handles: list[WorkflowHandle[Any, Status]] = field(default_factory=list[WorkflowHandle[Any, Status]])

    @property
    def handle(self) -> WorkflowHandle[Any, Status]:
        return self.handles[0]

    async def submit(self, document: dict[str, Any] | str) -> None:
        self.handles.append(await self.site.submit(self.site.read(document, self.namespace)))

    async def reach(self, phase: str, attempt: int | None = None, seconds: float = 150) -> Status:
        return await self.site.reach(self.handle, phase, seconds, attempt)

    async def take_over(self) -> Worker:
        """Start the second worker, whose lines nobody cuts."""
        self.other = await self.site.start_worker()
        return self.other

    async def again(self) -> None:
        """Have the workload removed, proven gone and made again, which charges nothing."""
        begun = asyncio.get_running_loop().time()
        await self.handle.signal(names.SIGNAL_SUSPEND, "making room")
        await self.reach("Suspended")
        await self.handle.signal(names.SIGNAL_RESUME, "room again")
        await self.reach("Running", 2)
        print(f"MEASURED {asyncio.get_running_loop().time() - begun:.1f} s until attempt 2 ran, beside a fenced worker")

    async def mend(self) -> datetime:
        """Mend both lines, so that what was under way arrives now; return when."""
        self.mended = datetime.now(UTC)
        await self.temporal.heal(lose=False)
        await self.api.heal(lose=False)
        return self.mended

    async def quiet(self) -> None:
        """Let what the mended worker still has to do be done, and see that it makes and deletes nothing more.

        It may be given new work, which is its own by right, and then tells the latest status or finds all done already.
        """
        assert self.mended is not None
        await asyncio.sleep(HEARTBEAT_SECONDS)
        late = [one for one in self.api.writes() if one.late]
        print(f"MEASURED {len(late)} requests landed late: {[f'{one.method} {one.path}' for one in late]}")
        assert len(late) <= 1
        since = self.mended
        done = [
            each
            for each in self.audit.worker_writes()
            if each.received >= since and each.verb in {"create", "delete"} and each.code < 300
        ]
        done = [each for each in done if each.resource != "selfsubjectaccessreviews"]
        assert len(done) <= len(late), [str(each) for each in done]

    async def on_another(self, activity: str, tries: int = 2, seconds: float = 150) -> None:
        """Wait until an activity is under way on another worker than the one that is not heard of, at such a try."""

        async def check() -> bool:
            pending = (await self.handle.describe()).raw_description.pending_activities
            return any(one.activity_type.name == activity and one.attempt >= tries for one in pending)

        await until(check, seconds, f"another worker has taken {activity} over")

    def pods_made(self, attempt: int) -> list[Life]:
        """Return the lives of the pods of an attempt, in the order in which they began."""
        return sorted(self.witness.of("Pod", attempt), key=lambda life: life.began)

    async def life_of(self, attempt: int, name: str, after: int = 0) -> Life:
        """Return the life of a pod that the audit log knows of, once the witness has seen it too.

        Args:
            attempt: whose pod.
            name: the pod's.
            after: the version of the cluster that it came after, where the name was used before.
        """

        def found() -> list[Life]:
            return [life for life in self.pods_made(attempt) if life.name == name and life.began > after]

        async def seen() -> bool:
            return bool(found())

        await until(seen, 90, f"pod {name} of attempt {attempt} is seen")
        (life,) = found()
        return life

    async def late(self, since: datetime, resource: str, verb: str, seconds: float = 60) -> Request:
        """Wait until a request that was under way when the line was cut is in the audit log; return it."""
        held = [one for one in self.api.writes(since) if one.late]
        assert len(held) <= 1, f"more than one request landed late: {held}"
        return await self.audit.until(
            lambda each: each.worker and each.received >= since and (each.resource, each.verb) == (resource, verb),
            seconds,
            f"the late {verb} of {resource} has landed",
        )

    async def collected(self, life: Life, seconds: float = 60) -> None:
        """Wait until an object is gone, and see by whose hand."""

        async def gone() -> bool:
            return life.ended is not None

        await until(gone, seconds, f"{life} is collected")
        by = {
            each.user
            for each in self.audit.requests(lambda each: each.verb == "delete" and each.name == life.name)
            if each.code == 200
        }
        assert COLLECTOR in by, f"{life} was removed by {by}"

    # --- the cluster

    async def steer_pods(self, **metadata: Any) -> None:
        """Change the metadata of each pod."""
        for found in await self.site.pods(self.namespace):
            name, uid = found["metadata"]["name"], found["metadata"]["uid"]
            with contextlib.suppress(NotFound, Conflict):
                await self.site.kube.patch("v1", "Pod", name, self.namespace, uid=uid, patch={"metadata": metadata})

    async def quota(self, pods: int) -> dict[str, Any]:
        """Let the namespace have so many pods and no more, and wait until that is in force."""
        return await limited(self.site.kube, self.namespace, {"count/pods": str(pods)}, name="pods")

    async def lift(self, quota: dict[str, Any]) -> None:
        """Take a quota away, and wait until the API server, which remembers quotas for a while, lets a pod be."""
        await self.site.kube.delete("v1", "ResourceQuota", "pods", self.namespace, uid=quota["metadata"]["uid"])
        probe = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "probe", "namespace": self.namespace},
            "spec": {"containers": [{"name": "main", "image": "example.com/probe:1"}]},
        }

        async def admitted() -> bool:
            try:
                await self.site.kube.would_create(probe)
            except Forbidden:
                return False
            return True

        await until(admitted, 60, "pods are admitted again")

    # --- the end

    async def finish(self, *strays: Life) -> Status:
        """Cancel the workload and check what was witnessed: nothing twice, no overlap, but for what came late."""
        await self.handle.signal(names.SIGNAL_CANCEL, "the test is over")
        await self.steer_pods(finalizers=None)
        status = await asyncio.wait_for(self.handle.result(), 60)
        assert (status.phase, status.restarts) == ("Cancelled", 0), status.model_dump_json(indent=1)
        assert all(budget.used == 0 for budget in status.budgets), status.budgets
        await until(lambda: self.site.gone(self.namespace), 90, "nothing of it is left")
        for stray in strays:
            assert stray.ended is not None
            del self.witness.lives[stray.uid]
        self.witness.check()
        self.audit.check_deletions()
        owners = [one for one in self.audit.created() if one.startswith("attempts/")]
        assert len(set(owners)) == len(owners), owners
        await check_history(self.handle)
        return status


@asynccontextmanager
async def open_fence(stack: Stack, directory: Path) -> AsyncIterator[Fence]:
    """Open a site, a namespace in it, witnesses, and the worker that is to be fenced behind two proxies."""
    async with open_site(stack, directory, prefix=FENCING.rstrip("-")) as site:
        host, port = address_in(site.kubeconfig)
        pki = stack.layout.pki
        api = ReadingProxy(host, port, pki / "apiserver.crt", pki / "apiserver.key")
        where, _, number = site.temporal_address.partition(":")
        temporal = Proxy(where, int(number))
        await api.start()
        await temporal.start()
        kubeconfig = redirected(site.kubeconfig, directory / "fenced.kubeconfig", host, api.own_port)
        namespace = await site.namespace()
        audit = Audit(stack.audit_log, namespace)
        try:
            async with witness(stack.kubeconfig, namespace) as seen:
                fenced = await site.start_worker(
                    kubeconfig=kubeconfig, TEMPORAL_ADDRESS=f"127.0.0.1:{temporal.own_port}"
                )
                fence = Fence(site, namespace, api, temporal, audit, seen, fenced)
                try:
                    yield fence
                finally:
                    for worker in site.workers:
                        if worker.process.poll() is None:
                            worker.kill()
                    await fence.steer_pods(finalizers=None, labels={"holdfast.dev/kwok-stubborn": None})
        finally:
            await api.close()
            await temporal.close()


def bare(name: str, *, labels: dict[str, str] | None = None, finalizers: list[str] | None = None) -> dict[str, Any]:
    """Return a component that is a pod whose name is the same in each attempt."""
    made = pod(name, labels=labels)
    metadata = made["template"]["metadata"]
    del metadata["generateName"]
    metadata["name"] = name
    if finalizers:
        metadata["finalizers"] = finalizers
    return made


def creates_pod(method: str, path: str) -> bool:
    """Whether a request creates a pod."""
    return method == "POST" and path.endswith("/pods")


def deletes_owner(method: str, path: str) -> bool:
    """Whether a request deletes an attempt's owner."""
    return method == "DELETE" and "/attempts/" in path


def deletes_pod(method: str, path: str) -> bool:
    """Whether a request deletes a pod."""
    return method == "DELETE" and "/pods/" in path


def train(*components: dict[str, Any], **annotations: str) -> dict[str, Any]:
    """Return a workload whose waits leave time for what is slow here."""
    return appwrapper("train", *components, **{"admissionGracePeriodDuration": "300s", **annotations})


def streams(*components: dict[str, Any]) -> str:
    """Return the same as plain manifests, whose submission is replaced whole once it was interrupted."""
    documents = [component["template"] for component in components]
    settings = {"profile": "streams", "forcefulDeletionGracePeriod": "300s"}
    documents[0]["metadata"].setdefault("annotations", {}).update(
        {f"{names.GROUP}/{key}": value for key, value in settings.items()}
    )
    return yaml.safe_dump_all(documents)
