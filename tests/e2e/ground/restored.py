"""A scene for restored clusters: several workloads on a stack whose etcd or Temporal is put back to an earlier time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from temporalio.client import WorkflowHandle
from temporalio.service import RPCError

from holdfast import names
from holdfast.activities.kube.client import Conflict, NotFound
from holdfast.local import Stack
from holdfast.model import Status
from tests.e2e.ground.site import Site, Worker, appwrapper, open_site, until
from tests.e2e.witness.audit import Audit, Request

Part = Literal["etcd", "temporal"]
SNAPSHOT = ".db"
MADE_AND_REMOVED = frozenset({"pods", "jobs", "attempts", "anchors"})


@dataclass
class Restored:
    """What a test works with. A component is named like its workload, so that a request tells whose it is."""

    site: Site
    namespace: str
    audit: Audit
    worker: Worker
    handles: dict[str, WorkflowHandle[Any, Status]] = field(default_factory=dict[str, WorkflowHandle[Any, Status]])
    since: datetime | None = None
    """When the older state was put in the place of the present one."""

    # --- workloads

    async def submit(self, name: str, *components: dict[str, Any]) -> None:
        document = appwrapper(name, *components, failureGracePeriodDuration="1s", retryPausePeriodDuration="0s")
        self.handles[name] = await self.site.submit(self.site.read(document, self.namespace))

    async def reach(self, name: str, phase: str, attempt: int | None = None, seconds: float = 60) -> Status:
        """Wait until a workload is in a phase (of an attempt)."""
        last: list[Status] = []

        async def check() -> bool:
            with contextlib.suppress(RPCError):
                last[:] = [await self.site.status(self.handles[name])]
                return last[0].phase == phase and attempt in {None, last[0].attempt}
            return False

        try:
            await until(check, seconds, f"{name} is {phase}")
        except AssertionError as error:
            now = (await self.site.explain(self.handles[name])).now if last else ""
            raise AssertionError(f"{error}; it is {_described(last[0] if last else None)}; now: {now}") from None
        return last[0]

    async def all_running(self, *wanted: str, attempt: int = 1) -> None:
        await asyncio.gather(*(self.reach(name, "Running", attempt) for name in wanted))

    async def signal(self, name: str, signal: str) -> None:
        await self.handles[name].signal(signal, "a person has looked at it")

    async def ended(self, name: str, phase: str, seconds: float = 60) -> None:
        try:
            status = await asyncio.wait_for(self.handles[name].result(), seconds)
        except TimeoutError:
            status = await self.site.status(self.handles[name])
            raise AssertionError(f"{name} has not ended: {_described(status)}") from None
        assert status.phase == phase, f"{name}: {_described(status)}"

    async def held(self, name: str, *words: str, seconds: float = 60) -> Status:
        """Wait until nothing is done about a workload but to say why; return the status that says it."""
        status = await self.reach(name, "Pending", seconds=seconds)
        assert status.reason == "Held", f"{name}: {_described(status)}"
        for word in words:
            assert word in status.message, f"{name}: {word!r} is not in {status.message!r}"
        explanation = await self.site.explain(self.handles[name])
        assert "retry" in explanation.model_dump_json(), "it says what would unblock it"
        assert all(budget.used == 0 or name in CHARGED for budget in status.budgets), status.budgets
        return status

    # --- the cluster

    async def living(self, name: str) -> dict[int, set[str]]:
        """Return the uids of a workload's pods that are not being deleted, by attempt."""
        found: dict[int, set[str]] = {}
        for pod in await self.site.pods(self.namespace):
            metadata = pod["metadata"]
            if metadata["annotations"].get(names.ANNOTATION_WORKLOAD) == name and "deletionTimestamp" not in metadata:
                found.setdefault(int(metadata["labels"][names.LABEL_ATTEMPT]), set()).add(metadata["uid"])
        return found

    async def told(self, name: str) -> dict[str, Any]:
        """Return the status that a workload's anchor shows, or nothing if there is no anchor."""
        anchor = await self.site.kube.find(names.API_VERSION, names.ANCHOR_KIND, name, self.namespace)
        return (anchor or {}).get("status") or {}

    async def steer(self, name: str, **annotations: str) -> None:
        """Set KWOK's annotations on a workload's pods."""
        for attempt in (await self.living(name)).values():
            for pod in await self.site.pods(self.namespace):
                if pod["metadata"]["uid"] in attempt:
                    with contextlib.suppress(NotFound):  # Once one has failed, its controller may delete the others.
                        await self.site.annotate("Pod", pod["metadata"]["name"], self.namespace, **annotations)

    def done_to(self, name: str) -> list[Request]:
        """Return what workers have made and deleted of a workload since the restoration."""
        since = self.since
        assert since is not None
        return [
            each
            for each in self.audit.worker_writes()
            if each.received >= since
            and each.verb in {"create", "delete"}
            and each.resource in MADE_AND_REMOVED
            and (each.name == name or each.name.startswith(f"{name}-"))
        ]

    def assert_untouched(self, *wanted: str) -> None:
        """Nothing of these workloads was made or deleted by a worker since the restoration."""
        for name in wanted:
            done = self.done_to(name)
            assert not done, f"{name}: {[str(each) for each in done]}"

    # --- going back

    async def copy(self, part: Part, directory: Path) -> Path:
        """Copy what Kubernetes or Temporal remembers."""
        target = directory / f"copy-of-{part}"
        await asyncio.to_thread(self.site.stack.copy_data, part, target)
        await self.site.ready(self.worker)
        return target

    async def snapshot(self, directory: Path) -> Path:
        """Take a snapshot of etcd, by etcd's own means, while all goes on."""
        target = directory / f"snapshot{SNAPSHOT}"
        await asyncio.to_thread(self.site.stack.take_snapshot, target)
        return target

    async def go_back(self, part: Part, copy: Path, *, anew: bool = True, raised_by: int = 0) -> None:
        """Put an earlier Kubernetes or Temporal in the place of the present one; begin with a new worker, or keep it.

        After Temporal it must be a new one: workflows in the old one's cache know events that Temporal does not.
        """
        if anew:
            self.worker.kill()
        self.since = datetime.now(UTC)
        if copy.suffix == SNAPSHOT:
            await asyncio.to_thread(self.site.stack.restore_snapshot, copy, raised_by=raised_by)
        else:
            await asyncio.to_thread(self.site.stack.restore_data, part, copy)
        if anew:
            self.worker = await self.site.start_worker()
        await self.site.ready(self.worker)


CHARGED = frozenset({"reset"})
"""Workloads that a test has had reset: they are charged for that, and for nothing else."""


@asynccontextmanager
async def open_restored(stack: Stack, directory: Path) -> AsyncIterator[Restored]:
    """Open a site with one worker and a namespace."""
    async with open_site(stack, directory, prefix="r") as site:
        namespace = await site.namespace()
        worker = await site.start_worker()
        scene = Restored(site, namespace, Audit(stack.audit_log, namespace), worker)
        try:
            yield scene
        finally:
            scene.worker.kill()
            for handle in scene.handles.values():
                with contextlib.suppress(RPCError):
                    await handle.terminate("the test is over")
            with contextlib.suppress(NotFound, Conflict):
                for pod in await site.pods(namespace):
                    await site.kube.delete(
                        "v1", "Pod", pod["metadata"]["name"], namespace, uid=pod["metadata"]["uid"], grace_period=0
                    )


async def watched_for(scene: Restored, wanted: tuple[str, ...], seconds: float) -> None:
    """Look for a while that no workload ever has living pods of two attempts."""
    clock = asyncio.get_running_loop().time
    end = clock() + seconds
    while clock() < end:
        for name in wanted:
            attempts = await scene.living(name)
            assert len(attempts) <= 1, f"{name} runs twice: {attempts}"
        await asyncio.sleep(0.5)


async def together(*works: Coroutine[Any, Any, Any]) -> list[Any]:
    """Do all of it at once, to the end, and say all that went wrong."""
    done = await asyncio.gather(*works, return_exceptions=True)
    wrong = [each for each in done if isinstance(each, BaseException)]
    if wrong:
        raise AssertionError("\n".join(str(each) for each in wrong))
    return done


def _described(status: Status | None) -> str:
    if status is None:
        return "no status"
    causes = [f"{each.attempt} {each.phase} {each.reason}: {each.message}" for each in status.causes]
    return f"{status.phase}, {status.reason}, attempt {status.attempt}: {status.message}; {causes}"
