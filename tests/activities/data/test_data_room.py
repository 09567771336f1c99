"""The quota of a namespace: what is used stays, what nobody uses goes, and no crash or rival changes that (row X10)."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
from collections.abc import AsyncGenerator
from contextlib import suppress
from pathlib import Path

import pytest

from holdfast.activities.data.cache import Cache
from holdfast.activities.data.folder import Folder
from holdfast.activities.data.record import Seal
from holdfast.activities.data.room import Use
from holdfast.activities.data.storage import Changed, Entry
from tests.activities.data.stored import Memory, content, knows, staged

pytestmark = pytest.mark.row("X10", level="pure")


def store() -> Memory:
    return Memory(a={"f": b"a" * 40}, b={"f": b"b" * 40}, c={"f": b"c" * 40}, big={"f": b"x" * 101})


def cache(root: Path, quota: int | None = 100) -> Cache:
    return Cache(root, lambda namespace: quota if namespace == "team" else None)


def digests(root: Path) -> set[str]:
    return {one.name for one in (root / "team").iterdir() if not one.name.startswith(".")}


def occupied(root: Path) -> int:
    """Bytes of files in place; others may remove some of them meanwhile."""
    found = 0
    for path in root.glob("team/[0-9a-f]*/data/*"):
        with suppress(FileNotFoundError):
            found += path.stat().st_size
    return found


async def digest_of(cache: Cache, store: Memory, uid: str, name: str, over: set[str] | None = None) -> str:
    done = await staged(cache, store, uid, name, ended=knows(over or set()))
    assert done.sets, done
    return done.sets[0].digest


async def test_X10_the_longest_unused_goes_and_what_is_used_stays(tmp_path: Path) -> None:
    one, objects = cache(tmp_path), store()
    a = await digest_of(one, objects, "u", "a")
    b = await digest_of(one, objects, "v", "b")
    held = await staged(one, objects, "w", "c", ended=knows(set()))
    assert held.away.startswith("mount c (s3://datasets/c): namespace team has no room for it: it needs 40 B")
    assert "(setting `data_quotas`)" in held.away
    assert digests(tmp_path) == {a, b}
    c = await digest_of(one, objects, "w", "c", {"u", "v"})
    assert digests(tmp_path) == {b, c}, "both have ended, and the older one goes"
    assert occupied(tmp_path) == 80
    assert not list((tmp_path / "team/.gone").iterdir())
    a = await digest_of(one, objects, "x", "a", {"v"})
    assert digests(tmp_path) == {a, c}
    assert content(tmp_path, "team", a) == {"f": b"a" * 40}


async def test_X10_staging_it_again_makes_it_young(tmp_path: Path) -> None:
    one, objects = cache(tmp_path), store()
    a = await digest_of(one, objects, "u", "a")
    b = await digest_of(one, objects, "v", "b")
    os.utime(tmp_path / "team" / a / "room.json", (1, 1))
    assert await digest_of(one, objects, "w", "a") == a
    c = await digest_of(one, objects, "x", "c", {"u", "v", "w"})
    assert digests(tmp_path) == {a, c}, b


async def test_X10_who_cannot_be_asked_is_not_gone(tmp_path: Path) -> None:
    one, objects = cache(tmp_path), store()
    a, b = await digest_of(one, objects, "u", "a"), await digest_of(one, objects, "v", "b")
    for mark in (tmp_path / "team" / a / "uses").iterdir():
        mark.write_bytes(b"{")  # What a torn disk or a pod has left: a use by somebody unknown.
    c = await digest_of(one, objects, "w", "c", {"u", "v"})
    assert digests(tmp_path) == {a, c}
    assert b not in digests(tmp_path)


async def test_X10_what_never_fits_fails_and_what_the_workload_itself_holds_counts(tmp_path: Path) -> None:
    one, objects = cache(tmp_path), store()
    done = await staged(one, objects, "u", "big")
    assert (done.away, done.sets) == ("", ())
    assert "it has 101 B: expected at most the quota, 100 B (setting `data_quotas`)" in done.problem
    done = await staged(one, objects, "u", "a", "b", "c")
    assert "120 B with the others that the workload reads: expected at most the quota, 100 B" in done.problem
    assert occupied(tmp_path) == 80
    c = await digest_of(one, objects, "v", "c")
    assert c in digests(tmp_path), "what has not begun holds no room"
    assert (await staged(one, objects, "u", "big", namespace="other")).sets, "another namespace has no quota"


async def test_X10_two_that_have_not_begun_do_not_wait_for_each_other(tmp_path: Path) -> None:
    one, objects = cache(tmp_path), store()
    await digest_of(one, objects, "u", "a")
    assert (await staged(one, objects, "v", "b", "c")).away
    assert (await staged(one, objects, "w", "c")).sets, "v waits without any room"


async def test_X10_what_has_begun_keeps_its_room_while_it_waits(tmp_path: Path) -> None:
    one, objects = cache(tmp_path), store()
    a = await digest_of(one, objects, "u", "a")
    (tmp_path / "team" / a / "data/f").unlink()
    objects.breaks_after = 0
    assert (await staged(one, objects, "u", "a", a=a)).away
    objects.breaks_after = None
    await digest_of(one, objects, "v", "b")
    assert (await staged(one, objects, "w", "c")).away, "u is as good as running"
    assert (await staged(one, objects, "u", "a", a=a)).sets


async def test_X10_a_late_staging_does_not_take_back_the_mark_of_the_next(tmp_path: Path) -> None:
    one, objects = cache(tmp_path), store()
    room, late = one.room("team"), Use("u", "u", "dev")
    a = await digest_of(one, objects, "u", "a")
    assert await room.use(a, late)
    assert await digest_of(one, objects, "u", "a") == a
    await room.release(a, late)
    await digest_of(one, objects, "v", "b")
    assert (await staged(one, objects, "w", "c")).away


async def test_X10_many_at_once_never_exceed_the_quota(tmp_path: Path) -> None:
    """Each with a cache of its own, as workers on other machines."""
    objects = Memory(**{f"s{at}": {"f": bytes([at]) * 30} for at in range(6)})
    over, answered = set[str](), set[int]()
    all_answered = asyncio.Event()

    async def one(at: int) -> int:
        mine, tries = cache(tmp_path), 0
        while not (done := await staged(mine, objects, f"u{at}", f"s{at}", ended=knows(over))).sets:
            assert done.away, done
            tries += 1
            answer(at)
            await all_answered.wait()
            await asyncio.sleep(0.01)
        answer(at)
        await all_answered.wait()
        assert content(tmp_path, "team", done.sets[0].digest) == {"f": bytes([at]) * 30}
        assert occupied(tmp_path) <= 100
        over.add(f"u{at}")
        return tries

    def answer(at: int) -> None:
        answered.add(at)
        if len(answered) == 6:
            all_answered.set()

    tries = await asyncio.wait_for(asyncio.gather(*(one(at) for at in range(6))), 30)
    assert sum(one > 0 for one in tries) >= 3, "at most three fit at once"


async def test_X10_a_lock_that_another_worker_holds_is_waited_for(tmp_path: Path) -> None:
    one, objects = cache(tmp_path), store()
    await digest_of(one, objects, "u", "a")
    with (tmp_path / "team/.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        waiting = asyncio.create_task(staged(one, objects, "v", "b"))
        done, _ = await asyncio.wait({waiting}, timeout=0.2)
        assert not done
        fcntl.flock(lock, fcntl.LOCK_UN)
        assert (await asyncio.wait_for(waiting, 10)).sets


async def test_X10_a_pod_cannot_say_that_a_data_set_takes_no_room(tmp_path: Path) -> None:
    one = Cache(tmp_path, lambda _: 100, Seal(bytes(range(32))))
    objects = store()
    await digest_of(one, objects, "u", "a")
    b = await digest_of(one, objects, "v", "b")
    for forged in (Seal(b"a pod's own key").write(f"team/{b}/room.json", {"bytes": 0}), b'{"bytes": 0}'):
        (tmp_path / "team" / b / "room.json").write_bytes(forged)
        assert "has no room for it" in (await staged(one, objects, "w", "c", ended=knows(set()))).away


@pytest.mark.row("D49", level="pure")
async def test_D49_a_disk_too_full_for_a_reservation_empties_of_abandoned_parts_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, objects = cache(tmp_path), store()
    part = tmp_path / "other" / "dead" / "part" / "half"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"half")
    os.utime(part, (1, 1))
    write = Folder.write

    def full(folder: Folder, name: str, text: bytes) -> None:
        if part.exists():
            raise OSError(errno.ENOSPC, "No space left on device")
        write(folder, name, text)

    monkeypatch.setattr(Folder, "write", full)
    a = await digest_of(one, objects, "u", "a")
    assert not part.exists()
    assert content(tmp_path, "team", a) == {"f": b"a" * 40}
    part.write_bytes(b"half")  # It is written now: nothing can be freed.
    assert "No space left on device" in (await staged(one, objects, "v", "b")).away
    assert part.exists()


async def test_X10_a_data_set_that_changes_while_it_is_fetched_holds_the_room_of_its_new_version_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The quota has room for one version, not for two."""
    one, objects = cache(tmp_path), Memory(a={"f": b"1" * 60})
    fetch, changed = objects.fetch, b"2" * 61

    async def changing(source: str, entry: Entry, start: int = 0) -> AsyncGenerator[bytes]:
        objects.objects["datasets/a/f"] = changed
        async for piece in fetch(source, entry, start):
            yield piece

    monkeypatch.setattr(objects, "fetch", changing)
    a = await digest_of(one, objects, "u", "a")
    assert content(tmp_path, "team", a) == {"f": changed}
    assert digests(tmp_path) == {a}


async def test_X10_the_version_that_a_changed_data_set_had_is_nobodys(tmp_path: Path) -> None:
    """Its workload reads the new version, which another one has staged; the quota has room for both."""
    one, objects = cache(tmp_path, 130), Memory(a={"f": b"1" * 60}, b={"f": b"b" * 60})
    objects.breaks_after = 1
    whole = objects.fetch

    async def changing(source: str, entry: Entry, start: int = 0) -> AsyncGenerator[bytes]:
        objects.objects["datasets/a/f"] = b"2" * 61
        objects.breaks_after = None
        objects.fetch = whole
        await digest_of(one, objects, "v", "a")
        raise Changed(entry.key)
        yield b""

    objects.fetch = changing
    a = await digest_of(one, objects, "u", "a")
    b = await digest_of(one, objects, "w", "b")
    assert digests(tmp_path) == {a, b}, "what is left of the first version went"
