"""Kubernetes or Temporal restored to an earlier time than the other: nothing that lives is deleted, nothing runs twice.

What is clear goes on by itself. Where memory and cluster contradict each other, the workload is Held with its reason
until a person says `retry` or `cancel`. etcd is restored from a snapshot by its own tool, with its revision as it was
or raised as is advised for Kubernetes, and from a cold copy of its data; Temporal from a cold copy of its database.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from temporalio.service import RPCError

from holdfast import names
from holdfast.local import Stack
from tests import shared_stack
from tests.e2e.ground.restored import Restored, open_restored, together, watched_for
from tests.e2e.ground.site import job, until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

SETTLE_SECONDS = 8.0
RAISED_BY = 1_000_000_000
"""What etcd's documentation advises for a store that others watch."""


@pytest.fixture(scope="module")
def own_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A small stack that nobody else uses."""
    with shared_stack.own_stack("restored", tmp_path_factory.mktemp("stack"), nodes=2) as stack:
        yield stack


@pytest.fixture
async def scene(own_stack: Stack, tmp_path: Path) -> AsyncIterator[Restored]:
    async with open_restored(own_stack, tmp_path) as opened:
        yield opened


async def _begin(scene: Restored, *wanted: str) -> None:
    """Begin workloads, one component each, and wait until they run."""
    for name in wanted:
        await scene.submit(name, job(name))
    await scene.all_running(*wanted)


async def _complete(scene: Restored, name: str) -> None:
    await scene.steer(name, kwok_complete="0s")
    await scene.ended(name, "Succeeded")


async def _cancel(scene: Restored, name: str) -> None:
    await scene.signal(name, names.SIGNAL_CANCEL)
    await scene.ended(name, "Cancelled")


async def _fail(scene: Restored, name: str) -> None:
    await scene.steer(name, kwok_exit_code="1", kwok_fail="0s")


@pytest.mark.parametrize(
    ("source", "worker"),
    [
        ("copy", "lives on"),
        ("copy", "begins anew"),
        ("snapshot", "lives on"),
        ("raised snapshot", "lives on"),
        ("raised snapshot", "begins anew"),
    ],
)
async def test_a_cluster_that_is_older_than_temporal(scene: Restored, tmp_path: Path, source: str, worker: str):
    early = ("kept", "reset", "suspended", "ended", "cancelled")
    await _begin(scene, *early)
    copy = await (scene.copy("etcd", tmp_path) if source == "copy" else scene.snapshot(tmp_path))
    before = {name: await scene.living(name) for name in early}
    await _begin(scene, "young")
    await _fail(scene, "reset")
    await scene.signal("suspended", names.SIGNAL_SUSPEND)
    await together(
        scene.reach("reset", "Running", 2),
        scene.reach("suspended", "Suspended"),
        _complete(scene, "ended"),
        _cancel(scene, "cancelled"),
    )
    raised_by = RAISED_BY if source.startswith("raised") else 0
    await scene.go_back("etcd", copy, anew=worker == "begins anew", raised_by=raised_by)

    everything = (*early, "young")
    assert {name: await scene.living(name) for name in early} == before
    await together(
        scene.held("reset", "attempt 1", "2", "restored"),
        scene.held("suspended", "attempt 1", "restored"),
        scene.held("young", "anchor", "restored"),
        watched_for(scene, everything, SETTLE_SECONDS),
    )
    await scene.reach("kept", "Running", 1)
    scene.assert_untouched(*everything)
    assert {name: await scene.living(name) for name in early} == before, "all that lived still lives"
    assert not await scene.living("young")

    # What was clear goes on by itself; of what is held, a person says what becomes of it.
    await _fail(scene, "kept")
    await scene.signal("reset", names.SIGNAL_RETRY)
    await scene.signal("young", names.SIGNAL_RETRY)
    await scene.signal("suspended", names.SIGNAL_CANCEL)
    again, young, kept, *_ = await together(
        scene.reach("reset", "Running", 3),
        scene.reach("young", "Running", 2),
        scene.reach("kept", "Running", 2),
        scene.ended("suspended", "Cancelled"),
        watched_for(scene, ("kept", "reset", "suspended", "young"), SETTLE_SECONDS),
    )
    assert (again.restarts, young.restarts, kept.restarts) == (1, 0, 1), "what was held is charged nothing"
    for name, attempt in (("reset", 3), ("young", 2), ("kept", 2)):
        assert set(await scene.living(name)) == {attempt}
        await _shows(scene, name, "Running", attempt)
    assert not await scene.living("suspended")
    # Their workflows have ended: nobody decides about them any more, and so nobody deletes what lives.
    scene.assert_untouched("ended", "cancelled")
    assert {name: await scene.living(name) for name in ("ended", "cancelled")} == {
        name: before[name] for name in ("ended", "cancelled")
    }
    for name in ("reset", "young", "kept"):
        await _cancel(scene, name)


async def _shows(scene: Restored, name: str, phase: str, attempt: int) -> None:
    """Wait until the anchor says the same."""

    async def same() -> bool:
        told = await scene.told(name)
        return (told.get("phase"), told.get("attempt")) == (phase, attempt)

    try:
        await until(same, 90, f"the anchor of {name} shows {phase}, attempt {attempt}")
    except AssertionError as error:
        raise AssertionError(f"{error}; it shows {await scene.told(name)}") from None


async def test_a_temporal_that_is_older_than_the_cluster(scene: Restored, tmp_path: Path):
    copies: list[Path] = []

    async def copy() -> None:
        copies.append(await scene.copy("temporal", tmp_path))

    await older_than_the_cluster(scene, copy, lambda: scene.go_back("temporal", copies[0]))


async def older_than_the_cluster(
    scene: Restored, copy: Callable[[], Awaitable[None]], go_back: Callable[[], Awaitable[None]]
) -> None:
    """Let the cluster move on from when Temporal is copied until it is put back: what is unclear is Held."""
    early = ("kept", "reset", "resumed", "ended", "cancelled")
    await _begin(scene, *early)
    await scene.signal("resumed", names.SIGNAL_SUSPEND)
    await scene.reach("resumed", "Suspended")
    await copy()
    await _begin(scene, "young")
    await _fail(scene, "reset")
    await scene.signal("resumed", names.SIGNAL_RESUME)
    await together(
        scene.reach("reset", "Running", 2),
        scene.reach("resumed", "Running", 2),
        _complete(scene, "ended"),
        _cancel(scene, "cancelled"),
    )
    everything = (*early, "young")
    before = {name: await scene.living(name) for name in everything}
    await go_back()

    with pytest.raises(RPCError, match="not found"):
        await scene.handles["young"].describe()
    await together(
        scene.held("reset", "attempt 2", "attempt 1", "restored"),
        scene.held("resumed", "attempt 2", "attempt 1", "restored"),
        scene.held("ended", "anchor", "restored"),
        scene.held("cancelled", "anchor", "restored"),
        watched_for(scene, everything, SETTLE_SECONDS),
    )
    await scene.reach("kept", "Running", 1)
    scene.assert_untouched(*everything)
    assert {name: await scene.living(name) for name in everything} == before, "all that lived still lives"
    for name in ("reset", "resumed"):
        await _shows(scene, name, "Pending", 1)

    await _fail(scene, "kept")
    await scene.signal("reset", names.SIGNAL_RETRY)
    await scene.signal("resumed", names.SIGNAL_CANCEL)
    await scene.signal("ended", names.SIGNAL_CANCEL)
    await scene.signal("cancelled", names.SIGNAL_RETRY)
    again, back, kept, *_ = await together(
        scene.reach("reset", "Running", 3),
        scene.reach("cancelled", "Running", 2),
        scene.reach("kept", "Running", 2),
        scene.ended("resumed", "Cancelled"),
        scene.ended("ended", "Cancelled"),
        watched_for(scene, everything, SETTLE_SECONDS),
    )
    assert (again.restarts, back.restarts, kept.restarts) == (0, 0, 1), "what was held is charged nothing"
    for name, attempt in (("reset", 3), ("cancelled", 2), ("kept", 2)):
        assert set(await scene.living(name)) == {attempt}
        await _shows(scene, name, "Running", attempt)
    # Of this one Temporal knows nothing: it is nobody's to delete, and nobody may begin another in its place.
    scene.assert_untouched("young")
    assert await scene.living("young") == before["young"]
    for name in ("reset", "cancelled", "kept"):
        await _cancel(scene, name)
