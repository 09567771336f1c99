"""Staging from a real S3 server: what is found, what is away, what is bad, and what outlives the server (row L14)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from aiohttp import web
from temporalio.exceptions import ApplicationError

from holdfast.activities.data.cache import Cache, data_path
from holdfast.activities.data.record import PIECE
from holdfast.activities.data.s3 import Address, S3Storage
from holdfast.activities.data.settings import Data
from holdfast.activities.data.stage import stage
from holdfast.activities.data.storage import Away, BadData, Changed, Entry
from holdfast.activities.site.site import Site
from holdfast.cli.cluster import checks
from holdfast.model.calls.cluster import Target
from holdfast.model.calls.stage import Staged, StageInput
from holdfast.model.spec.mount import Mount
from tests.activities.data.stored import OPEN
from tests.e2e.ground.site import free_port
from tests.store import BUCKET, KEY, REGION, Store, metered, open_store

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]
ROW = pytest.mark.row
SOURCE = f"s3://{BUCKET}/corpus"
MOUNT = Mount(name="corpus", source=SOURCE, path="/data")
TARGET = Target(
    cluster="dev", namespace="team", name="t", workload_uid="u", workflow_id="w", shard=0, run_as="holdfast-runner"
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "store") as opened:
        yield opened


def storage(store: Store, endpoint: str = "", credentials: Path | None = None) -> S3Storage:
    return S3Storage(Address(endpoint or store.endpoint, REGION, True, credentials or store.credentials))


class Worker:
    """What a worker stages by, and what it has told of the store."""

    def __init__(self, store: Store, root: Path, endpoint: str = "", grants: tuple[str, ...] = (f"s3://{BUCKET}",)):
        self.seen: list[bool] = []
        self.missed = 0
        self.data = Data(
            storage(store, endpoint),
            Cache(root),
            tuple(("team", one) for one in grants),
            host_path=str(root),
            seen=self.seen.append,
            missed=self._missed,
        )

    def _missed(self) -> None:
        self.missed += 1

    async def stage(self, *mounts: Mount, **versions: str) -> Staged:
        site = cast("Site", SimpleNamespace(check=lambda _: None, data=self.data, namespaces=(), permits=OPEN))
        return await stage(site, StageInput(target=TARGET, mounts=mounts or (MOUNT,), versions=versions))


async def found(storage: S3Storage, source: str = SOURCE) -> dict[str, bytes]:
    return {
        one.key: b"".join([piece async for piece in storage.fetch(source, one)]) for one in await storage.list(source)
    }


@ROW("L14", level="e2e")
async def test_L14_all_objects_under_a_prefix_are_found_by_their_keys(store: Store) -> None:
    wanted = {"a": b"1", "deep/er/b": b"22", "odd name+%41.txt": b"333", "empty": b"", "ümlaut": b"4"}
    for key, data in wanted.items():
        store.put(f"corpus/{key}", data)
    store.put("corpus2/other", b"no")
    store.put("corpu", b"no")
    assert await found(storage(store)) == wanted
    assert set(await found(storage(store), f"s3://{BUCKET}")) == {
        *(f"corpus/{key}" for key in wanted),
        *("corpus2/other", "corpu"),
    }


async def test_more_objects_than_a_page_has_are_all_found(store: Store) -> None:
    folder = store.directory / "objects" / BUCKET / "corpus"
    folder.mkdir()
    for at in range(1234):
        (folder / f"{at:05}").write_bytes(b"x")
    assert len(await storage(store).list(SOURCE)) == 1234


@ROW("L14", level="e2e")
async def test_L14_what_an_operator_can_mend_is_away_and_what_nobody_waits_for_is_bad(store: Store) -> None:
    store.put("corpus/a", b"1")
    (entry,) = await storage(store).list(SOURCE)
    with pytest.raises(BadData, match="has no bucket nowhere"):
        await storage(store).list("s3://nowhere/corpus")
    assert await storage(store).list(f"s3://{BUCKET}/nothing") == []

    async def fetched(one: Entry) -> list[bytes]:
        return [piece async for piece in storage(store).fetch(SOURCE, one)]

    with pytest.raises(Changed):
        await fetched(replace(entry, etag='"other"'))
    with pytest.raises(Changed):
        await fetched(replace(entry, key="b"))
    file = store.directory / "mine"
    by_file = storage(store, credentials=file)
    for text, why in [
        (f"[default]\naws_access_key_id={KEY}\naws_secret_access_key=x\n", "refuses: SignatureDoesNotMatch"),
        ("[default]\naws_access_key_id=nobody\naws_secret_access_key=x\n", "refuses: "),
        ("nonsense", r"expected \[default\] with aws_access_key_id and aws_secret_access_key"),
    ]:
        file.write_text(text)
        with pytest.raises(Away, match=why):
            await by_file.list(SOURCE)
        with pytest.raises(Away, match=why):
            await by_file.answers(SOURCE)
    file.write_text(store.credentials.read_text())
    await by_file.answers(SOURCE)
    await by_file.answers("s3://nowhere")
    store.kill()
    with pytest.raises(Away, match="does not answer: Connection refused"):
        await storage(store).list(SOURCE)
    with pytest.raises(Away, match="its name is not known"):
        await storage(store, "http://nowhere.invalid:1").answers(SOURCE)


@ROW("L14", level="e2e")
async def test_L14_staging_resumes_where_a_killed_server_left_it(store: Store, tmp_path: Path) -> None:
    for at in range(16):
        store.put(f"corpus/{at:02}", bytes([at]) * 500_000)
    async with metered(store, 3_000_000) as line:
        worker = Worker(store, tmp_path / "cache", line.endpoint)
        running = asyncio.create_task(worker.stage())
        await asyncio.wait_for(line.stalled.wait(), 30)
        store.kill()
        first = await running
        assert first.sets == ()
        assert f"mount corpus ({SOURCE}): {line.endpoint} " in first.away
        assert 0 < first.fetched < 8_000_000
        assert await worker.data.away() != ""
        assert (worker.missed, worker.seen) == (1, [False, False])
        store.start()
        line.open()
        second = await worker.stage()
    assert (second.away, second.problem) == ("", "")
    assert second.fetched <= 8_000_000 - 500_000, "what was whole is not fetched again"
    (corpus,) = second.sets
    assert (corpus.files, corpus.bytes) == (16, 8_000_000)
    for at in range(16):
        assert (tmp_path / "cache/team" / data_path(corpus.digest) / f"{at:02}").read_bytes() == bytes([at]) * 500_000
    assert worker.seen[-1] is True


@ROW("L14", level="e2e")
async def test_L14_what_was_staged_needs_no_store(store: Store, tmp_path: Path) -> None:
    store.put("corpus/a", b"hello")
    worker = Worker(store, tmp_path / "cache")
    (first,) = (await worker.stage()).sets
    store.kill()
    again = await worker.stage(corpus=first.digest)
    assert (again.sets, again.fetched) == ((first,), 0)
    pinned = MOUNT.model_copy(update={"version": first.digest})
    assert (await worker.stage(pinned)).sets == (first,)
    fresh = await worker.stage()
    assert "Connection refused" in fresh.away, "another workload sees what lies there now, or waits"


@ROW("L14", level="e2e")
async def test_L14_a_changed_object_is_another_version(store: Store, tmp_path: Path) -> None:
    store.put("corpus/a", b"hello")
    worker = Worker(store, tmp_path / "cache")
    (first,) = (await worker.stage()).sets
    store.put("corpus/a", b"world")
    (second,) = (await worker.stage()).sets
    assert first.digest != second.digest
    assert (await worker.stage(corpus=first.digest)).sets == (first,), "what has begun with it goes on with it"
    lost = Worker(store, tmp_path / "other")
    bad = await lost.stage(corpus=first.digest)
    assert f"the workload began with version {first.digest}, which is not in the cache any more" in bad.problem
    assert second.digest in bad.problem
    pinned = await lost.stage(MOUNT.model_copy(update={"version": first.digest}))
    assert f"the workload asks for version {first.digest}" in pinned.problem


@ROW("L14", level="e2e")
async def test_L14_two_stage_the_same_at_once(store: Store, tmp_path: Path) -> None:
    for at in range(8):
        store.put(f"corpus/{at}", bytes([at]) * 200_000)
    workers = [Worker(store, tmp_path / "cache") for _ in range(3)]
    done = await asyncio.gather(*(one.stage() for one in workers))
    assert len({one.sets for one in done}) == 1
    assert (await workers[0].stage(corpus=done[0].sets[0].digest)).fetched == 0


@ROW("L14", level="e2e")
async def test_L14_what_is_not_granted_is_refused_before_the_store_is_asked(store: Store, tmp_path: Path) -> None:
    store.kill()
    worker = Worker(store, tmp_path, grants=(f"s3://{BUCKET}/public",))
    with pytest.raises(
        ApplicationError, match=r"source s3://datasets/corpus is not granted to namespace team"
    ) as error:
        await worker.stage()
    assert (error.value.type, error.value.non_retryable) == ("Refused", True)
    nobody = cast("Site", SimpleNamespace(check=lambda _: None, data=None, namespaces=(), permits=OPEN))
    with pytest.raises(ApplicationError, match="data_directory"):
        await stage(nobody, StageInput(target=TARGET, mounts=(MOUNT,)))


@ROW("L14", level="e2e")
async def test_L14_doctor_looks_at_the_store(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert [one async for one in checks.store("dev")] == [], "none is configured here"
    for name, value in store.settings(tmp_path / "cache").items():
        monkeypatch.setenv(name, value)
    assert [(one.name, one.good) async for one in checks.store("dev")] == [("store", True), ("data directory", True)]
    (tmp_path / "cache" / ("d" * 64)).mkdir()
    *_, old = [one async for one in checks.store("dev")]
    assert not old.good
    assert old.found == "1 data set is laid out as by earlier releases, and not used any more"
    (tmp_path / "cache" / ("d" * 64)).rmdir()
    store.kill()
    first, _ = [one async for one in checks.store(None)]
    assert not first.good
    assert first.found == f"{store.endpoint} does not answer: Connection refused"
    assert "data_endpoint" in first.remedy
    monkeypatch.setenv("HOLDFAST_DATA_SOURCES", "x")
    (wrong,) = [one async for one in checks.store(None)]
    assert "HOLDFAST_DATA_SOURCES" in wrong.found


LISTING = """<?xml version="1.0" encoding="UTF-8"?>
<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>datasets</Name><Prefix>corpus/</Prefix>
<MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated>{objects}</ListBucketResult>"""
OBJECT = """<Contents><Key>{key}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>"x"</ETag>
<Size>{size}</Size></Contents>"""


def listing(**sizes: int) -> str:
    return LISTING.format(objects="".join(OBJECT.format(key=key, size=size) for key, size in sizes.items()))


class Scripted:
    """A server that answers as it is told, since no honest one has such keys."""

    def __init__(self) -> None:
        self.status, self.text = 200, ""
        self.port = free_port()

    async def serve(self, _: web.Request) -> web.Response:
        return web.Response(status=self.status, text=self.text, content_type="application/xml")


@pytest.fixture
async def scripted() -> AsyncGenerator[Scripted]:
    server = Scripted()
    application = web.Application()
    application.router.add_route("*", "/{any:.*}", server.serve)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", server.port).start()
    yield server
    await runner.cleanup()


def client(scripted: Scripted, tmp_path: Path) -> S3Storage:
    credentials = tmp_path / "credentials"
    credentials.write_text("[default]\naws_access_key_id=k\naws_secret_access_key=s\n")
    return S3Storage(Address(f"http://127.0.0.1:{scripted.port}", REGION, True, credentials))


@pytest.mark.parametrize("key", ["corpus/../../etc/passwd", "corpus/./a", "corpus//a", "corpus/a/../b"])
async def test_L14_keys_that_leave_their_folder_are_refused(scripted: Scripted, tmp_path: Path, key: str) -> None:
    scripted.text = listing(**{key: 1})
    data = Data(client(scripted, tmp_path), Cache(tmp_path / "cache"), (("*", SOURCE),))
    site = cast("Site", SimpleNamespace(check=lambda _: None, data=data, namespaces=(), permits=OPEN))
    done = await stage(site, StageInput(target=TARGET, mounts=(MOUNT,)))
    assert done.problem.startswith(f"mount corpus ({SOURCE}): "), done
    assert not (tmp_path / "cache").exists()


async def test_what_stands_for_a_folder_is_no_file_of_the_data_set(scripted: Scripted, tmp_path: Path) -> None:
    scripted.text = listing(
        **{"corpus/": 0, "corpus/dir/": 0, "corpus/dir/a": 3, "corpus/dir/b/": 0, "corpus/dir/b/c": 0}
    )
    store = client(scripted, tmp_path)
    entries = await store.list(SOURCE)
    assert [one.key for one in entries] == ["dir/a", "dir/b/c"]
    assert [piece async for piece in store.fetch(SOURCE, entries[1])] == [], "an empty one is not asked for"


@pytest.mark.parametrize(("status", "code"), [(503, "SlowDown"), (500, "InternalError"), (403, "AccessDenied")])
async def test_L14_a_store_that_is_overrun_or_forbids_is_away(
    scripted: Scripted, tmp_path: Path, status: int, code: str
) -> None:
    scripted.status, scripted.text = status, f"<Error><Code>{code}</Code><Message>no</Message></Error>"
    with pytest.raises(Away, match=f"refuses: {code}"):
        await client(scripted, tmp_path).list(SOURCE)


@ROW("X10", level="e2e")
async def test_X10_a_half_fetched_object_goes_on_where_it_stopped(store: Store, tmp_path: Path) -> None:
    size = 3 * PIECE
    data = bytes(at % 251 for at in range(65536)) * (size // 65536)
    store.put("corpus/a", data)
    async with metered(store, size // 2) as line:
        worker = Worker(store, tmp_path / "cache", line.endpoint)
        running = asyncio.create_task(worker.stage())
        await asyncio.wait_for(line.stalled.wait(), 30)
        store.kill()
        first = await running
        assert first.away
        store.start()
        line.open()
        second = await Worker(store, tmp_path / "cache", line.endpoint).stage()
    assert first.fetched >= PIECE
    assert second.fetched == size - first.fetched, "nothing of it came twice"
    (corpus,) = second.sets
    assert (tmp_path / "cache/team" / data_path(corpus.digest) / "a").read_bytes() == data


@ROW("X10", level="e2e")
async def test_X10_a_part_of_an_object_that_changed_is_not_gone_on_with(store: Store) -> None:
    store.put("corpus/a", b"hello, kelp")
    (entry,) = await storage(store).list(SOURCE)
    assert b"".join([piece async for piece in storage(store).fetch(SOURCE, entry, 7)]) == b"kelp"
    store.put("corpus/a", b"hello, help")
    with pytest.raises(Changed):
        _ = [piece async for piece in storage(store).fetch(SOURCE, entry, 7)]
