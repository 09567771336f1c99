"""Fifty workloads, each held in the middle of a phase, and how each is brought from there to its end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from temporalio.api.enums.v1 import EventType
from temporalio.service import RPCError

from holdfast import names
from holdfast.activities.kube.client import KubeError
from holdfast.model import Status
from tests.e2e.crash.scene import pod as fresh
from tests.e2e.ground.site import appwrapper, job, until
from tests.e2e.ground.space import PENDING, STUBBORN, Handle, Space, pod

QUEUE: Final = "upgrade"
ROOM: Final = 2
"""How many pods the queue has room for."""
COUNTS: Final = {
    "starting": 7,
    "running": 10,
    "unhealthy": 4,
    "removing": 5,
    "pausing": 5,
    "suspended": 5,
    "queued": 6,
    "cancelling": 5,
    "sentinel": 3,
}
LATE: Final = {"late": 5}
"""Those that the new release's workers begin, before the last release's take them over."""
_HOUR: Final = dict.fromkeys(
    (
        "admissionGracePeriodDuration",
        "warmupGracePeriodDuration",
        "failureGracePeriodDuration",
        "forcefulDeletionGracePeriodDuration",
        "retryPausePeriodDuration",
    ),
    "1h",
)
"""No wait runs out while the test lasts: what moves a workload is the test, or a fault."""
_AT_ONCE: Final = {"failureGracePeriodDuration": "0s"}


@dataclass
class Life:
    """One workload."""

    kind: str
    name: str
    handle: Handle
    held: tuple[str, int, int] = ("", 0, 0)
    """Its phase, its attempt and its restarts where it is held."""


def documents(counts: Mapping[str, int]) -> dict[str, list[dict[str, Any]]]:
    """Return the AppWrappers of each kind, as many as are counted."""
    return {kind: [_document(kind, f"{kind}-{index:02}") for index in range(n)] for kind, n in counts.items()}


def _document(kind: str, name: str) -> dict[str, Any]:
    match kind:
        case "starting":
            return appwrapper(name, job(name, labels=PENDING), **_HOUR)
        case "unhealthy":
            return appwrapper(name, pod(name), **_HOUR)
        case "removing" | "cancelling":
            pods = (pod(name), pod(f"{name}-stubborn", labels=STUBBORN))
            return appwrapper(name, *pods, **_HOUR | _AT_ONCE | {"retryPausePeriodDuration": "0s"})
        case "pausing":
            return appwrapper(name, pod(name), **_HOUR | _AT_ONCE)
        case "sentinel":
            quick = {"retryPausePeriodDuration": "0s", "retryLimit": "1000"}
            return appwrapper(name, fresh(name), **_HOUR | _AT_ONCE | quick)
        case _:
            made = appwrapper(name, job(name, pods=1), **_HOUR)
            if kind == "queued":
                made["metadata"]["annotations"]["holdfast.dev/queue"] = QUEUE
            return made


async def where(space: Space, life: Life) -> tuple[str, int, int]:
    """Return a workload's phase, attempt and restarts, as a worker tells them."""
    status = await space.site.status(life.handle)
    return (str(status.phase), status.attempt, status.restarts)


async def hold(space: Space, life: Life) -> None:
    """Bring a workload into the middle of its phase, and note where that is."""
    match life.kind:
        case "starting":
            await space.reach(life.handle, "Resuming", 1)
        case "unhealthy":
            await space.reach(life.handle, "Running", 1)
            await space.fail_pod(life.name)
            await space.unhealthy(life.handle)
        case "removing":
            await _reset(space, life)
        case "pausing":
            await _reset(space, life)
            await _is(space, life, lambda status: not status.pods.expected or "paus" in status.message)
        case "suspended":
            await space.reach(life.handle, "Running", 1)
            await life.handle.signal(names.SIGNAL_SUSPEND, "for now")
            await space.reach(life.handle, "Suspended")
        case "cancelling":
            await space.reach(life.handle, "Running", 1)
            await life.handle.signal(names.SIGNAL_CANCEL, "not wanted")
            await space.reach(life.handle, "Terminating")
        case "queued":
            await _is(space, life, lambda status: status.phase in {"Pending", "Running"})
        case _:
            await space.reach(life.handle, "Running", 1)
    life.held = await where(space, life)


async def _reset(space: Space, life: Life) -> None:
    await space.reach(life.handle, "Running", 1)
    await space.site.annotate("Pod", life.name, space.namespace, kwok_fail="0s")
    await space.reach(life.handle, "Resetting", 1)


async def _is(space: Space, life: Life, holds: Callable[[Status], bool]) -> None:
    last: list[Status] = []

    async def check() -> bool:
        last[:] = [await space.site.status(life.handle)]
        return holds(last[0])

    await until(check, 60, lambda: f"{life.name} is {life.kind}; it is {last}", pause=0.2)


async def end(space: Space, life: Life) -> Status:
    """Take away what holds a workload, and return the status with which it ends."""
    match life.kind:
        case "starting" | "unhealthy" | "sentinel":
            await life.handle.signal(names.SIGNAL_CANCEL, "the test is over")
        case "cancelling":
            await _soften(space, life)
        case "removing":
            await _soften(space, life)
            await space.reach(life.handle, "Running", 2)
            await _soften(space, life)
            await space.complete(life.name)
        case "pausing":
            await life.handle.signal(names.SIGNAL_RETRY)
            await space.reach(life.handle, "Running", 2)
            await space.complete(life.name)
        case "suspended":
            await life.handle.signal(names.SIGNAL_RESUME)
            await space.reach(life.handle, "Running", 2)
            await space.complete(life.name)
        case _:
            await space.reach(life.handle, "Running", 1)
            await space.complete(life.name)
    return await space.ended(life.handle)


async def _soften(space: Space, life: Life) -> None:
    """Let a pod go that ignores its deletion."""
    await space.patch("v1", "Pod", f"{life.name}-stubborn", {"metadata": {"labels": dict.fromkeys(STUBBORN)}})


def ends_as(life: Life) -> tuple[str, int]:
    """Return the phase and the restarts of a workload's end, if nothing is lost."""
    cancelled = life.kind in {"starting", "unhealthy", "cancelling"}
    # Its one reset may be counted as it begins (0.1), or as it is proven.
    reset = life.kind in {"removing", "pausing"}
    return ("Cancelled" if cancelled else "Succeeded", int(reset))


class Sentinels:
    """Workloads whose pod fails as soon as it runs, one a moment: how long it takes until each is told."""

    def __init__(self, space: Space, lives: list[Life]) -> None:
        self._space = space
        self._lives = lives
        self.failed: dict[str, list[datetime]] = {life.name: [] for life in lives}
        """When each one's pods were made to fail."""
        self._tasks = [asyncio.create_task(self._fail(life)) for life in lives]

    @property
    def count(self) -> int:
        """How many failures there were."""
        return sum(map(len, self.failed.values()))

    async def more(self, count: int = 6) -> None:
        """Wait for as many further failures."""
        wanted = self.count + count

        async def reached() -> bool:
            for task in self._tasks:
                if task.done():
                    task.result()
            return self.count >= wanted

        await until(reached, 120, f"{count} pods of sentinels fail", pause=0.2)

    async def stop(self) -> None:
        """Fail no more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _fail(self, life: Life) -> None:
        done: set[str] = set()
        while True:
            with contextlib.suppress(KubeError):
                for each in await self._space.pods(life.name):
                    name = each["metadata"]["name"]
                    alive = not each["metadata"].get("deletionTimestamp")
                    if alive and each["status"].get("phase") == "Running" and name not in done:
                        await self._space.site.annotate("Pod", name, self._space.namespace, kwok_fail="0s")
                        self.failed[life.name].append(datetime.now(UTC))
                        done.add(name)
            await asyncio.sleep(0.2)

    async def delays(self) -> list[float]:
        """Return for each failure the seconds until its workload was told, by the workload's history."""
        found: list[float] = []
        for life in self._lives:
            failed, told = self.failed[life.name], list[datetime]()

            async def last_is_told(
                life: Life = life, failed: list[datetime] = failed, told: list[datetime] = told
            ) -> bool:
                with contextlib.suppress(RPCError):
                    told[:] = await _told(life)
                return not failed or (bool(told) and max(told) > failed[-1])

            await until(last_is_told, 120, f"{life.name} is told of its last failure", pause=0.5)
            found += [min(one for one in told if one > at).timestamp() - at.timestamp() for at in failed]
        return found


async def _told(life: Life) -> list[datetime]:
    """Return when a workload was told of something."""
    return [
        event.event_time.ToDatetime(tzinfo=UTC)
        for event in (await life.handle.fetch_history()).events
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED
    ]
