"""A worker that is killed at any moment of an eviction and a fetch: nothing is lost, nothing half is used (row X10)."""

from __future__ import annotations

import multiprocessing
import os
import shutil
from pathlib import Path

import pytest

from holdfast.activities.data.cache import Cache
from holdfast.activities.data.room import Use, nobody_knows
from holdfast.activities.data.storage import digest_of
from tests.activities.data.crashing import DIED, DONE, objects, run
from tests.activities.data.stored import Memory, content, knows, staged

pytestmark = [pytest.mark.row("X10", level="pure"), pytest.mark.timeout(120)]
NEW = {"a": b"n" * 30, "deep/b": b"m" * 30}


def parts(root: Path) -> list[Path]:
    return list(root.glob("team/*/part/*"))


async def test_X10_a_worker_killed_before_any_touch_of_the_file_system_loses_nothing(tmp_path: Path) -> None:
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["tests.activities.data.crashing"])
    store = objects()
    source = "s3://datasets/new"
    digest = digest_of(source, await store.list(source))
    begun = tmp_path / "begun"
    await staged(Cache(begun, lambda _: 100), store, "u", "old")
    codes = list[int | None]()
    while DONE not in codes:
        root = tmp_path / f"died-{len(codes)}"
        shutil.copytree(begun, root)
        child = processes.Process(target=run, args=(root, len(codes) + 1))
        child.start()
        child.join(30)
        codes.append(child.exitcode)
        assert child.exitcode in {DIED, DONE}
        was_complete = await Cache(root).held("team", digest, source) is not None
        if was_complete:
            assert content(root, "team", digest) == NEW, "what is complete is whole"
        # The next worker, which knows no more than what lies there.
        cache, again = Cache(root, lambda _: 100), objects()
        done = await staged(cache, again, "v", "new", ended=knows({"u"}))
        assert (done.away, done.problem) == ("", "")
        assert content(root, "team", digest) == NEW
        homes = [one for one in os.listdir(root / "team") if not one.startswith(".")]
        assert homes == [digest], "the old one went for it"
        assert not os.listdir(root / "team/.gone"), "with all of its files"
        # Of one that was complete nothing was fetched, so nothing was tidied either.
        assert was_complete or not parts(root)
        assert sum(start for _, start in again.asked) + done.fetched <= 60
    assert len(codes) > 40, "it died in many places"


async def test_X10_a_data_set_that_changes_after_its_worker_was_killed_holds_the_room_of_its_new_version_alone(
    tmp_path: Path,
) -> None:
    """The quota has room for one version, not for two; what another workload has reserved stays."""
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["tests.activities.data.crashing"])
    source, others = "s3://datasets/new", "f" * 64
    half = digest_of(source, await objects().list(source))
    root = tmp_path / "died-0"
    for at in range(1, 100):
        root = tmp_path / f"died-{at}"
        child = processes.Process(target=run, args=(root, at))
        child.start()
        child.join(30)
        assert child.exitcode == DIED
        if parts(root):
            break
    cache = Cache(root, lambda _: 100)
    await cache.room("team").reserve(others, 10, Use("w"), nobody_knows)
    done = await staged(cache, Memory(new={"a": b"N" * 61}), "v", "new")
    assert (done.away, done.problem) == ("", "")
    assert content(root, "team", done.sets[0].digest) == {"a": b"N" * 61}
    homes = {one for one in os.listdir(root / "team") if not one.startswith(".")}
    assert homes == {done.sets[0].digest, others}, f"{half} went"
