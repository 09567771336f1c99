"""A random life on the real cluster: what may happen to a workload, one thing after another, by a seed.

The same kinds of things as in `tests/policy/lives/script.py`, on real servers and in real time.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

from temporalio.service import RPCError

from holdfast import names
from holdfast.activities.kube.client import KubeError
from holdfast.local import Stack
from holdfast.model import Phase, Status
from tests.e2e.ground.proxy import Proxy, api_proxy
from tests.e2e.ground.site import appwrapper, job, open_site, until
from tests.e2e.ground.space import FOREIGN_FINALIZER, STUBBORN, Handle, Space, open_space

NAME = "train"
BUDGET = 3


class Life:
    """One workload, a worker behind a proxy, and everything that may befall them."""

    def __init__(self, space: Space, proxy: Proxy, proxied: Path, seed: int) -> None:
        self.space = space
        self.proxy, self.proxied = proxy, proxied
        self.random = Random(seed)
        self.handle: Handle | None = None
        self.done: list[str] = []

    async def begin(self) -> None:
        """Submit two Jobs of two pods each, one of which brings failed pods back by itself."""
        document = appwrapper(
            NAME,
            job("first", 2, backoffLimit=0),
            job("second", 2, backoffLimit=100),
            retryLimit=str(BUDGET),
            forcefulDeletionGracePeriodDuration="3s",
            failureGracePeriodDuration="2s",
        )
        self.handle = await self.space.submit(document)

    async def live(self, moves: int) -> None:
        """Let that many things happen."""
        for _ in range(moves):
            if await self._ended():
                return
            move = self.random.choice(MOVES)
            self.done.append(move.__name__)
            with contextlib.suppress(KubeError, RPCError):
                await move(self)
            await asyncio.sleep(self.random.choice((0.0, 0.3, 1.0, 2.5)))

    async def end(self) -> Status:
        """Put everything right, see the workload come to rest, and have it succeed or cancel it."""
        assert self.handle is not None
        await self.heal()
        if all(worker.process.poll() is not None for worker in self.space.site.workers):
            self._launch()
        await self._let_go()
        if not await self._ended():
            await self._signal(names.SIGNAL_RESUME)
        await until(self._rests, 90, f"{self.handle.id} comes to rest")
        if not await self._ended():
            if self.random.random() < 0.5:
                # What befell it last may still bring new pods.
                await until(self._completes, 120, f"{self.handle.id} ends, its pods completing")
            else:
                await self._signal(names.SIGNAL_CANCEL)
        return await self.space.ended(self.handle)

    # --- what may happen

    async def a_pod_fails(self) -> None:
        await self.space.fail_pod(NAME, self.random.choice((1, 137))) if await self._running() else None

    async def a_pod_is_deleted(self) -> None:
        if pods := await self.space.pods(NAME):
            await self.space.delete("v1", "Pod", self._pick(pods)["metadata"]["name"])

    async def a_job_is_deleted(self) -> None:
        if self.random.random() < 0.5:
            jobs = await self.space.site.objects("batch/v1", "Job", self.space.namespace)
            if jobs:
                await self.space.delete("batch/v1", "Job", self._pick(jobs)["metadata"]["name"])

    async def a_pod_completes(self) -> None:
        if pods := await self._running():
            pod = self._pick(pods)["metadata"]["name"]
            await self.space.site.annotate("Pod", pod, self.space.namespace, kwok_complete="0s")

    async def a_pod_is_held(self) -> None:
        if pods := await self._running():
            await self.space.finalize("v1", "Pod", self._pick(pods)["metadata"]["name"], FOREIGN_FINALIZER)

    async def a_pod_will_not_go(self) -> None:
        if pods := await self._running():
            name = self._pick(pods)["metadata"]["name"]
            await self.space.patch("v1", "Pod", name, {"metadata": {"labels": STUBBORN}})

    async def what_is_held_is_let_go(self) -> None:
        await self._let_go()

    async def it_is_suspended(self) -> None:
        await self._signal(self.random.choice((names.SIGNAL_SUSPEND, names.SIGNAL_PREEMPT)))

    async def it_is_resumed(self) -> None:
        await self._signal(names.SIGNAL_RESUME)

    async def somebody_retries(self) -> None:
        await self._signal(names.SIGNAL_RETRY)

    async def the_worker_is_killed(self) -> None:
        for worker in self.space.site.workers:
            if worker.process.poll() is None:
                worker.kill()
        self._launch()

    async def the_api_server_is_away(self) -> None:
        if self.random.random() < 0.5:
            self.proxy.black_hole()
        else:
            await self.proxy.refuse()
        await asyncio.sleep(self.random.choice((1.0, 3.0, 6.0)))
        await self.heal()

    async def nothing_happens(self) -> None:
        await asyncio.sleep(3)

    # --- below

    async def heal(self) -> None:
        await self.proxy.heal(lose=self.random.random() < 0.5)

    def _launch(self) -> None:
        self.space.site.launch(kubeconfig=self.proxied)

    def _pick(self, things: list[dict[str, Any]]) -> dict[str, Any]:
        return self.random.choice(sorted(things, key=lambda one: one["metadata"]["name"]))

    async def _running(self) -> list[dict[str, Any]]:
        pods = await self.space.pods(NAME)
        return [
            one
            for one in pods
            if one["status"].get("phase") == "Running" and "deletionTimestamp" not in one["metadata"]
        ]

    async def _let_go(self) -> None:
        for pod in await self.space.pods(NAME):
            with contextlib.suppress(KubeError):
                name = pod["metadata"]["name"]
                await self.space.finalize("v1", "Pod", name)
                await self.space.patch("v1", "Pod", name, {"metadata": {"labels": dict.fromkeys(STUBBORN)}})

    async def _signal(self, signal: str) -> None:
        assert self.handle is not None
        with contextlib.suppress(RPCError):  # It has ended.
            await self.handle.signal(signal, "by chance")

    async def _ended(self) -> bool:
        assert self.handle is not None
        description = await self.handle.describe()
        return description.close_time is not None

    async def _completes(self) -> bool:
        with contextlib.suppress(KubeError):
            await self.space.complete(NAME)
        await asyncio.sleep(0.5)
        return await self._ended()

    async def _rests(self) -> bool:
        assert self.handle is not None
        if await self._ended():
            return True
        with contextlib.suppress(RPCError):
            status = await self.space.site.status(self.handle)
            # Signalled to resume, it does not stay suspended; finished, it goes on to its end.
            return status.phase is Phase.RUNNING and status.pods.ready == status.pods.expected
        return False


MOVES: tuple[Callable[[Life], Awaitable[None]], ...] = (
    Life.a_pod_fails,
    Life.a_pod_fails,
    Life.a_pod_is_deleted,
    Life.a_job_is_deleted,
    Life.a_pod_completes,
    Life.a_pod_is_held,
    Life.a_pod_will_not_go,
    Life.what_is_held_is_let_go,
    Life.it_is_suspended,
    Life.it_is_resumed,
    Life.it_is_resumed,
    Life.somebody_retries,
    Life.the_worker_is_killed,
    Life.the_worker_is_killed,
    Life.the_api_server_is_away,
    Life.nothing_happens,
    Life.nothing_happens,
)
"""What is likelier is here twice."""


@asynccontextmanager
async def open_life(stack: Stack, directory: Path, seed: int) -> AsyncIterator[Life]:
    """Open a stage for a random life."""
    async with (
        open_site(stack, directory, prefix="r") as site,
        api_proxy(site.kubeconfig, directory) as (proxy, proxied),
    ):
        await site.start_worker(kubeconfig=proxied)
        async with open_space(site) as space:
            yield Life(space, proxy, proxied, seed)
