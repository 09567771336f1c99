"""The cache of data sets: whole or not there, whoever fetches them, dies over it, or does so at once (row L14)."""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from holdfast.activities.data.cache import Cache, Held, data_path
from holdfast.activities.data.fetch import Fetched
from holdfast.activities.data.folder import Folder
from holdfast.activities.data.storage import Away, BadData, Changed, Entry, check_keys, digest_of

ROW = pytest.mark.row
SOURCE, TEAM = "s3://datasets/corpus", "team"


class Memory:
    """A store that is a dictionary."""

    name = "memory"

    def __init__(self, **objects: bytes) -> None:
        self.objects = {key.replace("_", "/"): data for key, data in objects.items()}
        self.fetched: list[str] = []
        self.dies_after: int | None = None

    async def list(self, source: str) -> list[Entry]:
        return [Entry(key, len(data), str(hash(data))) for key, data in self.objects.items()]

    async def fetch(self, source: str, entry: Entry, start: int = 0) -> AsyncGenerator[bytes]:
        if self.dies_after is not None and len(self.fetched) >= self.dies_after:
            raise Away("memory does not answer")
        if entry.key not in self.objects:
            raise Changed(entry.key)
        self.fetched.append(entry.key)
        data = self.objects[entry.key]
        for at in range(start, len(data), 3):
            await asyncio.sleep(0)
            yield data[at : at + 3]

    async def answers(self, source: str) -> None:
        return


async def filled(cache: Cache, store: Memory, fetched: Fetched | None = None) -> str:
    return await cache.fill(store, TEAM, SOURCE, await store.list(SOURCE), fetched or Fetched())


def files(root: Path, digest: str) -> dict[str, bytes]:
    home = root / TEAM / data_path(digest)
    return {str(one.relative_to(home)): one.read_bytes() for one in home.rglob("*") if one.is_file()}


@ROW("L14", level="pure")
async def test_L14_a_data_set_lies_complete_or_is_not_held(tmp_path: Path) -> None:
    cache, store = Cache(tmp_path), Memory(a=b"hello", deep_b=b"world", empty=b"")
    fetched = Fetched()
    digest = await filled(cache, store, fetched)
    assert await cache.held(TEAM, digest, SOURCE) == Held(3, 10)
    assert files(tmp_path, digest) == {"a": b"hello", "deep/b": b"world", "empty": b""}
    assert (fetched.files, fetched.of, fetched.bytes) == (3, 3, 10)
    assert list((tmp_path / TEAM / digest / "part").iterdir()) == []
    (tmp_path / TEAM / data_path(digest) / "deep/b").unlink()
    assert await cache.held(TEAM, digest, SOURCE) is None, "whatever the mark says"


@ROW("L14", level="pure")
async def test_L14_what_is_there_is_not_fetched_again(tmp_path: Path) -> None:
    cache, store = Cache(tmp_path), Memory(**{f"f{at}": bytes([at]) * 9 for at in range(12)})
    store.dies_after = 5
    with pytest.raises(Away, match="memory does not answer"):
        await filled(cache, store)
    digest = digest_of(SOURCE, await store.list(SOURCE))
    assert await cache.held(TEAM, digest, SOURCE) is None
    there = len(files(tmp_path, digest))
    assert 1 <= there <= 5
    store.dies_after, before = None, len(store.fetched)
    fetched = Fetched()
    assert await filled(cache, store, fetched) == digest
    assert len(store.fetched) - before <= fetched.files <= 12 - there
    assert await cache.held(TEAM, digest, SOURCE) == Held(12, 108)


def left_behind(root: Path, digest: str, name: str, age: float) -> Path:
    """What a fetch that was killed has left, so many seconds ago."""
    part = root / TEAM / digest / "part" / name
    part.parent.mkdir(parents=True, exist_ok=True)
    part.write_bytes(b"half")
    os.utime(part, (time.time() - age, time.time() - age))
    return part


def parts(root: Path) -> list[Path]:
    return list(root.glob("*/*/part/*"))


@ROW("D49", level="pure")
async def test_D49_parts_of_killed_fetches_go_before_a_fetch_begins_whichever_data_set_they_are_of(
    tmp_path: Path,
) -> None:
    cache, store = Cache(tmp_path), Memory(a=b"hello")
    old = [left_behind(tmp_path, digest, "dead", 7200) for digest in ("one", "two")]
    young = left_behind(tmp_path, "two", "alive", 60)
    store.dies_after = 0
    with pytest.raises(Away):
        await filled(cache, store)
    assert not any(one.exists() for one in old), "although this fetch came to nothing"
    assert young.exists(), "somebody may be writing it"


@ROW("D49", level="pure")
async def test_D49_a_full_disk_empties_of_what_nobody_writes_and_a_failed_try_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, store = Cache(tmp_path), Memory(a=b"hello")
    young, turned_old = left_behind(tmp_path, "two", "alive", 60), list[Path]()

    async def full(source: str, entry: Entry, start: int = 0) -> AsyncGenerator[bytes]:
        turned_old.append(left_behind(tmp_path, "one", "dead", 7200))  # It grew too old during this fetch.
        yield b"he"
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(store, "fetch", full)
    with pytest.raises(Away, match="No space left on device"):
        await filled(cache, store)
    assert turned_old
    assert not turned_old[0].exists()
    assert parts(tmp_path) == [young]


@ROW("D49", level="pure")
async def test_D49_a_disk_that_is_full_at_the_mark_is_left_no_fuller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, store = Cache(tmp_path), Memory(a=b"hello")
    write = Folder.write

    def full_at_the_mark(folder: Folder, name: str, text: bytes) -> None:
        write(folder, "a part of it", text)
        folder.remove("a part of it")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Folder, "write", full_at_the_mark)
    for _ in range(3):
        with pytest.raises(Away, match="No space left on device"):
            await filled(cache, store)
    (journal,) = parts(tmp_path)
    assert journal.suffix == ".jsonl", "what is whole is remembered, once"
    assert len(store.fetched) == 1


@ROW("L14", level="pure")
async def test_L14_two_at_once_do_each_other_no_harm(tmp_path: Path) -> None:
    store = Memory(**{f"f{at}": bytes([at]) * 50 for at in range(20)})
    digests = await asyncio.gather(*(filled(Cache(tmp_path), store) for _ in range(5)))
    assert len(set(digests)) == 1
    assert await Cache(tmp_path).held(TEAM, digests[0], SOURCE) == Held(20, 1000)
    assert files(tmp_path, digests[0]) == store.objects
    assert list((tmp_path / TEAM / digests[0] / "part").iterdir()) == []


async def test_another_source_is_not_read_by_whoever_knows_its_digest(tmp_path: Path) -> None:
    digest = await filled(Cache(tmp_path), Memory(a=b"secret"))
    assert await Cache(tmp_path).held(TEAM, digest, "s3://datasets/public") is None


async def test_an_object_that_is_not_what_was_listed_is_not_taken(tmp_path: Path) -> None:
    store = Memory(a=b"hello")
    entries = await store.list(SOURCE)
    store.objects["a"] = b"hell"
    with pytest.raises(Changed):
        await Cache(tmp_path).fill(store, TEAM, SOURCE, entries, Fetched())
    assert files(tmp_path, digest_of(SOURCE, entries)) == {}


async def test_a_mark_that_was_tampered_with_is_none(tmp_path: Path) -> None:
    digest = await filled(Cache(tmp_path), Memory(a=b"hello"))
    for text in ("", "{}", '{"source": "s3://datasets/corpus", "objects": []}'):
        (tmp_path / TEAM / digest / "complete.json").write_text(text)
        assert await Cache(tmp_path).held(TEAM, digest, SOURCE) is None


async def test_a_folder_that_cannot_be_used_is_for_an_operator_to_mend(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Away, match=r"the data directory .*file cannot be used: Not a directory"):
        await filled(Cache(tmp_path / "file"), Memory(a=b"hello"))


def test_the_digest_stands_for_place_and_content_in_any_order() -> None:
    one, two = Entry("a", 1, "x"), Entry("b", 2, "y")
    assert digest_of(SOURCE, [one, two]) == digest_of(SOURCE, [two, one])
    others = {
        digest_of(SOURCE, [one, two]),
        digest_of(SOURCE, [one]),
        digest_of("s3://datasets/other", [one, two]),
        digest_of(SOURCE, [Entry("a", 1, "z"), two]),
        digest_of(SOURCE, [Entry("c", 1, "x"), two]),
    }
    assert len(others) == 5


@pytest.mark.parametrize(
    "keys",
    [[], ["../x"], ["a/../x"], ["/a"], ["a//b"], ["./a"], ["a/"], ["a\0b"], ["x" * 256], ["a", "a/b"], ["a", "a"]],
)
def test_L14_keys_that_are_no_files_of_a_folder_are_a_bad_data_set(keys: list[str]) -> None:
    with pytest.raises(BadData):
        check_keys([Entry(key, 1, "") for key in keys])
    check_keys([Entry("a b/c%", 1, ""), Entry("..a", 1, ""), Entry("a b/d", 1, "")])
