"""From the last release to this one and back, under fifty workloads in all phases: `make test-release`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
import yaml

from holdfast import names
from holdfast.local import Stack
from holdfast.model import Status
from tests.e2e.door import front_door
from tests.e2e.ground.site import Site, Worker, open_site
from tests.e2e.ground.space import Space
from tests.e2e.upgrade import lives
from tests.e2e.upgrade.lives import Life, Sentinels
from tests.e2e.upgrade.previous import ROOT, Release, install
from tests.e2e.witness.invariants import check_nothing_twice, check_replays, ledger_of
from tests.e2e.witness.law import judge
from tests.e2e.witness.truth import watched

pytestmark = [pytest.mark.e2e, pytest.mark.release, pytest.mark.timeout(1200)]
T = TypeVar("T")
UNWATCHED: float = 10.0
"""Seconds for which a failure may go unnoticed, at most."""


@pytest.fixture(scope="module")
def previous() -> Release:
    """The last release, installed."""
    return install()


@asynccontextmanager
async def opened(stack: Stack, site: Site, previous: Release) -> AsyncIterator[Space]:
    """A cluster as the last release was installed on it, with its rights, and a namespace that it enabled."""
    await asyncio.to_thread(stack.kubectl, "apply", "--kustomize", str(previous.tree / "deploy"))
    try:
        namespace = f"{site.cluster}-upgrade"
        await previous.run("namespace", "enable", namespace, env=environment(site))
        site.namespaces.append(namespace)
        async with watched(site, namespace) as truth:
            space = Space(site, namespace, truth)
            try:
                yield space
            finally:
                await space.close()
    finally:
        await asyncio.to_thread(install_here, stack)


def install_here(stack: Stack) -> None:
    """Kinds first, then rights, as the page on upgrades says."""
    stack.kubectl("apply", "--filename", str(ROOT / "deploy" / "crds"))
    stack.kubectl("apply", "--kustomize", str(ROOT / "deploy"))


def environment(site: Site) -> dict[str, str]:
    """Return what a command of the last release is run with."""
    return {name: value for name, value in site.command()[1].items() if name != "PYTHONPATH"}


async def started(site: Site, program: Path | None = None, compatible_with: str = "") -> Worker:
    """Start a worker, of another release where its program is given, beside all that lives here."""
    worker = site.launch(program=program, PYTHONPATH="", HOLDFAST_COMPATIBLE_WITH=compatible_with)
    await site.ready(worker, 300)
    return worker


async def old_worker(site: Site, previous: Release) -> Worker:
    return await started(site, previous.program)


async def make_queue(site: Site, previous: Release, directory: Path) -> None:
    """Have the last release's own command make the queue."""
    queue = {"apiVersion": names.API_VERSION, "kind": "Queue", "metadata": {"name": lives.QUEUE}}
    (directory / "queue.yaml").write_text(yaml.safe_dump(queue | {"spec": {"quota": {"pods": lives.ROOM}}}))
    await previous.run("queue", "apply", str(directory / "queue.yaml"), env=environment(site))


async def submitted(space: Space, previous: Release, directory: Path, counts: Mapping[str, int]) -> list[Life]:
    """Have the last release's own command submit workloads: clients are upgraded last."""
    made = lives.documents(counts)
    everything = directory / "lives.yaml"
    everything.write_text(yaml.safe_dump_all([one for some in made.values() for one in some]))
    env = environment(space.site)
    await previous.run("submit", str(everything), "--namespace", space.namespace, env=env)
    found: list[Life] = []
    for kind, some in made.items():
        for one in some:
            name = one["metadata"]["name"]
            id_ = names.workflow_id(space.site.cluster, space.namespace, name)
            found.append(Life(kind, name, space.site.client.get_workflow_handle(id_, result_type=Status)))
    space.handles += [life.handle for life in found]
    return found


async def applied(space: Space, name: str) -> Life:
    """Apply an AppWrapper as kubectl does; its labels are what the last release knows nothing of."""
    document = front_door.appwrapper(space, front_door.job(name), name=name, successTTLDuration="0s")
    document["metadata"]["labels"] = {"team": "research"}
    return Life("running", name, await front_door.applied(space, document))


async def all_held(space: Space, some: list[Life]) -> None:
    """Bring all into the middle of their phases."""
    await few_at_once(lives.hold(space, life) for life in some)


async def few_at_once(some: Iterable[Awaitable[T]]) -> list[T]:
    """Await each, a few at once: fifty would have each wait for all others on a busy machine."""
    turns = asyncio.Semaphore(8)

    async def in_turn(one: Awaitable[T]) -> T:
        async with turns:
            return await one

    return await asyncio.gather(*map(in_turn, some))


async def unmoved(space: Space, held: list[Life]) -> None:
    """Assert that each workload is where it was held."""
    for life in held:
        assert await lives.where(space, life) == life.held, life.name


async def exchange(site: Site, watched_by: Sentinels, old: Worker, new: Worker) -> None:
    """Have one worker run beside another for some failures, then alone for some more."""
    await watched_by.more()
    assert await asyncio.to_thread(old.stop) == 0
    await watched_by.more()


@pytest.mark.row("O4", level="e2e")
async def test_O4_upgraded_and_rolled_back_under_fifty_workloads_nothing_is_lost_reset_or_unwatched(
    stack: Stack, tmp_path: Path, previous: Release
):
    async with open_site(stack, tmp_path, prefix="u") as site, opened(stack, site, previous) as space:
        first = await old_worker(site, previous)
        await make_queue(site, previous, tmp_path)
        every = await submitted(space, previous, tmp_path, lives.COUNTS)
        await all_held(space, every)
        held = [life for life in every if life.kind != "sentinel"]
        sentinels = Sentinels(space, [life for life in every if life.kind == "sentinel"])
        await sentinels.more()

        # Kinds and rights, then workers that leave no step in a history which the last release cannot replay.
        await asyncio.to_thread(install_here, stack)
        new = await started(site, compatible_with=previous.version)
        await exchange(site, sentinels, first, new)
        await unmoved(space, held)
        late = await submitted(space, previous, tmp_path, lives.LATE)
        late += [await applied(space, f"applied-{index}") for index in range(2)]
        await all_held(space, late)
        held += late

        back = await old_worker(site, previous)
        await exchange(site, sentinels, new, back)
        await unmoved(space, held)
        ended = [life for life in held if life.kind != "queued"][::2]
        await all_end(space, ended)

        held = [life for life in held if life not in ended]
        again = await started(site, compatible_with=previous.version)
        await exchange(site, sentinels, back, again)
        await unmoved(space, held)
        alone = await started(site)
        await exchange(site, sentinels, again, alone)
        await unmoved(space, held)
        await sentinels.stop()
        delays = await sentinels.delays()
        mean = sum(delays) / len(delays)
        print(f"MEASURED {len(delays)} failures were told after {mean:.1f} s, at most {max(delays):.1f} s")
        await all_end(space, held)
        for life in every:
            if life.kind == "sentinel":
                status = await lives.end(space, life)
                assert status.restarts == len(sentinels.failed[life.name])
        assert max(delays) <= UNWATCHED
        known = ledger_of(space)
        check_nothing_twice(known)
        assert not judge(known).broken
        await check_replays(site.client)


async def all_end(space: Space, some: list[Life]) -> None:
    """Bring each to its end, and assert that it is the planned one."""
    for life, status in zip(some, await few_at_once(lives.end(space, life) for life in some), strict=True):
        assert (str(status.phase), status.restarts) == lives.ends_as(life), status.model_dump_json(indent=1)


@pytest.mark.row("O4", level="e2e")
def test_O4_no_kind_has_lost_a_field_or_changed_its_type(previous: Release):
    for file in sorted((previous.tree / "deploy" / "crds").glob("*.yaml")):
        for old, new in zip(_schemas(file), _schemas(ROOT / "deploy" / "crds" / file.name), strict=True):
            assert list(_lost(old, new, file.name)) == []


def _schemas(file: Path) -> list[dict[str, Any]]:
    """Return the schema of each served version of a file's kinds."""
    kinds = list(yaml.safe_load_all(file.read_text()))
    return [one["schema"]["openAPIV3Schema"] for kind in kinds for one in kind["spec"]["versions"] if one["served"]]


def _lost(old: dict[str, Any], new: dict[str, Any], path: str) -> Iterator[str]:
    """Yield what an object of the old schema could have and one of the new cannot, or must have besides."""
    if old.get("type") != new.get("type"):
        yield f"{path}: {old.get('type')} became {new.get('type')}"
    yield from (f"{path}.{name}: required" for name in set(new.get("required", ())) - set(old.get("required", ())))
    for name, one in old.get("properties", {}).items():
        if name in new.get("properties", {}):
            yield from _lost(one, new["properties"][name], f"{path}.{name}")
        else:
            yield f"{path}.{name}: gone"
    for inner in ("items", "additionalProperties"):
        if isinstance(old.get(inner), dict):
            yield from _lost(old[inner], new.get(inner) or {}, f"{path}.{inner}")
