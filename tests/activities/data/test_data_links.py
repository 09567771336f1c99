"""A pod that writes its namespace's folder plants links, pipes and huge files: no other is touched (row X10)."""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from holdfast.activities.data.cache import Cache
from holdfast.activities.data.folder import SMALL
from tests.activities.data.stored import Memory, content, knows, staged

pytestmark = pytest.mark.row("X10", level="pure")
FILES = {"a": b"hello, kelp", "deep/b": b"world, kelp"}
LONG_AGO = 7200


def victim_of(root: Path) -> Path:
    """Another namespace's folder, with names that a cache would remove or write."""
    victim = root / "victim" / ("d" * 64)
    for folder in ("data/deep", "part", "uses"):
        (victim / folder).mkdir(parents=True)
    for name in ("data/a", "data/b", "data/c", "data/deep/b", "part/a", "uses/a", "complete.json", "room.json"):
        (victim / name).write_bytes(b"theirs")
        os.utime(victim / name, (time.time() - 1, time.time() - 1))
    return victim


def seen(victim: Path) -> dict[str, tuple[bytes, int, int]]:
    return {
        str(one.relative_to(victim)): (
            one.read_bytes() if one.is_file() else b"",
            one.lstat().st_mtime_ns,
            one.stat().st_mode,
        )
        for one in victim.rglob("*")
        if one.is_file()
    } | {"folders": (repr(sorted(map(str, victim.rglob("*")))).encode(), 0, 0)}


def instead(of: str, to: str) -> Callable[[Path, Path], None]:
    def plant(home: Path, victim: Path) -> None:
        path = home / of if of else home
        path.rename(path.with_name("away"))
        path.symlink_to(victim / to)

    return plant


LINKS = [instead("data", "data"), instead("data/deep", "data"), instead("part", "part"), instead("part", "data"),
         instead("uses", "uses"), instead("", ""), instead("complete.json", "complete.json"),
         instead("room.json", "room.json")]  # fmt: skip


@pytest.mark.parametrize("plant", LINKS)
@pytest.mark.parametrize("breaks", [None, 1])
async def test_X10_a_planted_link_is_not_followed(
    tmp_path: Path, plant: Callable[[Path, Path], None], breaks: int | None
) -> None:
    cache, store = Cache(tmp_path, lambda _: 100), Memory(corpus=dict(FILES))
    (first,) = (await staged(cache, store, "u", "corpus")).sets
    victim = victim_of(tmp_path)
    before = seen(victim)
    plant(tmp_path / "team" / first.digest, victim)
    store.breaks_after = breaks
    await staged(cache, store, "u", "corpus", corpus=first.digest)
    store.breaks_after = None
    await staged(cache, store, "u", "corpus", corpus=first.digest)
    assert seen(victim) == before
    assert (await staged(cache, store, "u", "corpus", corpus=first.digest)).sets == (first,)
    assert content(tmp_path, "team", first.digest) == FILES
    assert not [one for one in (tmp_path / "team" / first.digest / "data").rglob("*") if one.is_symlink()]
    assert seen(victim) == before


@pytest.mark.parametrize("of", ["data/deep", "data", "part", ""])
async def test_X10_a_link_that_is_planted_while_it_is_fetched_is_not_followed(tmp_path: Path, of: str) -> None:
    cache, store = Cache(tmp_path), Memory(corpus=dict(FILES))
    victim, fetch = victim_of(tmp_path), store.fetch
    (victim / "data/a").rename(victim / "data/z")
    before = seen(victim)

    async def hostile(source, entry, start=0):  # type: ignore[no-untyped-def]
        (home,) = (one for one in (tmp_path / "team").iterdir() if len(one.name) == 64)
        async for piece in fetch(source, entry, start):
            yield piece
            path = home / of if of else home
            if not path.is_symlink():
                with suppress(OSError):
                    path.rename(tmp_path / f"away{time.monotonic_ns()}")
                path.symlink_to(victim / ("data" if of else ""))

    store.fetch = hostile  # type: ignore[method-assign]
    await staged(cache, store, "u", "corpus")
    assert seen(victim) == before


@pytest.mark.parametrize("link", ["x", "x/part", "x/uses"])
async def test_X10_what_is_old_is_not_removed_through_a_link(tmp_path: Path, link: str) -> None:
    cache, store = Cache(tmp_path), Memory(corpus=dict(FILES))
    victim = tmp_path / "elsewhere"
    for name in ("f", ".f", "part/f", "uses/.f"):
        (victim / name).parent.mkdir(parents=True, exist_ok=True)
        (victim / name).write_bytes(b"theirs")
        os.utime(victim / name, (time.time() - LONG_AGO, time.time() - LONG_AGO))
    (tmp_path / "team").mkdir()
    (tmp_path / "team" / link).parent.mkdir(exist_ok=True)
    # The walk of the cache alone does not reach it.
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    victim.rename(outside)
    (tmp_path / "team" / link).symlink_to(outside)
    assert (await staged(cache, store, "u", "corpus")).sets
    assert sorted(str(one.relative_to(outside)) for one in outside.rglob("*") if one.is_file()) == [
        ".f", "f", "part/f", "uses/.f",
    ]  # fmt: skip


async def test_X10_an_eviction_empties_no_folder_that_a_link_names(tmp_path: Path) -> None:
    cache, store = Cache(tmp_path, lambda _: 30), Memory(corpus=dict(FILES), other={"c": b"c" * 20})
    await staged(cache, store, "u", "corpus")
    victim = victim_of(tmp_path)
    before = seen(victim)
    (tmp_path / "team/.gone").symlink_to(victim)
    assert (await staged(cache, store, "v", "other", ended=knows({"u"}))).sets
    assert seen(victim) == before


def a_pipe(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 42)  # Sparse: more than any machine has memory.


@pytest.mark.parametrize("plant", [a_pipe, huge])
@pytest.mark.parametrize("name", ["complete.json", "room.json", "uses/*", "part/0.jsonl"])
async def test_X10_a_pipe_or_a_huge_file_counts_as_absent(
    tmp_path: Path, plant: Callable[[Path], None], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.activities.data.journal._MOST", 4 * SMALL)
    cache, store = Cache(tmp_path, lambda _: 100), Memory(corpus=dict(FILES), other={"c": b"c"})
    (first,) = (await staged(cache, store, "u", "corpus")).sets
    home = tmp_path / "team" / first.digest
    for path in list(home.glob(name)) or [home / name]:
        plant(path)
    (home / "data/a").unlink()
    async with asyncio.timeout(20):
        assert (await staged(cache, store, "u", "corpus", corpus=first.digest)).sets == (first,)
        assert (await staged(cache, store, "v", "other")).sets
    assert content(tmp_path, "team", first.digest) == FILES


async def test_X10_a_pipe_in_place_of_a_mark_blocks_no_drop(tmp_path: Path) -> None:
    cache, store = Cache(tmp_path, lambda _: 30), Memory(corpus=dict(FILES), other={"c": b"c" * 20})
    (first,) = (await staged(cache, store, "u", "corpus")).sets
    (mark,) = (tmp_path / "team" / first.digest / "uses").iterdir()
    a_pipe(mark)
    async with asyncio.timeout(20):
        held = await staged(cache, store, "v", "other", ended=knows({"u"}))
    assert "has no room for it" in held.away, "what cannot be read is a use by somebody unknown"


@pytest.fixture
def deep(tmp_path: Path) -> Iterator[Callable[[Path], None]]:
    """Yield what nests folders in a folder: deeper than a path can be, or Python recurses, or descriptors are left."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)

    def nest(folder: Path) -> None:
        number = os.open(folder, os.O_RDONLY)
        for _ in range(1100):
            os.mkdir("d", dir_fd=number)
            inner = os.open("d", os.O_RDONLY, dir_fd=number)
            os.close(number)
            number = inner
        os.close(number)
        resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 150, before[1]))

    yield nest
    resource.setrlimit(resource.RLIMIT_NOFILE, before)
    subprocess.run(["rm", "-rf", *tmp_path.iterdir()], check=True)  # Pytest removes by recursion.


@pytest.mark.parametrize(("of", "breaks"), [("data/deep", False), ("data", True)])
async def test_X10_a_deep_folder_among_files_goes(
    tmp_path: Path, deep: Callable[[Path], None], of: str, breaks: bool
) -> None:
    cache, store = Cache(tmp_path, lambda _: 100), Memory(corpus=dict(FILES))
    (first,) = (await staged(cache, store, "u", "corpus")).sets
    home = tmp_path / "team" / first.digest
    deep(home / of)
    if breaks:
        (home / "data/a").unlink()
    assert (await staged(cache, store, "u", "corpus", corpus=first.digest)).sets == (first,)
    assert sorted(os.listdir(home / "data")) == ["a", "deep"]
    assert os.listdir(home / "data/deep") == ["b"]
    assert content(tmp_path, "team", first.digest) == FILES
    assert not os.listdir(tmp_path / "team/.gone")


@pytest.mark.parametrize(("of", "reserved"), [("data", True), ("", False)])
async def test_X10_what_has_a_deep_folder_is_evicted(
    tmp_path: Path, deep: Callable[[Path], None], of: str, reserved: bool
) -> None:
    cache, store = Cache(tmp_path, lambda _: 30), Memory(corpus=dict(FILES), other={"c": b"c" * 20})
    (first,) = (await staged(cache, store, "u", "corpus")).sets
    home = tmp_path / "team" / first.digest
    for mark in (home / "uses").iterdir():
        mark.unlink()
    if not reserved:
        (home / "room.json").unlink()
    deep(home / of)
    (second,) = (await staged(cache, store, "v", "other")).sets
    assert sorted(os.listdir(tmp_path / "team")) == sorted([".gone", ".lock", second.digest])
    assert not os.listdir(tmp_path / "team/.gone")


async def test_X10_a_deep_folder_beside_data_sets_keeps_no_room(tmp_path: Path, deep: Callable[[Path], None]) -> None:
    cache, store = Cache(tmp_path, lambda _: 30), Memory(corpus=dict(FILES))
    (tmp_path / "team/.gone").mkdir(parents=True)
    victim = victim_of(tmp_path)
    before = seen(victim)
    (tmp_path / "team/.gone/link").symlink_to(victim)
    deep(tmp_path / "team/.gone")
    assert (await staged(cache, store, "u", "corpus")).sets
    assert not os.listdir(tmp_path / "team/.gone")
    assert seen(victim) == before


async def test_X10_a_deep_text_in_place_of_a_record_counts_as_absent(tmp_path: Path) -> None:
    cache, store = Cache(tmp_path, lambda _: 100), Memory(corpus=dict(FILES))
    (first,) = (await staged(cache, store, "u", "corpus")).sets
    for name in ("complete.json", "room.json", "part/0.jsonl"):
        (tmp_path / "team" / first.digest / name).write_bytes(b"[" * 100_000)
    assert (await staged(cache, store, "u", "corpus", corpus=first.digest)).sets == (first,)
    assert content(tmp_path, "team", first.digest) == FILES
