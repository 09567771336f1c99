"""A half-fetched object goes on where it stopped, as far as what was written is proven (row X10)."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.activities.data.cache import Cache
from tests.activities.data.stored import Memory, content, staged

pytestmark = pytest.mark.row("X10", level="pure")
DATA = b"0123456789abcdef"
"""Four pieces."""


async def half(cache: Cache, store: Memory, pieces: int = 2) -> None:
    store.breaks_after = pieces
    assert "memory does not answer" in (await staged(cache, store, "u", "corpus")).away
    store.breaks_after = None
    store.asked.clear()


def parts(root: Path) -> list[Path]:
    return list(root.glob("team/*/part/*"))


def part(root: Path) -> Path:
    (found,) = [one for one in parts(root) if one.suffix != ".jsonl"]
    return found


def journal(root: Path) -> Path:
    (found,) = root.glob("team/*/part/*.jsonl")
    return found


async def whole(root: Path, cache: Cache, store: Memory, data: bytes = DATA) -> None:
    done = await staged(cache, store, "u", "corpus")
    assert (done.away, done.problem) == ("", "")
    assert content(root, "team", done.sets[0].digest) == {"a": data}
    assert parts(root) == []


async def test_X10_it_goes_on_where_it_stopped_in_this_worker_or_another(tmp_path: Path) -> None:
    store = Memory(corpus={"a": DATA})
    await half(Cache(tmp_path), store)
    await half(Cache(tmp_path), store, 1)
    await whole(tmp_path, Cache(tmp_path), store)
    assert store.asked == [("a", 12)]


@pytest.mark.parametrize(("bytes_kept", "start"), [(0, 0), (3, 0), (4, 4), (7, 4), (8, 8)])
async def test_X10_what_a_crash_cut_off_is_fetched_again(tmp_path: Path, bytes_kept: int, start: int) -> None:
    store = Memory(corpus={"a": DATA})
    await half(Cache(tmp_path), store)
    with part(tmp_path).open("r+b") as file:
        file.truncate(bytes_kept)
    await whole(tmp_path, Cache(tmp_path), store)
    assert store.asked == [("a", start)]


@pytest.mark.parametrize(("at", "start"), [(0, 0), (5, 4)])
async def test_X10_a_part_that_was_changed_counts_up_to_the_change(tmp_path: Path, at: int, start: int) -> None:
    store = Memory(corpus={"a": DATA})
    store.etags["datasets/corpus/a"] = '"one-2"'  # It states no content.
    await half(Cache(tmp_path), store)
    with part(tmp_path).open("r+b") as file:
        file.seek(at)
        file.write(b"!")
    await whole(tmp_path, Cache(tmp_path), store)
    assert store.asked == [("a", start)]


async def test_X10_a_torn_line_of_the_journal_costs_what_it_told(tmp_path: Path) -> None:
    store = Memory(corpus={"a": DATA})
    await half(Cache(tmp_path), store)
    text = journal(tmp_path).read_bytes()
    journal(tmp_path).write_bytes(text[:-9])
    await whole(tmp_path, Cache(tmp_path), store)
    assert store.asked == [("a", 4)]


async def test_X10_another_version_of_an_object_begins_anew(tmp_path: Path) -> None:
    store = Memory(corpus={"a": DATA})
    await half(Cache(tmp_path), store)
    store.objects["datasets/corpus/a"] = DATA[::-1]
    done = await staged(Cache(tmp_path), store, "u", "corpus")
    assert content(tmp_path, "team", done.sets[0].digest) == {"a": DATA[::-1]}
    assert store.asked == [("a", 0)]


async def test_X10_content_that_is_not_what_the_etag_states_is_fetched_twice_and_then_believed(tmp_path: Path) -> None:
    """So it is with encryption by keys of a service: such an etag is no MD5."""
    store, cache = Memory(corpus={"a": DATA, "b": DATA}), Cache(tmp_path)
    store.etags |= {f"datasets/corpus/{key}": f'"{key * 32}"' for key in "ab"}
    done = await staged(cache, store, "u", "corpus")
    assert content(tmp_path, "team", done.sets[0].digest) == {"a": DATA, "b": DATA}
    assert 3 <= len(store.asked) <= 4
    store.objects["datasets/corpus/c"] = DATA
    store.etags["datasets/corpus/c"] = f'"{"c" * 32}"'
    store.asked.clear()
    assert (await staged(cache, store, "u", "corpus")).sets
    assert len(store.asked) == 3, "known by now"


async def test_X10_content_that_is_not_what_the_etag_states_once_is_repaired(tmp_path: Path) -> None:
    store, cache = Memory(corpus={"a": DATA}), Cache(tmp_path)
    fetch = store.fetch

    async def garbled(source, entry, start=0):  # type: ignore[no-untyped-def]
        first = not store.asked
        async for piece in fetch(source, entry, start):
            yield bytes(len(piece)) if first else piece

    store.fetch = garbled  # type: ignore[method-assign]
    await whole(tmp_path, cache, store)
    assert store.asked == [("a", 0), ("a", 0)]
