"""The informer against a real API server: pages, a version that is too old, rights for one namespace only."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from holdfast import names
from holdfast.activities.facts.nodes import Marks
from holdfast.activities.facts.workload_key import WorkloadKey
from holdfast.activities.kube.blindness import Sight
from holdfast.activities.kube.client import Kube, Object
from holdfast.local import Stack
from holdfast.worker.runtime.kube import WorkerKube
from holdfast.worker.runtime.metrics import Metrics
from holdfast.worker.watch.cache import Cache
from holdfast.worker.watch.feeds import ANCHOR, ATTEMPT, NODE, Feeds
from holdfast.worker.watch.informer import Informer, Standing, StreamSight
from holdfast.worker.watch.pulse import Pulse
from tests.activities.line import Line
from tests.activities.versions import alone, compact
from tests.worker.ground import Ground

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]


class Seen:
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.puts = 0

    def put(self, item: str) -> None:
        self.names.add(item)
        self.puts += 1

    def drop(self, item: str, revision: int) -> None:
        assert revision > 0
        self.names.discard(item)


async def until(what: Callable[[], bool], seconds: float = 15) -> None:
    end = asyncio.get_running_loop().time() + seconds
    while not what():
        assert asyncio.get_running_loop().time() < end, "it did not happen"
        await asyncio.sleep(0.02)


async def config_map(ground: Ground, name: str) -> None:
    metadata = {"name": name, "namespace": ground.namespace, "labels": {"test": "informer"}}
    await ground.kube.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})


async def delete(kube: Kube, namespace: str, name: str) -> None:
    found = await kube.get("v1", "ConfigMap", name, namespace)
    await kube.delete("v1", "ConfigMap", name, namespace, uid=found["metadata"]["uid"])


@asynccontextmanager
async def informing(
    ground: Ground,
    kubeconfig: str,
    quiet: float = 10.0,
    decode: Callable[[Object], str] = lambda raw: str(raw["metadata"]["name"]),
    pulse: str = "",
) -> AsyncIterator[tuple[Informer[str], Seen]]:
    beat = Pulse(await Kube.connect(pulse or kubeconfig, timeout=1 if pulse else 3))
    seen = Seen()
    informer = Informer(
        await WorkerKube.connect(kubeconfig, sight=StreamSight(beat)),
        "v1",
        "ConfigMap",
        sink=seen,
        decode=decode,
        pulse=beat,
        metrics=Metrics(),
        namespace=ground.namespace,
        labels="test=informer",
        quiet=quiet,
    )
    tasks = [asyncio.create_task(beat.run()), asyncio.create_task(informer.run())]
    try:
        yield informer, seen
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await beat.kube.close()


@asynccontextmanager
async def by_line(stack: Stack, ground: Ground) -> AsyncIterator[tuple[Line, str]]:
    """Yield a line to the API server, and a kubeconfig with all rights that goes by it."""
    document: dict[str, Any] = yaml.safe_load(stack.kubeconfig.read_text())
    server = urlsplit(document["clusters"][0]["cluster"]["server"])
    async with Line(server.hostname or "", server.port or 443) as line:
        document["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{line.port}"
        path = stack.kubeconfig.parent / f"{ground.cluster}-line.kubeconfig"
        path.write_text(yaml.safe_dump(document))
        yield line, str(path)


@pytest.fixture
def admin(stack: Stack, ground: Ground) -> str:
    """A kubeconfig with all rights, through the proxy."""
    document: dict[str, Any] = yaml.safe_load(stack.kubeconfig.read_text())
    document["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{ground.proxy.port}"
    path = stack.kubeconfig.parent / f"{ground.cluster}.kubeconfig"
    path.write_text(yaml.safe_dump(document))
    return str(path)


async def test_a_list_comes_page_by_page(ground: Ground, admin: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.worker.watch.informer.PAGE", 2)
    for index in range(5):
        await config_map(ground, f"c{index}")
    async with informing(ground, admin) as (informer, seen):
        await until(lambda: informer.settled)
        assert seen.names == {f"c{index}" for index in range(5)}
        await config_map(ground, "later")
        await until(lambda: "later" in seen.names)
        listed = informer.version
        await delete(ground.kube, ground.namespace, "c0")
        await until(lambda: "c0" not in seen.names)
        assert informer.version > listed > 0


@pytest.mark.timeout(120)
async def test_a_list_that_was_too_slow_is_begun_anew_in_pages_and_what_went_meanwhile_is_gone(
    stack: Stack, ground: Ground, admin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.worker.watch.informer.PAGE", 2)
    for name in ("b", "c", "d", "e"):
        await config_map(ground, name)
    ask, asked = WorkerKube.page, list[str]()

    async def slow(self: WorkerKube, path: str, query: dict[str, str]) -> Object:
        if "limit" in query and query["limit"] == "2":
            asked.append(query.get("continue", ""))
            if len(asked) == 2:
                await delete(ground.kube, ground.namespace, "b")
                await config_map(ground, "a")
                await compact(stack, ground.kube)
        return await ask(self, path, query)

    monkeypatch.setattr(WorkerKube, "page", slow)
    async with alone(stack), informing(ground, admin) as (informer, seen):
        await until(lambda: informer.settled, 60)
        assert seen.names == {"a", "c", "d", "e"}
        again = [bool(token) for token in asked[2:]]
        assert again == [False, *(True for _ in again[1:])], "from the beginning, and in pages"
        assert len(again) > 1
        assert informer._metrics.relists.labels("configmaps", "expired")._value.get() == 1


@pytest.mark.row("D11", level="e2e")
@pytest.mark.row("D2", level="e2e")
async def test_D11_an_object_that_cannot_be_decoded_stays_as_it_was_and_ends_no_watch(
    ground: Ground, admin: str
) -> None:
    async def write(name: str, text: str) -> None:
        found = await ground.kube.get("v1", "ConfigMap", name, ground.namespace)
        key = ("v1", "ConfigMap", name, ground.namespace)
        await ground.kube.patch(*key, uid=found["metadata"]["uid"], patch={"data": {"number": text}})

    def decode(raw: Object) -> str:
        return f"{raw['metadata']['name']} {int(raw.get('data', {}).get('number', 0))}"

    def skipped() -> float:
        return informer._metrics.skipped.labels("ConfigMap.v1")._value.get()

    for name in ("a", "bad", "c"):
        await config_map(ground, name)
    await write("bad", "no number")
    async with informing(ground, admin, decode=decode) as (informer, seen):
        await until(lambda: informer.settled)
        assert seen.names == {"a 0", "c 0"}
        assert skipped() == 1
        await write("a", "no number")
        await config_map(ground, "d")
        await until(lambda: "d 0" in seen.names)
        assert seen.names == {"a 0", "c 0", "d 0"}, "what was known of it counts"
        assert skipped() == 2
        await write("bad", "7")
        await until(lambda: "bad 7" in seen.names)
        await delete(ground.kube, ground.namespace, "a")
        await until(lambda: seen.names == {"c 0", "d 0", "bad 7"})
        assert informer._unread == set()


async def test_a_version_too_old_lists_again_and_misses_nothing(ground: Ground, admin: str) -> None:
    for name in ("stays", "goes"):
        await config_map(ground, name)
    async with informing(ground, admin) as (informer, seen):
        await until(lambda: informer.settled)
        await ground.proxy.cut()
        await delete(ground.kube, ground.namespace, "goes")
        await config_map(ground, "comes")
        await until(lambda: informer.sight.blind)
        informer._version = "1"
        await ground.proxy.restore()
        await until(lambda: seen.names == {"stays", "comes"})
        assert informer._metrics.relists.labels("configmaps", "expired")._value.get() == 1


async def test_an_idle_stream_is_opened_anew_without_blindness(
    ground: Ground, admin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.worker.watch.pulse.PERIOD", 0.1)  # Well below the silence that is borne.
    await config_map(ground, "one")
    async with informing(ground, admin, quiet=2.0) as (informer, seen):
        await until(lambda: informer.settled)
        await asyncio.sleep(5)
        assert informer._failures == 0
        await config_map(ground, "two")
        await until(lambda: "two" in seen.names, 20)
        assert (informer.sight.blind, seen.puts) == (False, 2)


@pytest.mark.row("U1", level="e2e")
@pytest.mark.parametrize("news", [False, True], ids=["silent", "news come first"])
async def test_U1_a_silent_stream_is_broken_off_when_the_server_answers_nothing_for_long(
    stack: Stack, ground: Ground, admin: str, monkeypatch: pytest.MonkeyPatch, news: bool
) -> None:
    """The pulse alone is held up here, so that what breaks the stream off is its darkness."""
    dark = timedelta(seconds=6 if news else 3)  # The news must come before that.
    monkeypatch.setattr("holdfast.worker.watch.pulse.PERIOD", 0.1)
    monkeypatch.setattr("holdfast.worker.watch.informer.DARK", dark)
    opened, watch = list[datetime](), WorkerKube.watch

    def counted(*given: Any, **options: Any) -> AsyncIterator[Object]:
        opened.append(datetime.now(UTC))
        return watch(*given, **options)

    monkeypatch.setattr(WorkerKube, "watch", counted)
    async with by_line(stack, ground) as (line, path), informing(ground, admin, pulse=path) as (informer, seen):
        await until(lambda: informer.settled and len(opened) == 1 and informer._pulse.alive)
        line.hold()
        last = informer._pulse.felt
        if news:
            await asyncio.sleep(1)
            last = datetime.now(UTC)
            await config_map(ground, "news")
            await until(lambda: "news" in seen.names)
        await until(lambda: len(opened) > 1, 30)
        assert last is not None
        assert opened[1] - last >= dark, "a stream on which something came is no silent one"
        line.mend()
        await until(lambda: not informer.sight.blind)
        spans = informer.sight.intervals(last - timedelta(minutes=1))
        assert any(one.end - one.begin >= dark for one in spans), "since the last news it saw nothing"
        await config_map(ground, "later")
        await until(lambda: "later" in seen.names)


async def test_streams_that_a_proxy_cuts_when_they_are_silent_are_opened_anew_at_once(
    ground: Ground, admin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("worker.watch.informer", "activities.kube.http"):
        monkeypatch.setattr(f"holdfast.{module}.LASTING", timedelta(seconds=0.3))
    async with informing(ground, admin) as (informer, seen):
        await until(lambda: informer.settled)
        for _ in range(6):
            await asyncio.sleep(0.5)
            begun = informer._begun
            await ground.proxy.cut()
            await ground.proxy.restore()
            await until(lambda begun=begun: informer._begun > begun)
        assert informer._failures <= 1, "it waits no longer from cut to cut"
        await config_map(ground, "later")
        await until(lambda: "later" in seen.names)


@pytest.mark.row("U1", level="e2e")
async def test_U1_a_silent_stream_that_a_proxy_cuts_is_no_blindness(
    stack: Stack, ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.activities.kube.http.LASTING", timedelta(seconds=0.3))
    async with by_line(stack, ground) as (line, path), informing(ground, path) as (informer, seen):
        await until(lambda: informer.settled and informer._begun > 0)
        since = datetime.now(UTC)
        await config_map(ground, "c0")
        await until(lambda: "c0" in seen.names)  # A stream that has brought something is open.
        for index in range(1, 5):
            await asyncio.sleep(0.8)
            begun = informer._begun
            line.drop()
            await until(lambda begun=begun: informer._begun > begun)
            await config_map(ground, f"c{index}")
            await until(lambda index=index: f"c{index}" in seen.names)
        assert seen.names == {f"c{index}" for index in range(5)}
        assert informer.sight.intervals(since) == ()
        assert informer._failures == 0
        await asyncio.sleep(0.8)
        line.cut()
        await until(lambda: informer.sight.blind)
        line.mend()
        await until(lambda: not informer.sight.blind)
        assert len(informer.sight.intervals(since)) == 1, "the stream was cut, and nobody answered"


async def test_where_all_namespaces_are_forbidden_the_named_ones_are_watched(stack: Stack, ground: Ground) -> None:
    namespace = ground.namespace
    stack.kubectl("create", "serviceaccount", "narrow", "-n", namespace)
    stack.kubectl(
        *("create", "role", "narrow", "-n", namespace, "--verb=get,list,watch"),
        "--resource=pods,jobs.batch,anchors.holdfast.dev,attempts.holdfast.dev,workloads.holdfast.dev,"
        "appwrappers.workload.codeflare.dev,jobsets.jobset.x-k8s.io",
    )
    stack.kubectl(
        *("create", "rolebinding", "narrow", "-n", namespace, "--role=narrow"), f"--serviceaccount={namespace}:narrow"
    )
    token = stack.kubectl("create", "token", "narrow", "-n", namespace).strip()
    document: dict[str, Any] = yaml.safe_load(stack.kubeconfig.read_text())
    document["users"][0]["user"] = {"token": token}
    path = stack.kubeconfig.parent / f"{ground.cluster}-narrow.kubeconfig"
    path.write_text(yaml.safe_dump(document))

    async def connect(sight: Sight, deadline: float | None) -> WorkerKube:
        return await WorkerKube.connect(str(path), sight=sight, timeout=deadline or 10)

    cache = Cache()
    feeds = Feeds(
        cache,
        connect=connect,
        installation=ground.cluster,
        cluster=ground.cluster,
        shards=(0, names.SHARDS - 1),
        namespaces=[namespace],
        metrics=Metrics(),
        touch=lambda workloads, hot: None,
        marks=Marks(),
    )
    await feeds.begin()
    await feeds.open()
    try:
        await until(lambda: feeds.settled)
        await until(lambda: feeds.unseen() == {NODE})
        assert not feeds.blind, "what one may not read is no blindness"
        assert {informer.standing for informer in feeds._feeds[ANCHOR].informers} == {
            Standing.FORBIDDEN,
            Standing.SYNCED,
        }
        await ground.workload("near")
        near = WorkloadKey(namespace, "near")
        await until(lambda: cache.pods_of(near) == 2)
        newest = cache.newest(near)
        assert newest is not None
        await until(lambda: feeds.settled_for(newest))
        assert cache.doubtful(newest) == []
        # Where nothing can be read there is no version; the readable namespace has one.
        assert feeds.version(namespace, newest.kinds) > 0
        assert feeds.version("elsewhere") == 0
        assert feeds._feeds[ATTEMPT].settled
    finally:
        await feeds.close()
        path.unlink()
