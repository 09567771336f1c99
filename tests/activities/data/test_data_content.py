"""Content by hash: a file that is not what was fetched is found before an attempt reads it (row X10)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.activities.data import record as data_record
from holdfast.activities.data.cache import Cache
from holdfast.activities.data.record import Seal
from tests.activities.data.stored import Memory, content, staged

pytestmark = pytest.mark.row("X10", level="pure")
FILES = {"a": b"hello, kelp", "deep/b": b"world, kelp"}


def in_place(path: Path) -> None:
    """Write other bytes of the same length into a file, and set its times back."""
    before = path.stat()
    path.chmod(0o644)
    path.write_bytes(bytes(before.st_size))
    path.chmod(0o444)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def replaced(path: Path) -> None:
    size = path.stat().st_size
    path.unlink()
    path.write_bytes(bytes(size))


def linked(path: Path) -> None:
    other = path.parent.parent / "other"
    path.rename(other)
    path.symlink_to(other)


def a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "x").write_bytes(b"x")


def one_more(path: Path) -> None:
    (path.parent / "planted").write_bytes(b"x")
    (path.parent / "way").symlink_to("/etc")


@pytest.mark.parametrize("change", [in_place, replaced, linked, a_pipe, a_folder, one_more, os.unlink])
@pytest.mark.parametrize("key", FILES)
async def test_X10_a_changed_file_is_found_and_fetched_anew(
    tmp_path: Path, change: Callable[[Path], None], key: str
) -> None:
    cache, store = Cache(tmp_path), Memory(corpus=dict(FILES))
    (first,) = (await staged(cache, store, "u", "corpus")).sets
    change(tmp_path / "team" / first.digest / "data" / key)
    store.asked.clear()
    again = await staged(cache, store, "u", "corpus", corpus=first.digest)
    assert (again.sets, again.problem, again.away) == ((first,), "", "")
    assert content(tmp_path, "team", first.digest) == FILES
    assert not [one for one in (tmp_path / "team" / first.digest / "data").rglob("*") if one.is_symlink()]
    assert store.asked == ([] if change is one_more else [(key, 0)]), "and no other"


async def test_X10_a_changed_file_is_never_read_even_while_the_store_is_away(tmp_path: Path) -> None:
    cache, store = Cache(tmp_path), Memory(corpus=dict(FILES))
    (first,) = (await staged(cache, store, "u", "corpus")).sets
    in_place(tmp_path / "team" / first.digest / "data/a")
    store.breaks_after = 0
    assert "memory does not answer" in (await staged(cache, store, "u", "corpus", corpus=first.digest)).away
    store.objects["datasets/corpus/a"] = b"another one"
    problem = (await staged(cache, store, "u", "corpus", corpus=first.digest)).problem
    assert "which is not in the cache any more" in problem


async def test_X10_a_copy_with_other_times_is_read_once_and_then_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, store, read = Cache(tmp_path), Memory(corpus=dict(FILES)), list[Path]()
    (first,) = (await staged(cache, store, "u", "corpus")).sets
    for path in (tmp_path / "team" / first.digest / "data").rglob("*"):
        os.utime(path, (1, 1))
    await asyncio.sleep(2 * data_record.SETTLED)
    look = data_record.look
    monkeypatch.setattr(data_record, "look", lambda path: (read.append(path), look(path))[1])
    store.asked.clear()
    for reads in (2, 2):
        assert (await staged(cache, store, "u", "corpus", corpus=first.digest)).sets == (first,)
        assert (len(read), store.asked) == (reads, [])


async def test_X10_a_stamp_that_is_too_young_proves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mapped page that is dirty changes without another stamp: the file is hashed again until it has settled."""
    cache, store, read = Cache(tmp_path), Memory(corpus={"a": b"hello, kelp"}), list[Path]()
    (first,) = (await staged(cache, store, "u", "corpus")).sets
    path = tmp_path / "team" / first.digest / "data/a"
    look = data_record.look
    monkeypatch.setattr(data_record, "look", lambda path: (read.append(path), look(path))[1])
    monkeypatch.setattr(data_record, "SETTLED", 3600.0)
    os.utime(path, (1, 1))
    for reads in (1, 2):
        assert (await staged(cache, store, "u", "corpus", corpus=first.digest)).sets == (first,)
        assert len(read) == reads
    monkeypatch.setattr(data_record, "SETTLED", 0.0)
    for reads in (3, 3):
        assert (await staged(cache, store, "u", "corpus", corpus=first.digest)).sets == (first,)
        assert len(read) == reads


def forged(record: Path) -> None:
    record.write_bytes(Seal(b"a pod's own key, of some length......").write("team/x", {"source": "", "objects": []}))


def of_other(record: Path) -> None:
    """The valid record of another data set."""
    (other,) = [one for one in record.parent.parent.glob("*/complete.json") if one != record]
    record.write_bytes(other.read_bytes())


@pytest.mark.parametrize("change", [forged, of_other, os.unlink, lambda one: one.write_bytes(b"{")])
async def test_X10_a_record_counts_only_with_its_seal_and_in_its_place(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    cache = Cache(tmp_path, seal=Seal(bytes(range(32))))
    store = Memory(corpus=dict(FILES), other={"c": b"c"})
    (first,) = (await staged(cache, store, "u", "corpus")).sets
    await staged(cache, store, "v", "other")
    change(tmp_path / "team" / first.digest / "complete.json")
    assert await cache.held("team", first.digest, "s3://datasets/corpus") is None
    store.asked.clear()
    assert (await staged(cache, store, "u", "corpus", corpus=first.digest)).sets == (first,)
    assert {key for key, _ in store.asked} == set(FILES)


def write_into_parts(root: Path) -> None:
    for part in root.glob("team/*/part/*"):
        if part.suffix != ".jsonl" and part.stat().st_size:
            with part.open("r+b") as file:
                file.write(b"J")


async def test_X10_a_file_that_is_changed_while_it_is_written_is_not_taken(tmp_path: Path) -> None:
    """A pod with the folder writes into each part as soon as it is there."""
    cache, store = Cache(tmp_path), Memory(corpus={"a": b"hello, kelp"})
    fetch, times = store.fetch, 0

    async def hostile(source, entry, start=0):  # type: ignore[no-untyped-def]
        nonlocal times
        times += 1
        async for piece in fetch(source, entry, start):
            yield piece
            if times < 3:
                write_into_parts(tmp_path)

    store.fetch = hostile  # type: ignore[method-assign]
    done = await staged(cache, store, "u", "corpus")
    assert content(tmp_path, "team", done.sets[0].digest) == {"a": b"hello, kelp"}
    assert times == 3


async def test_X10_each_namespace_has_its_own_and_reads_no_other(tmp_path: Path) -> None:
    cache, store = Cache(tmp_path), Memory(corpus=dict(FILES))
    (first,) = (await staged(cache, store, "u", "corpus")).sets
    store.asked.clear()
    (second,) = (await staged(cache, store, "v", "corpus", namespace="other")).sets
    assert first.digest == second.digest
    assert {key for key, _ in store.asked} == set(FILES), "nothing is taken from another namespace's folder"
    assert content(tmp_path, "other", first.digest) == FILES
    assert sorted(os.listdir(tmp_path)) == ["other", "team"]
    for name in ("../team", "", ".", "a/b", "d" * 64):
        with pytest.raises(ValueError, match="expected the name of a namespace"):
            cache.room(name)


async def test_X10_what_earlier_releases_left_is_not_read(tmp_path: Path) -> None:
    cache, store = Cache(tmp_path), Memory(corpus=dict(FILES))
    (first,) = (await staged(cache, store, "u", "corpus")).sets
    (tmp_path / "team" / first.digest).rename(tmp_path / first.digest)
    assert cache.outdated() == 1
    store.asked.clear()
    assert (await staged(cache, store, "u", "corpus", corpus=first.digest)).sets == (first,)
    assert {key for key, _ in store.asked} == set(FILES)
