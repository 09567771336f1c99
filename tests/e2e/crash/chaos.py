"""Chaos: 200 workloads and entities beside them, while random processes of the whole stack are killed with -9.

    make test-chaos                             a new seed, ten minutes
    make test-chaos SEED=17                     the same lives, the same kills at the same times
    make test-chaos ARGS="--minutes 2 --workloads 50"

Whatever dies is brought back, as its supervisor would. At the end each workload must have ended as its policy says,
with no restart that was not planned; by the API server's audit log no two attempts of one were there together, nothing
was made twice, nothing was deleted but by its uid; and nothing is left. It prints the seed, the kills and the verdict.
What the servers do in between is not repeated by a seed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import secrets
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from temporalio.runtime import LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter
from temporalio.service import RPCError

from holdfast import names
from holdfast.client import Holdfast
from holdfast.client.connection import Place
from holdfast.local import Stack, StackError
from holdfast.model import Status
from holdfast.model.entities.queue import Queue
from tests.e2e.crash import chaos_entities
from tests.e2e.crash.chaos_lives import QUEUE, ROOM, Driver, Life, drawn
from tests.e2e.ground.held import real_node
from tests.e2e.ground.site import Site, Worker, open_site
from tests.e2e.witness import ledger
from tests.e2e.witness.invariants import check_decisions
from tests.e2e.witness.law import WORKER, judge
from tests.e2e.witness.ledger import Ledger

WORKERS = 2
SPARED = {"kwok", "temporal-ui", "containerd"}
"""What is no part of the control plane: what plays the nodes and their pods, and what nothing but people look at."""
_SETTLE = 900.0
"""Seconds after the last kill until everything must have ended."""


@dataclass
class Killer:
    """Kills processes by the numbers of a seed, and brings back whatever is not there."""

    stack: Stack
    site: Site
    rng: random.Random
    workers: dict[str, Worker] = field(default_factory=dict[str, Worker])
    settings: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    """Of each worker."""
    kills: list[tuple[float, str]] = field(default_factory=list[tuple[float, str]])
    begun: float = field(default_factory=time.monotonic)
    _over: bool = False

    @property
    def names(self) -> list[str]:
        """What may be killed."""
        return [*(name for name in self.stack.parts() if name not in SPARED), *sorted(self.workers)]

    async def kill(self, seconds: float) -> None:
        """Kill for as long: mostly one at a time, now and then two or three together."""
        while time.monotonic() - self.begun < seconds:
            together = self.rng.choice([1, 1, 1, 1, 1, 2, 2, 3])
            for name in self.rng.sample(self.names, together):
                await self._kill(name)
            await asyncio.sleep(self.rng.uniform(2.0, 6.0))

    async def _kill(self, name: str) -> None:
        worker = self.workers.get(name)
        if worker is not None:
            worker.kill()
        else:
            process = await asyncio.to_thread(self.stack.pid, name)
            if process is None:
                return  # It is being brought back.
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        at = time.monotonic() - self.begun
        self.kills.append((at, name))
        print(f"{at:6.1f} s  kill -9 {name}", flush=True)

    async def keep(self) -> None:
        """Bring back whatever is not there, in the order in which one needs the other, until all is over."""
        while not self._over:
            for name, worker in self.workers.items():
                if worker.process.poll() is not None:
                    self.workers[name] = self.site.launch(kubeconfig=None, **self.settings[name])
            for name in self.stack.parts():
                if await asyncio.to_thread(self.stack.pid, name) is None:
                    try:
                        await asyncio.to_thread(self.stack.start_part, name)
                    except StackError as error:
                        print(f"          {name} did not come back at once: {str(error).splitlines()[0]}", flush=True)
            await asyncio.sleep(0.3)

    def over(self) -> None:
        """Bring nothing back any more."""
        self._over = True


async def lives_through(driver: Driver, life: Life, turns: asyncio.Semaphore) -> list[str]:
    """Live one, and return what was wrong about its end."""
    await asyncio.sleep(life.after)
    async with turns:
        await driver.submit(life)
    driven = asyncio.create_task(_driven(driver, life))
    try:
        handle = driver.site.client.get_workflow_handle(life.workload.workflow_id, result_type=Status)
        status = await driver.ended(handle)
    finally:
        driven.cancel()
        await asyncio.gather(driven, return_exceptions=True)
    if status is None:
        return [f"{life.name}: its workflow ended without a status"]
    found = (str(status.phase), status.restarts)
    if found == (life.phase, life.restarts):
        return []
    told = "; ".join(f"{one.time:%H:%M:%S} {one.reason}: {one.message}" for one in status.causes)
    return [f"{life.name}: {found}, expected {(life.phase, life.restarts)}: {told}"]


async def _driven(driver: Driver, life: Life) -> None:
    await life.drive(driver, life)


def broken_by_log(known: Ledger, lives: Sequence[Life]) -> list[str]:
    """Return what the audit log says against us.

    The API server writes down a request as it answers it: of what it had in hand when it was killed the log may lack
    the end. What such a line would have shown is not held against anybody; what is shown is.
    """
    verdict = judge(known)
    print(f"law: {verdict.sentence()}")
    found = [
        f"two attempts at once: {life} was there when {reset.first} was asked for"
        for reset in verdict.resets
        for life in reset.beside()
        if life.gone is not None
    ]
    ours = [one for one in known.lives.values() if one.user == WORKER]
    made = Counter((one.workload, one.attempt, one.place[1], one.component, one.launch, one.copy) for one in ours)
    found += [f"made twice in one attempt: {key}" for key, count in made.items() if count > 1]
    for one in known.deletions:
        if one.user == WORKER and not (one.options.get("preconditions") or {}).get("uid"):
            found.append(f"deleted without a uid: {one}")
    if not verdict.resets:
        found.append("no reset is in the log: it shows nothing")
    uids = {one.workload for one in known.lives.values()}
    if len(uids) > len(lives):
        found.append(f"{len(uids)} workloads made something, and {len(lives)} were submitted")
    return found


async def left_behind(site: Site, namespace: str) -> list[str]:
    """Return what is left in the cluster of anything."""
    found = list[str]()
    for api_version, kind in (("v1", "Pod"), ("batch/v1", "Job"), (names.API_VERSION, names.ATTEMPT_KIND)):
        for one in await site.objects(api_version, kind, namespace, labels=names.LABEL_WORKLOAD_UID):
            found.append(f"left behind: {kind} {one['metadata']['name']}")
    return found


async def decided_alike(driver: Driver, lives: Sequence[Life]) -> list[str]:
    """Return of which workloads a decision failed, or came out otherwise when it was replayed."""
    found = list[str]()
    for life in lives:
        try:
            await check_decisions(driver.site.client.get_workflow_handle(life.workload.workflow_id))
        except AssertionError as error:
            found.append(f"{life.name}: {error}")
    return found


async def the_queue(driver: Driver) -> list[str]:
    """Return what is wrong about the queue: it was never too full, and it is empty."""
    found = list[str]()
    told = await driver.holdfast.queue(QUEUE).status()
    print(f"queue: {driver.most} of {ROOM} pods at once at most, {told.cycle} cycles", flush=True)
    if not 0 < driver.most <= ROOM:
        found.append(f"{driver.most} pods of queued workloads were there at once, and there is room for {ROOM}")
    if told.admitted or told.waiting:
        found.append(f"the queue is not empty: {told.admitted} let in, {told.waiting} wait")
    try:
        await check_decisions(driver.site.client.get_workflow_handle(told.queue.workflow_id))
    except AssertionError as error:
        found.append(f"the queue: {error}")
    return found


async def run(stack: Stack, directory: Path, seed: int, minutes: float, count: int) -> list[str]:
    """Live it, and return what is broken."""
    async with AsyncExitStack() as opened:
        site = await opened.enter_async_context(
            # An API server that is killed leaves lines out of its audit log, by which ledgers are judged.
            open_site(stack, directory, temporal_address=stack.temporal_address, prefix="x", judge=False)
        )
        if stack.state.real_node:
            await opened.enter_async_context(real_node(stack))
        rng = random.Random(seed)
        entities = await opened.enter_async_context(
            chaos_entities.open_entities(site, directory, random.Random(rng.random()))
        )
        return await _run(site, entities, rng, minutes * 60, count)


async def _run(
    site: Site, entities: chaos_entities.Entities, rng: random.Random, seconds: float, count: int
) -> list[str]:
    killer = Killer(site.stack, site, random.Random(rng.random()))
    for number in range(WORKERS):
        name = f"worker-{number + 1}"
        killer.settings[name] = await entities.settings()
        killer.workers[name] = await site.start_worker(kubeconfig=None, **killer.settings[name])
    namespace = await site.namespace()
    holdfast = Holdfast(site.client, Place(site.temporal_address, site.cluster), site.cluster)
    queue = Queue(name=QUEUE, cluster=site.cluster, quota={"pods": str(ROOM)})
    await holdfast.apply_queue(queue)
    driver = Driver(site, namespace, holdfast)
    await chaos_entities.start(entities, driver)
    lives = drawn(random.Random(rng.random()), site, namespace, count, seconds, site.stack.state.real_node)
    beside = chaos_entities.lives(entities, driver, seconds, random.Random(rng.random()))
    keeping = asyncio.create_task(killer.keep())
    losing = asyncio.create_task(driver.lose_queue(queue, seconds * 0.4))
    helping = [
        asyncio.create_task(driver.look()),
        asyncio.create_task(driver.count()),
        asyncio.create_task(entities.ask(driver, random.Random(rng.random()))),
    ]
    turns = asyncio.Semaphore(8)
    living = {life.name: asyncio.create_task(lives_through(driver, life, turns)) for life in lives}
    others = {name: asyncio.ensure_future(one()) for name, one in beside.items()}
    killer.begun = time.monotonic()
    try:
        await killer.kill(seconds)
        print(f"{len(killer.kills)} kills in {seconds:.0f} s; all is brought back, and all is to end", flush=True)
        done, pending = await asyncio.wait([*living.values(), *others.values()], timeout=_SETTLE)
        took = max(0.0, time.monotonic() - killer.begun - seconds)
        killer.over()
        await keeping
        print(
            f"{len(done)} of {len(living) + len(others)} ended, the last {took:.0f} s after the last kill", flush=True
        )
        broken = list[str]()
        for life, task in zip(lives, living.values(), strict=True):
            if task in pending:
                broken.append(f"{life.name}: it has not ended: {await _told(driver, life)}")
            else:
                broken += _outcome(life.name, task)
        for name, task in others.items():
            broken += [f"{name}: it has not ended"] if task in pending else _outcome(name, task)
        if not pending:
            broken += await left_behind(site, namespace)
        broken += await decided_alike(driver, lives)
        broken += await the_queue(driver)
        broken += await entities.broken()
        if not losing.done() or losing.exception() is not None:
            broken.append("the queue was not terminated and made anew")
    finally:
        tasks = (keeping, losing, *helping, *living.values(), *others.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    needle = f'"namespace":"{namespace}"'.encode()
    known = ledger.read(line for line in ledger.lines_of(site.stack.audit_log) if needle in line)
    broken += broken_by_log(known, lives)
    counts = Counter(name for _, name in killer.kills)
    print("killed: " + ", ".join(f"{name} {counts[name]}" for name in killer.names))
    ends = Counter(f"{life.phase}, {life.restarts} restarts" for life in lives)
    print("planned: " + ", ".join(f"{number} {end}" for end, number in sorted(ends.items())))
    print(
        f"beside them: {chaos_entities.GRAPHS} graphs, {chaos_entities.GANGS} gangs, a provisioner, a broker, a queue"
    )
    return broken


def _outcome(name: str, task: asyncio.Future[Any]) -> Any:
    """Return what a life said of its end; that it broke off is something wrong, too."""
    error = task.exception()
    return [f"{name}: {type(error).__name__}: {error}"] if error is not None else task.result()


async def _told(driver: Driver, life: Life) -> str:
    try:
        async with asyncio.timeout(10):
            status = await driver.site.status(driver.site.client.get_workflow_handle(life.workload.workflow_id))
    except (RPCError, TimeoutError) as error:
        return f"and does not answer: {error}"
    return f"{status.phase} ({status.reason}: {status.message})"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; 0 only if nothing is broken."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.e2e.crash.chaos", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--seed", type=int, default=None, help="what lives and kills are drawn from")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--workloads", type=int, default=200)
    parser.add_argument("--stack", default="chaos", help="a stack with two Temporal servers, brought up if need be")
    parser.add_argument("--keep", action="store_true", help="leave the stack, its logs and its data")
    given = parser.parse_args(arguments)
    # That a server which was killed does not answer is no news here.
    quiet = LoggingConfig(filter=TelemetryFilter(core_level="ERROR", other_level="ERROR"))
    Runtime.set_default(Runtime(telemetry=TelemetryConfig(logging=quiet)))
    seed = given.seed if given.seed is not None else secrets.randbelow(1_000_000)
    print(f"seed {seed}: {given.workloads} workloads, {given.minutes:g} min (SEED={seed} repeats it)", flush=True)
    stack = Stack.up(given.stack, ha=True, real_node=os.geteuid() == 0, progress=lambda line: print(line, flush=True))
    try:
        with tempfile.TemporaryDirectory() as directory:
            broken = asyncio.run(run(stack, Path(directory), seed, given.minutes, given.workloads))
    finally:
        if not given.keep:
            stack.down(purge=True)
    for words in broken:
        print(f"BROKEN: {words}")
    print(
        f"seed {seed}: " + (f"{len(broken)} broken" if broken else "nothing lost, nothing twice, all ended as planned")
    )
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
