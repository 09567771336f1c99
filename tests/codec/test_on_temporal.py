"""Encrypted payloads on a real Temporal server: what it stores, and what happens where a key is missing (row X6)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowHandle, WorkflowQueryFailedError, WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError

from holdfast.activities.entities.executions import sight
from holdfast.client.pending import activities_of
from holdfast.codec.codec import Codec
from holdfast.codec.options import options as encoding
from tests.client.server import temporal_server
from tests.codec.probe import PLACES, Headers, Works, decides, start, word, works
from tests.codec.test_codec import write
from tests.e2e.ground.site import until

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("temporal") / "temporal.sqlite"


@pytest.fixture(scope="module")
def address(database: Path) -> Iterator[str]:
    with temporal_server(database=database) as address:
        yield address


def stored(database: Path) -> bytes:
    """Everything that the server has written: the database, and what is not in it yet."""
    found = b""
    for path in sorted(database.parent.iterdir()):
        with contextlib.suppress(FileNotFoundError):  # A journal is gone once its transaction is in the database.
            found += path.read_bytes()
    return found


async def connect(address: str, keys: Path | None, *, accept_plaintext: bool = False) -> Client:
    options = encoding(keys, accept_plaintext=accept_plaintext)
    return await Client.connect(address, **options, interceptors=[Headers()])


async def failures(handle: WorkflowHandle[Any, Any]) -> list[str]:
    """The messages of failed workflow tasks, as they stand in the history."""
    return [
        event.workflow_task_failed_event_attributes.failure.message
        async for event in handle.fetch_history_events()
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED
    ]


async def held(handle: WorkflowHandle[Any, Any], words: str) -> None:
    async def check() -> bool:
        return any(words in message for message in await failures(handle))

    await until(check, 30, f"a workflow task failed with {words!r}")


@pytest.mark.parametrize("encrypted", [False, True])
async def test_X6_no_word_is_stored_in_clear_wherever_it_is_put(
    address: str, database: Path, tmp_path: Path, encrypted: bool
) -> None:
    """Without a codec each of the words is found: what looks for them can find them."""
    if not encrypted:  # A server of its own: in the other's database there must be none.
        database = tmp_path / "clear" / "temporal.sqlite"
        database.parent.mkdir()
        with temporal_server(database=database) as other:
            assert await words_after_a_life(other, database, None) == set(PLACES)
        return
    assert await words_after_a_life(address, database, write(tmp_path / "keys", "first")) == set()


async def words_after_a_life(address: str, database: Path, keys: Path | None) -> set[str]:
    """Live through every place; return the places whose word is readable in the history or the database."""
    client = await connect(address, keys)
    queue, work = f"probe-{uuid4().hex[:8]}", Works()
    async with decides(client, queue), works(client, queue, work.work):
        handle = await start(client, queue)
        assert await handle.execute_update("change", word("update")) == word("update-result")
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await handle.execute_update("change", word("update-failure"))
        assert isinstance(refused.value.cause, ApplicationError)
        assert refused.value.cause.message == word("update-failure")
        assert await handle.query("ask") == "answer"
        with pytest.raises(WorkflowQueryFailedError) as failed:
            await handle.query("refuse")
        # The SDK passes on the message of a failed query alone: encoded, it is lost.
        assert str(failed.value) == ("Encoded failure" if keys is not None else "planted-query-word")
        await until(lambda: _failed_once(handle), 90, "the activity's failure is told", pause=0.1)
        described = await handle.describe()
        dump = described.raw_description.SerializeToString()
        (pending,) = await activities_of(described)
        assert await activities_of(described) == (pending,), "reading it changes nothing"
        assert pending.last_failure == word("failure")
        assert await described.static_summary() == word("summary")
        assert await described.memo() == {"given": word("memo"), "upserted": word("upserted")}
        await handle.signal("note", word("signal"))
        during = stored(database)  # Heartbeats and failures that are tried again leave no trace in the history.
        work.may_end.set()
        result = await handle.result()
        assert result == {
            "given": word("input"),
            "back": word("activity-result"),
            "signals": [word("signal")],
            "word": word("result"),
        }
    history = (await handle.fetch_history()).to_json()
    assert '"eventType"' in history
    everything = history.encode() + dump + during + stored(database)
    return {place for place in PLACES if word(place).encode() in everything or _base64(word(place)) in everything}


def _base64(text: str) -> bytes:
    """The part of a text's base64 that is the same wherever it begins in a JSON string at the first byte."""
    import base64

    return base64.b64encode(f'"{text}"'.encode())[:-4]


async def _failed_once(handle: WorkflowHandle[Any, Any]) -> bool:
    found = await activities_of(await handle.describe())
    return bool(found) and bool(found[0].last_failure)


async def test_X6_a_worker_that_lacks_a_key_holds_the_workflow_and_says_which(address: str, tmp_path: Path) -> None:
    """The signals that came meanwhile are there once it has the key, and the old key's payloads are read beside."""
    ours, theirs = write(tmp_path / "ours", "old"), write(tmp_path / "theirs", "old")
    client, worker = await connect(address, ours), await connect(address, theirs)
    newer = await connect(address, write(tmp_path / "newer", "new", "old", "new"))
    queue, work = f"probe-{uuid4().hex[:8]}", Works()
    work.may_end.set()
    async with decides(worker, queue), works(worker, queue, work.work):
        handle = await start(client, queue, expected=3)
        await handle.signal("note", "one")
        await newer.get_workflow_handle(queue).signal("note", "two")
        await held(handle, f"encrypted with key 'new', which {theirs} lacks: add it there")
        await handle.signal("note", "three")
        own = worker.data_converter.payload_codec
        assert isinstance(own, Codec)
        assert "key 'new'" in own.problems()[0]
        assert "key 'new'" in (await sight(client, queue)).undecodable
        write(theirs, "new", "old", "new")
        assert (await newer.get_workflow_handle(queue).result())["signals"] == ["one", "two", "three"]
        assert own.problems() == []
    history = await handle.fetch_history()
    used = {name for name in ("old", "new") if f'"{_base64_of(name)}"' in history.to_json()}
    assert used == {"old", "new"}, "both keys in one history"


def _base64_of(name: str) -> str:
    import base64

    return base64.b64encode(name.encode()).decode()


async def test_X6_an_activity_whose_input_or_heartbeat_cannot_be_read_is_tried_again(
    address: str, tmp_path: Path
) -> None:
    """The SDK gives up on a heartbeat that it cannot decode; here the key comes, and the activity goes on."""
    keys, lacking = write(tmp_path / "keys", "old"), write(tmp_path / "lacking", "old")
    client = await connect(address, keys)
    newer = await connect(address, write(tmp_path / "newer", "new", "old", "new"))
    older = await connect(address, lacking)
    queue, work = f"probe-{uuid4().hex[:8]}", Works()
    async with decides(client, queue):
        handle = await start(client, queue)
        await handle.signal("note", "one")
        async with works(newer, queue, work.work):
            await work.failed.wait()  # Its heartbeat and its failure are of the key `new`.
        async with works(older, queue, work.work):
            last = list[str]()

            async def refused() -> bool:
                found = await activities_of(await newer.get_workflow_handle(queue).describe())
                last[:] = [one.last_failure for one in found]
                return any("Failed decoding heartbeat details" in one for one in last)

            await until(refused, 30, lambda: f"the heartbeat is refused: {last}", pause=0.1)
            work.may_end.set()
            write(lacking, "old", "old", "new")
            write(keys, "old", "old", "new")
            assert (await newer.get_workflow_handle(queue).result())["back"] == word("activity-result")


async def test_X6_a_worker_without_a_key_file_drops_no_encrypted_signal(address: str, tmp_path: Path) -> None:
    keys = write(tmp_path / "keys", "first")
    bare, client = await connect(address, None), await connect(address, keys)
    queue, work = f"probe-{uuid4().hex[:8]}", Works()
    work.may_end.set()
    handle = await start(client, queue, expected=2)
    async with decides(bare, queue):
        await handle.signal("note", "one")
        await held(handle, "encrypted with key 'first', and there is no key file: HOLDFAST_CODEC_KEYS names one")
        await handle.signal("note", "two")
    async with decides(client, queue), works(client, queue, work.work):
        assert (await handle.result())["signals"] == ["one", "two"]


async def test_X6_plaintext_is_held_until_a_worker_accepts_it(address: str, tmp_path: Path) -> None:
    keys = write(tmp_path / "keys", "first")
    client, plain = await connect(address, keys), await Client.connect(address)
    queue, work = f"probe-{uuid4().hex[:8]}", Works()
    work.may_end.set()
    async with works(client, queue, work.work):
        async with decides(client, queue):
            handle = await start(client, queue)
            await plain.get_workflow_handle(queue).signal("note", "by hand")
            await held(handle, "plaintext is refused here: HOLDFAST_CODEC_ACCEPT_PLAINTEXT=1 accepts it")
        accepting = await connect(address, keys, accept_plaintext=True)
        async with decides(accepting, queue):
            assert (await handle.result())["signals"] == ["by hand"]
