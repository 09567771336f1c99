"""What 200 workloads live while processes die around them, and how each ends if nothing is lost: drawn from a seed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

import aiohttp
import yaml
from temporalio.client import WorkflowFailureError
from temporalio.service import RPCError, RPCStatusCode

from holdfast import formats, names
from holdfast.activities.kube.client import KubeError, NotFound
from holdfast.client import Holdfast
from holdfast.client.summary import Summary
from holdfast.errors import HoldfastError, NotReachable
from holdfast.model import Status, Workload
from holdfast.model.entities.queue import Queue
from tests.e2e.crash.scene import pod
from tests.e2e.ground.site import Site, appwrapper, job
from tests.e2e.ground.space import Handle
from tests.e2e.nodes.test_real_node import job as real_job
from tests.store import BUCKET

QUEUE: Final = "chaos"
ROOM: Final = 10
"""How many pods the queue has room for."""
SETS: Final = 5
"""Data sets: many workloads share one, and some stage while others read."""
_PATIENT: Final = {
    "admissionGracePeriodDuration": "15m",
    "warmupGracePeriodDuration": "15m",
    "failureGracePeriodDuration": "2s",
    "retryPausePeriodDuration": "1s",
    "forcefulDeletionGracePeriodDuration": "10m",
    "successTTLDuration": "0s",
    "retryLimit": "3",
}
"""No wait runs out for lack of a server: what is charged to a budget is what the seed has planned."""
_TROUBLE = (RPCError, KubeError, NotReachable, aiohttp.ClientError, TimeoutError, OSError)


@dataclass(frozen=True)
class Life:
    """One workload: what it is, how it is driven, and how it must end."""

    name: str
    workload: Workload
    drive: Callable[[Driver, Life], Awaitable[None]]
    phase: str
    restarts: int = 0
    delay: float = 0.0
    """Seconds from its beginning to what is done to it."""
    after: float = 0.0
    """Seconds until it is submitted."""


@dataclass
class Driver:
    """Does to workloads what was planned for them, however often it takes."""

    site: Site
    namespace: str
    holdfast: Holdfast
    board: dict[str, Summary] = field(default_factory=dict[str, Summary])
    """Each workload, as Temporal's list had it last."""
    most: int = 0
    """How many pods of queued workloads were seen at once that had not ended."""

    async def look(self) -> None:
        """Renew the board, for as long as it is needed."""
        while True:
            try:
                async for one in self.holdfast.list(cluster=self.site.cluster, namespace=self.namespace):
                    self.board[one.name] = one
            except (*_TROUBLE, HoldfastError):  # Temporal passes on what its database says as it comes up.
                pass
            await asyncio.sleep(1.5)

    async def count(self) -> None:
        """Count the pods of queued workloads that have not ended, for as long as it is needed."""
        while True:
            try:
                pods = await self.site.pods(self.namespace)
            except _TROUBLE:
                pods = []
            alive = [
                one
                for one in pods
                if one["metadata"]["name"].startswith("queued-")
                and one["status"].get("phase") in {"Pending", "Running"}
            ]
            self.most = max(self.most, len(alive))
            await asyncio.sleep(1.0)

    async def lose_queue(self, queue: Queue, seconds: float) -> None:
        """After a while, end the queue's workflow by hand, and make the queue anew, which knows of nobody then."""
        await asyncio.sleep(seconds)
        handle = self.site.client.get_workflow_handle(queue.workflow_id)

        async def terminate() -> None:
            try:
                await handle.terminate("lost, as an operator might lose it")
            except RPCError as error:
                if error.status is not RPCStatusCode.NOT_FOUND:
                    raise  # Else a try has done it that was not answered.

        await self.insist(terminate)
        await self.insist(lambda: self.holdfast.apply_queue(queue), HoldfastError)
        print("          the queue was terminated and made anew", flush=True)

    async def insist(self, what: Callable[[], Awaitable[Any]], *more: type[Exception]) -> Any:
        """Do it until it was done, whatever trouble or `more` comes; what is done twice must be as good as once."""
        while True:
            try:
                return await what()
            except NotFound:
                raise
            except (*_TROUBLE, *more):
                await asyncio.sleep(1.0)

    async def ended(self, handle: Handle) -> Status | None:
        """Wait until a workload's workflow has ended; None if it ended without saying how."""
        while True:
            try:
                return await handle.result()
            except WorkflowFailureError as error:
                details = getattr(error.cause, "details", ())
                return Status.model_validate(details[0]) if details else None
            except RPCError:
                await asyncio.sleep(1.0)

    async def submit(self, life: Life) -> None:
        async def once() -> Any:
            return await self.holdfast.submit(life.workload)

        await self.insist(once)

    async def signal(self, life: Life, name: str, *given: Any) -> None:
        handle = self.site.client.get_workflow_handle(life.workload.workflow_id)
        await self.insist(lambda: handle.signal(name, args=list(given)))

    async def reaches(self, life: Life, phase: str, attempt: int = 0) -> None:
        """Wait until the list has it in a phase, of an attempt at least."""
        while True:
            found = self.board.get(life.name)
            if found is not None and found.phase == phase and found.attempt >= attempt:
                return
            await asyncio.sleep(0.5)

    async def mark(self, life: Life, **annotations: str) -> None:
        """Put annotations on one running pod of it, the same one however often it takes."""
        while True:
            pods = await self.insist(lambda: self.site.pods(self.namespace))
            own = [
                one
                for one in pods
                if one["metadata"].get("annotations", {}).get(names.ANNOTATION_WORKLOAD) == life.name
                and one["status"].get("phase") == "Running"
                and not one["metadata"].get("deletionTimestamp")
            ]
            if own:
                break
            await asyncio.sleep(1.0)
        name = own[0]["metadata"]["name"]
        try:
            await self.insist(lambda: self.site.annotate("Pod", name, self.namespace, **annotations))
        except NotFound:
            return  # It was marked by a try that was not answered, and has gone.


async def _by_itself(driver: Driver, life: Life) -> None:
    """It ends by itself."""


async def _fails_once(driver: Driver, life: Life) -> None:
    await driver.reaches(life, "Running", 1)
    await asyncio.sleep(life.delay)
    await driver.mark(life, kwok_fail="0s")
    await driver.reaches(life, "Running", 2)
    await driver.mark(life, kwok_complete="0s")


async def _fails_for_good(driver: Driver, life: Life) -> None:
    for attempt in (1, 2):
        await driver.reaches(life, "Running", attempt)
        await asyncio.sleep(life.delay)
        await driver.mark(life, kwok_fail="0s")


async def _is_suspended(driver: Driver, life: Life) -> None:
    await driver.reaches(life, "Running", 1)
    await asyncio.sleep(life.delay)
    await driver.signal(life, names.SIGNAL_PREEMPT, "its place is wanted")
    await driver.reaches(life, "Suspended")
    await driver.signal(life, names.SIGNAL_RESUME)
    await driver.reaches(life, "Running", 2)
    await driver.mark(life, kwok_complete="0s")


async def _is_cancelled(driver: Driver, life: Life) -> None:
    await asyncio.sleep(life.delay)
    await driver.signal(life, names.SIGNAL_CANCEL, "it is not wanted any more")


def drawn(rng: random.Random, site: Site, namespace: str, count: int, seconds: float, real: bool) -> list[Life]:
    """Return as many lives; the longest waits for two thirds of the time before something is done to it.

    Args:
        rng: what they are drawn from.
        site: whose cluster's name they bear.
        namespace: where they live.
        count: how many.
        seconds: for how long processes will be killed.
        real: whether some may run as real containers.
    """
    kinds = ["ends"] * 8 + ["once"] * 4 + ["good"] * 2 + ["suspended"] * 4 + ["cancelled"] * 2
    kinds += ["staged"] * 3 + ["queued"] * 5 + ["queued-preempted", "queued-cancelled"] + (["real"] if real else [])
    lives = list[Life]()
    for index in range(count):
        kind = kinds[index % len(kinds)]
        delay = rng.uniform(1, seconds * 2 / 3)
        life = _life(f"{kind}-{index:03}", kind, delay, site, namespace)
        # What passes a queue comes all the time, and in heaps.
        lives.append(replace(life, after=round(delay * 1.2, -1)) if life.workload.queued else life)
    rng.shuffle(lives)
    return lives


def data_set(number: int) -> str:
    """Return the setting `mounts` of a workload that reads a data set."""
    return f"[{{name: data, source: s3://{BUCKET}/set-{number % SETS}, path: /data}}]"


def _life(name: str, kind: str, delay: float, site: Site, namespace: str) -> Life:
    span = f"{delay:.0f}s"

    def read(component: dict[str, Any], overrides: dict[str, str] | None = None, **settings: str) -> Workload:
        text = yaml.safe_dump(appwrapper(name, component, **(_PATIENT | settings)))
        (found,) = formats.read(text, cluster=site.cluster, namespace=namespace, overrides=overrides)
        return found

    def queued(component: dict[str, Any]) -> Workload:
        return read(component).model_copy(update={"queue": QUEUE, "queued": True})

    match kind:
        case "staged":
            # Its data set has to be there before its Job is made; it comes all the time, as what is queued does.
            mounted = read(job(name, complete="20s"), {"mounts": data_set(int(name.rpartition("-")[2]))})
            return Life(name, mounted, _by_itself, "Succeeded", after=delay)
        case "ends":
            return Life(name, read(job(name, complete=span)), _by_itself, "Succeeded")
        case "real":
            component = real_job(f"sleep {delay:.0f}", 1)
            component["template"]["metadata"]["name"] = name
            return Life(name, read(component), _by_itself, "Succeeded")
        case "queued":
            return Life(name, queued(job(name, complete="20s")), _by_itself, "Succeeded")
        case "queued-preempted":
            # It lets go of its place, and has to ask for another one.
            return Life(name, queued(pod(name)), _is_suspended, "Succeeded", delay=delay / 20)
        case "queued-cancelled":
            # While it waits, or after it was let in.
            return Life(name, queued(pod(name)), _is_cancelled, "Cancelled", delay=delay / 5)
        case "once":
            return Life(name, read(pod(name)), _fails_once, "Succeeded", restarts=1, delay=delay)
        case "good":
            return Life(name, read(pod(name), retryLimit="1"), _fails_for_good, "Failed", restarts=1, delay=delay / 2)
        case "suspended":
            return Life(name, read(pod(name)), _is_suspended, "Succeeded", delay=delay)
        case _:
            return Life(name, read(pod(name)), _is_cancelled, "Cancelled", delay=delay)
