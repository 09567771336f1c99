"""What one try of the watch does beside its streams: it begins, and hears of refusals. Pure."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest
from kubernetes.aio.client import Configuration
from kubernetes.aio.config import ConfigException
from temporalio.testing import ActivityEnvironment

from holdfast import formats
from holdfast.activities.facts.nodes import Marks
from holdfast.activities.facts.workload_key import WorkloadKey
from holdfast.activities.kube import client as kube_client
from holdfast.activities.kube import http
from holdfast.activities.kube.blindness import Sight
from holdfast.activities.kube.client import Unreachable
from holdfast.activities.kube.resources import Resource
from holdfast.model import Interval
from holdfast.model.calls.cluster import WatchInput, WatchNodesInput
from holdfast.model.entities.nodes import NodeTimings
from holdfast.worker.nodes import watch as nodes
from holdfast.worker.nodes.watch import NodeWatchActivities
from holdfast.worker.runtime.kube import Connector, WorkerKube
from holdfast.worker.runtime.metrics import Metrics
from holdfast.worker.runtime.settings import SettingsError
from holdfast.worker.watch import watch
from holdfast.worker.watch.feeds import ATTEMPT, NODE
from holdfast.worker.watch.front_door import FrontDoor, Place
from holdfast.worker.watch.informer import Informer, StreamSight
from holdfast.worker.watch.pulse import Pulse
from holdfast.worker.watch.seen import ANCHOR, POD, AttemptSeen, KindKey
from holdfast.worker.watch.watch import Memory, WatchActivities, _Watching  # pyright: ignore[reportPrivateUsage]
from tests.agent.virtual import in_virtual_time

ROW = pytest.mark.row
GIVEN = WatchInput(cluster="dev", cluster_uid="uid", shards=(1, 2))


class Away:
    """Makes clients of an API server that does not answer."""

    def __init__(self, seconds: float = 0, most: int = 100) -> None:
        """Take so many seconds for each client, and make no more than the most."""
        self.clients: list[WorkerKube] = []
        self.closed = set[WorkerKube]()
        self._seconds, self._most = seconds, most

    async def __call__(self, sight: Sight, deadline: float | None) -> WorkerKube:
        away = self
        await asyncio.sleep(self._seconds)
        if len(self.clients) == self._most:
            raise SettingsError("kubeconfig: the credential program has failed")

        class Client(WorkerKube):
            async def close(self) -> None:
                away.closed.add(self)
                await super().close()

        self.clients.append(Client(Configuration(host="http://127.0.0.1:9"), sight=sight))
        return self.clients[-1]


def watching(connect: Away) -> _Watching:
    owner = WatchActivities(
        Mock(), connect, cluster_uid="uid", installation="dev", metrics=Metrics(), namespaces=("a", "b")
    )
    return _Watching(owner, GIVEN, Memory())


@ROW("D34", level="pure")
async def test_D34_events_that_cannot_be_listed_do_not_make_the_cluster_count_as_unseen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watch, "REFUSALS_EVERY", 0.01)
    connect = Away()
    one = watching(connect)
    one.feeds._pulse = Pulse(await connect(Sight(), 3))
    waits = SimpleNamespace(namespace="ns", facts=SimpleNamespace(created=datetime.now(UTC)), key=None, plan=())
    monkeypatch.setattr(one._attention, "unadmitted", lambda _: [waits])
    hearing = asyncio.create_task(one._hear_refusals())
    async with asyncio.timeout(10):
        while not any(client.sight.blind for client in connect.clients):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    hearing.cancel()
    await asyncio.gather(hearing, return_exceptions=True)
    pulse, *others = connect.clients
    assert not pulse.sight.blind
    assert [client.sight.blind for client in others] == [True]
    assert len(connect.closed) == 1
    await pulse.close()


@ROW("U10", level="pure")
def test_kinds_that_attempts_name_while_clients_are_made_are_followed_once_and_pods_as_pods(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A credential program takes its time: attempts are listed before all kinds have a client."""

    async def stays(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(Informer, "run", stays)
    monkeypatch.setattr(Pulse, "run", stays)
    connect = Away(seconds=1)
    job: KindKey = ("batch/v1", "Job")

    async def main() -> None:
        one = watching(connect)
        await one.feeds.begin()
        opening = asyncio.create_task(one.feeds.open())
        while ATTEMPT not in one.feeds._feeds:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        for number in range(50):
            key = WorkloadKey("ns", f"uid-{number}")
            seen = Mock(spec=AttemptSeen, kinds=frozenset({POD, job, *formats.RESOURCES}), key=key)
            with monkeypatch.context() as patched:
                patched.setattr(one._cache, "put_attempt", lambda _: set())
                one.feeds._put_attempt(seen)
        await opening
        await asyncio.sleep(10)
        kinds = {ANCHOR, ATTEMPT, POD, NODE, job, *formats.RESOURCES}
        assert set(one.feeds._feeds) == kinds
        parts = 2  # The namespaces that are followed where not all may be: those of nodes are none.
        assert len(connect.clients) == 1 + len(kinds) * (1 + parts) - parts
        (pods,) = one.feeds._feeds[POD].informers
        assert cast("Any", pods)._sink._put == one._cache.put_pod
        await one.feeds.close()

    in_virtual_time(main())


@pytest.mark.parametrize(("seconds", "most", "error"), [(15, 6, SettingsError), (100, 3, SettingsError)])
def test_a_watch_stays_alive_while_its_clients_are_made_and_closes_them_if_one_fails(
    monkeypatch: pytest.MonkeyPatch, seconds: float, most: int, error: type[Exception]
) -> None:
    beats = list[float]()

    async def beat(_: object, remember: Callable[[], Any]) -> None:
        while True:
            assert remember() == Memory().wire(), "what the watcher before remembered, until this one watches"
            beats.append(asyncio.get_running_loop().time())
            await asyncio.sleep(1)

    async def stays(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(watch, "beat", beat)
    monkeypatch.setattr(watch, "worker_leaves", stays)
    monkeypatch.setattr(Pulse, "run", stays)
    monkeypatch.setattr(_Watching, "_hear_refusals", stays)
    connect = Away(seconds, most)

    async def main() -> None:
        begun = asyncio.get_running_loop().time()
        with pytest.raises(error):
            await watching(connect).run()
        ended = asyncio.get_running_loop().time()
        assert len(beats) > 0.9 * (ended - begun) > 9, "from its beginning, before it has any client"
        assert connect.closed == set(connect.clients)

    in_virtual_time(main())


@pytest.mark.parametrize("most", [1, 2])
def test_the_watch_of_nodes_closes_its_clients_if_the_next_cannot_be_made(
    monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    async def stays(*_: object) -> None:
        await asyncio.Event().wait()

    async def known(_: object) -> tuple[()]:
        return ()

    monkeypatch.setattr(nodes, "beat", stays)
    monkeypatch.setattr(nodes, "worker_leaves", stays)
    monkeypatch.setattr(nodes._Watching, "_known", known)
    connect = Away(most=most)
    owner = NodeWatchActivities(Mock(), connect, cluster_uid="uid", metrics=Metrics(), marks=Marks())

    async def main() -> None:
        given = WatchNodesInput(cluster="dev", cluster_uid="uid", timings=NodeTimings())
        with pytest.raises(SettingsError):
            await ActivityEnvironment().run(owner.watch_nodes, given)
        assert connect.closed == set(connect.clients)
        assert len(connect.closed) == most

    in_virtual_time(main())


@pytest.mark.parametrize("most", [1, 2, 3, 6])
def test_the_front_door_closes_its_clients_if_the_next_cannot_be_made(most: int) -> None:
    async def main() -> None:
        connect = Away(most=most)
        place = Place(Mock(), "dev", "dev", "", namespaces=("a", "b"))
        with pytest.raises(SettingsError):
            await FrontDoor(place, connect, Mock(spec=Pulse), Metrics()).run()
        assert connect.closed == set(connect.clients)
        assert len(connect.closed) == most

    in_virtual_time(main())


def test_a_credential_program_that_hangs_is_refused_so_that_another_worker_watches() -> None:
    class Hangs(WorkerKube):
        @classmethod
        async def connect(cls, *_: Any, **__: Any) -> Any:
            await asyncio.Event().wait()

    async def main() -> None:
        connector = Connector(Mock(kubeconfig="/etc/kubeconfig", kube_context=""), Metrics(), Hangs)
        with pytest.raises(SettingsError, match="/etc/kubeconfig gives no credentials within 60 s"):
            await connector(Sight(), 3)

    in_virtual_time(main())


def test_the_clients_of_a_process_share_what_the_api_server_answered() -> None:
    class Made(WorkerKube):
        @classmethod
        async def connect(cls, *_: Any, **__: Any) -> Any:
            return cls(Configuration())

    async def main() -> None:
        connector = Connector(Mock(kubeconfig="/etc/kubeconfig", kube_context=""), Metrics(), Made)
        one, another = await connector(), await connector(Sight(), 3)
        assert one.answers is another.answers

    in_virtual_time(main())


def test_while_the_first_client_is_made_nothing_is_blind_but_what_was_before() -> None:
    async def main() -> None:
        earlier = Interval(begin=datetime(2026, 1, 1, tzinfo=UTC), end=datetime(2026, 1, 2, tzinfo=UTC))
        one = watching(Away())
        one.feeds.recall((earlier,))
        assert one.feeds.intervals(datetime(2025, 1, 1, tzinfo=UTC)) == (earlier,)

    in_virtual_time(main())


def test_a_credential_program_that_hangs_or_fails_as_a_token_ends_holds_no_request_up_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = list[float]()

    async def main() -> None:
        loop = asyncio.get_running_loop()

        async def fails(*_: object) -> Configuration:
            asked.append(loop.time())
            if len(asked) == 1:
                await asyncio.sleep(100)
                raise ConfigException("the credential program has failed")
            return Configuration(host="http://127.0.0.1:9")

        monkeypatch.setattr(http, "_configuration", fails)
        client = WorkerKube(Configuration(host="http://127.0.0.1:9"), kubeconfig="/etc/kubeconfig")
        await asyncio.sleep(1)
        begun = loop.time()
        assert await asyncio.gather(*(client._relogin() for _ in range(5))) == [False] * 5
        assert loop.time() - begun <= 31, "those that wait for the same renewal do not wait one after another"
        for _ in range(2):
            await asyncio.sleep(20)
            assert not await client._relogin()
        assert len(asked) == 1, "a program that hangs is not begun a second time"
        await asyncio.sleep(20)
        assert await client._relogin()
        assert len(asked) == 2
        await client.close()

    in_virtual_time(main())


@pytest.mark.parametrize("answered", [False, True])
async def test_a_stream_that_is_not_opened_is_blindness_also_while_the_api_server_answers_others(
    monkeypatch: pytest.MonkeyPatch, answered: bool
) -> None:
    pulse = Mock(spec=Pulse, felt=None)
    client = WorkerKube(Configuration(host="http://127.0.0.1:9"), sight=StreamSight(pulse))

    async def resource(*_: object) -> Resource:
        return Resource(group="", version="v1", kind="Pod", plural="pods", namespaced=True, verbs=frozenset({"watch"}))

    async def send(*_: object) -> Any:
        pulse.felt = datetime.now(UTC)
        if not answered:
            raise TimeoutError
        return Mock(status=200)

    async def silent(_: object) -> AsyncIterator[bytes]:
        await asyncio.sleep(0.01)
        pulse.felt = datetime.now(UTC)
        raise TimeoutError
        yield b""

    monkeypatch.setattr(client, "resource", resource)
    monkeypatch.setattr(client, "_send", send)
    monkeypatch.setattr(kube_client, "lines", silent)
    with pytest.raises(Unreachable):
        async for _ in client.watch("v1", "Pod", resource_version="1"):
            pass
    assert client.sight.blind is not answered
    await client.close()
