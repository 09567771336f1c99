"""A scene for crash tests: one workload, a worker behind a proxy, and witnesses of everything that happens to it."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client, WorkflowHandle
from temporalio.service import RPCError

from holdfast import names
from holdfast.activities.kube.client import Conflict, NotFound
from holdfast.local import Stack
from holdfast.model import OperationKind, Status
from tests.e2e.ground.proxy import Proxy, api_proxy
from tests.e2e.ground.site import Site, Worker, appwrapper, free_port, open_site, until
from tests.e2e.witness.audit import Audit, Witness, check_history, failures_in, witness

_PARTS = {OperationKind.OBSERVE, OperationKind.REMOVE}
"""What a reset does in one activity."""


@dataclass
class Scene:
    """What a crash test works with."""

    site: Site
    namespace: str
    proxy: Proxy
    proxied: Path
    audit: Audit
    witness: Witness
    worker: Worker
    killed: datetime | None = None
    handles: list[WorkflowHandle[Any, Status]] = field(default_factory=list)
    told: list[str] = field(default_factory=list)

    @property
    def handle(self) -> WorkflowHandle[Any, Status]:
        return self.handles[0]

    async def submit(self, *components: dict[str, Any], name: str = "train", **annotations: str) -> None:
        workload = self.site.read(appwrapper(name, *components, **annotations), self.namespace)
        self.handles.append(await self.site.submit(workload))

    async def reach(self, phase: str, seconds: float = 180, attempt: int | None = None) -> Status:
        return await self.site.reach(self.handle, phase, seconds, attempt)

    async def status(self) -> Status:
        return await self.site.status(self.handle)

    async def until_status(self, holds: Callable[[Status], bool], seconds: float, what: str) -> Status:
        """Wait until a worker gives a status that fits."""
        last: list[Status] = []

        async def check() -> bool:
            with contextlib.suppress(RPCError):
                last[:] = [await self.status()]
                return holds(last[0])
            return False

        try:
            await until(check, seconds, what)
        except AssertionError as error:
            raise AssertionError(f"{error}; last: {last[0].model_dump_json(indent=1) if last else None}") from None
        return last[0]

    async def unhealthy(self, seconds: float = 60) -> Status:
        """Wait until the workload knows that it is unhealthy."""
        return await self.until_status(
            lambda status: any(each.type == "Unhealthy" and each.status for each in status.conditions),
            seconds,
            "it knows that it is unhealthy",
        )

    async def doing(self, activity: str, seconds: float = 90) -> None:
        """Wait until an activity is under way on some worker."""

        async def check() -> bool:
            pending = (await self.handle.describe()).raw_description.pending_activities
            self.told.extend(one.last_failure.message for one in pending if one.last_failure.message)
            meant = {activity, OperationKind.RESET} if activity in _PARTS else {activity}
            return any(one.activity_type.name in meant and one.HasField("last_started_time") for one in pending)

        await until(check, seconds, f"{activity} is under way")

    # --- crashes

    async def crash(self, *, proxied: bool = False) -> None:
        """Kill the worker with -9, and start another at once; it need not be ready yet."""
        self.worker.kill()
        self.killed = datetime.now(UTC)
        self.worker = self.site.launch(kubeconfig=self.proxied if proxied else None)

    async def kill_at(self, wanted: Callable[[Any], bool], what: str, seconds: float = 120) -> None:
        """Kill the worker as soon as a request of that sort is done, and start another at once."""
        await self.audit.until(lambda each: each.worker and wanted(each), seconds, what)
        await self.crash()

    async def moved_on(self) -> None:
        """Wait until another worker has asked something for this workload, and say how long that took."""
        killed = self.killed
        assert killed is not None
        await self.site.ready(self.worker)
        # What the killed one had under way still comes in for a moment.
        since = max(killed + timedelta(seconds=0.5), self.worker.ready_since())
        found = await self.audit.until(
            lambda each: each.worker and each.received > since,
            120,
            "another worker has gone on",
        )
        took = (found.received - killed).total_seconds()
        up = (self.worker.ready_since() - killed).total_seconds()
        print(f"MEASURED moved on {took:.1f} s after the kill; the next worker was ready after {up:.1f} s")

    # --- the cluster

    async def pods(self) -> list[dict[str, Any]]:
        return await self.site.pods(self.namespace)

    async def steer(self, kind: str, name: str, patch: dict[str, Any], api_version: str = "v1") -> None:
        """Change an object's metadata."""
        while True:
            found = await self.site.kube.get(api_version, kind, name, self.namespace)
            with contextlib.suppress(Conflict):
                await self.site.kube.patch(
                    api_version, kind, name, self.namespace, uid=found["metadata"]["uid"], patch={"metadata": patch}
                )
                return

    async def steer_pods(self, **metadata: Any) -> None:
        for pod in await self.pods():
            with contextlib.suppress(NotFound):
                await self.steer("Pod", pod["metadata"]["name"], metadata)

    async def fail(self, index: int = 0, exit_code: int = 1) -> str:
        return await self.site.fail_pod(self.namespace, index, exit_code)

    async def complete(self) -> None:
        """Have all running pods succeed."""
        await self.steer_pods(annotations={"holdfast.dev/kwok-complete": "0s"})

    async def gone(self, seconds: float = 120) -> None:
        await until(lambda: self.site.gone(self.namespace), seconds, "nothing of it is left")

    # --- the end

    async def finish(self, phase: str = "Succeeded", restarts: int = 0, executions: int | None = None) -> Status:
        """Have the workload end (completing or cancelling it), and check everything that was witnessed."""
        if phase == "Cancelled":
            await self.handle.signal(names.SIGNAL_CANCEL, "the test is over")
        elif phase == "Succeeded":
            await self.complete()
        status = await asyncio.wait_for(self.handle.result(), 180)
        assert (status.phase, status.restarts) == (phase, restarts), status.model_dump_json(indent=1)
        if executions is not None:
            assert (status.executions, status.attempt) == (executions, executions)
        await self.gone()
        await self.check()
        return status

    async def check(self) -> list[HistoryEvent]:
        """Check what was witnessed: no duplicate, no overlap, no blind deletion, a history one can read."""
        self.witness.check()
        self.audit.check_deletions()
        created = self.audit.created()
        attempts = [one for one in created if one.startswith("attempts/")]
        assert len(set(attempts)) == len(attempts), created
        events = await check_history(self.handle)
        tries = max(each.activity_task_started_event_attributes.attempt for each in events)
        told = sorted({*failures_in(events), *self.told})
        print(f"MEASURED {len(events)} events, at most {tries} tries; failures told: {told}")
        return events


@asynccontextmanager
async def open_scene(stack: Stack, directory: Path, *, temporal_address: str = "") -> AsyncIterator[Scene]:
    """Open a site, a namespace in it, witnesses, and a worker behind a proxy."""
    async with (
        open_site(stack, directory, temporal_address=temporal_address, prefix="c") as site,
        api_proxy(site.kubeconfig, directory) as (proxy, proxied),
    ):
        namespace = await site.namespace()
        audit = Audit(stack.audit_log, namespace)
        async with witness(stack.kubeconfig, namespace) as seen:
            worker = await site.start_worker(kubeconfig=proxied)
            scene = Scene(site, namespace, proxy, proxied, audit, seen, worker)
            try:
                yield scene
            finally:
                await _let_go(scene)


async def _let_go(scene: Scene) -> None:
    """Leave no pod behind that would hold its namespace."""
    for worker in scene.site.workers:
        if worker.process.poll() is None:
            worker.kill()
    with contextlib.suppress(NotFound):
        await scene.steer_pods(finalizers=None, labels={"holdfast.dev/kwok-stubborn": None})


def pod(name: str = "solo", *, labels: dict[str, str] | None = None, **annotations: str) -> dict[str, Any]:
    """Return an AppWrapper component wrapping a bare Pod on a fake node; nothing replaces it when it fails.

    Each attempt's has a name of its own: KWOK, when it lags, deletes a pod by name although it is another by then.
    """
    metadata = {
        "generateName": f"{name}-",
        "labels": labels or {},
        "annotations": {f"holdfast.dev/{key.replace('_', '-')}": value for key, value in annotations.items()},
    }
    spec = {
        "restartPolicy": "Never",
        "nodeSelector": {"holdfast.dev/node": "fake"},
        "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "main", "image": "example.com/train:1"}],
    }
    return {"template": {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}}


@asynccontextmanager
async def own_temporal(stack: Stack, directory: Path, *settings: str) -> AsyncIterator[OwnTemporal]:
    """Run a Temporal server of the test's own, with dynamic settings (`name=value`)."""
    temporal = OwnTemporal(stack, directory, settings)
    await temporal.start()
    try:
        yield temporal
    finally:
        temporal.kill()


class OwnTemporal:
    """A Temporal server of the test's own, that can be killed and started again on the same data."""

    def __init__(self, stack: Stack, directory: Path, settings: Sequence[str] = ()) -> None:
        self._program = stack.binary("temporal")
        self._settings = [f"--dynamic-config-value={setting}" for setting in settings]
        self._directory = directory
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def launch(self) -> None:
        """Start it, without waiting for it."""
        command = [
            str(self._program),
            "server",
            "start-dev",
            "--ip=127.0.0.1",
            f"--port={self.port}",
            "--headless",
            f"--db-filename={self._directory / 'temporal.sqlite'}",
            "--log-level=error",
            *self._settings,
        ]
        with (self._directory / "temporal.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    async def start(self) -> None:
        """Start it, and wait until it answers."""
        self.launch()
        launches = 1

        async def answers() -> bool:
            nonlocal launches
            assert self._process is not None
            if self._process.poll() is not None:
                # One of the ports it takes for its own parts has just been taken by another.
                assert launches < 4, (self._directory / "temporal.log").read_text()[-2000:]
                launches += 1
                self.launch()
            try:
                return await (await Client.connect(self.address)).service_client.check_health()
            except (RPCError, RuntimeError):
                return False

        begun = time.monotonic()
        await until(answers, 60, "Temporal answers")
        print(f"MEASURED Temporal answers after {time.monotonic() - begun:.1f} s")

    def kill(self) -> None:
        """Kill it with -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
