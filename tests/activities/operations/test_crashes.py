"""A worker that dies before or after any change it makes: the next one ends where it would have ended (row A19)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from holdfast import names
from holdfast.activities.kube.client import Kube, Object, UnknownKind, Unreachable, WebhookFailed
from tests.activities.bench import Bench, config, deployment, eventually, job, pod

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]


class Crash(BaseException):
    """The worker is no more."""


class Crashing:
    """Lets a client's process die once it has made a change: when that was answered, or before the next is sent.

    What was carried out is found done by the next process, so doing this again and again is dying at every change.
    """

    def __init__(self, kube: Kube) -> None:
        self._send = kube.mutate
        self._lives = True
        self._after = False
        self._made = 0
        kube.mutate = self.mutate  # type: ignore[method-assign]

    async def mutate(self, method: str, path: str, **options: Any) -> Object:
        if not self._after and not self._lives and self._made >= 1:
            raise Crash
        answer = await self._send(method, path, **options)
        self._made += 1
        if self._after and not self._lives:
            raise Crash
        return answer

    async def survive(self, work: Callable[[], Awaitable[Any]], after: bool) -> int:
        """Do the work, dying at each of its changes in turn; return how many deaths it took."""
        self._after, self._lives, deaths = after, False, 0
        self._made = 1  # The first dies before it has changed anything.
        while True:
            try:
                await work()
            except Crash:
                deaths += 1
                assert deaths < 50, "it makes no progress"
                self._made = 0
                continue
            self._lives = True
            return deaths


BEFORE_OR_AFTER = pytest.mark.parametrize("after", [False, True], ids=["before", "after"])


@BEFORE_OR_AFTER
async def test_A19_preparation(bench: Bench, after: bool):
    crashing = Crashing(bench.kube)
    report = bench.report()
    assert await crashing.survive(lambda: bench.prepare(report=report), after) >= 3
    listed = await bench.admin.list(names.API_VERSION, names.ATTEMPT_KIND, bench.namespace)
    assert len(listed["items"]) == 1


@BEFORE_OR_AFTER
async def test_A19_creation(bench: Bench, after: bool):
    bench.components = (config(), job(), deployment(), pod())
    await bench.prepare()
    crashing = Crashing(bench.kube)
    reports: dict[str, Any] = {"report": bench.report(), "report_submitted": bench.report()}

    async def work() -> None:
        created = await bench.create(**reports)
        assert created.failure is None

    assert await crashing.survive(work, after) >= 7
    created = await bench.create()
    assert created.failure is None
    assert len(created.objects) == 4

    async def all_run() -> bool:
        return (await bench.observe()).pods.running == 5

    await eventually(all_run)
    assert len(await bench.pods()) == 5


@BEFORE_OR_AFTER
@pytest.mark.parametrize("forced", [False, True], ids=["graceful", "forced"])
async def test_A19_removal(bench: Bench, forced: bool, after: bool):
    bench.components = (config(), job(), pod())
    await bench.launch()
    crashing = Crashing(bench.kube)

    ends: dict[str, Any] = {"release_anchor": True, "delete_anchor": True}
    ends |= {"report": bench.report(), "report_gone": bench.report()}

    async def work() -> None:
        remove = bench.force_remove if forced else bench.remove
        assert (await remove(**ends)).gone

    assert await crashing.survive(work, after) >= 4
    assert await bench.pods() == []
    assert await bench.owner() is None
    assert await bench.anchor() is None


@pytest.mark.parametrize(
    "error",
    [
        Unreachable(0, "Unreachable", "connection reset"),
        Unreachable(503, "ServiceUnavailable", "overloaded", retry_after=0.2),
        WebhookFailed(500, "InternalError", 'failed calling webhook "x": timeout'),
    ],
)
async def test_what_may_pass_is_tried_again(bench: Bench, error: Exception):
    bench.components = (config(),)
    await bench.prepare()
    send, left = bench.kube.mutate, [3]

    async def mutate(method: str, path: str, **options: Any) -> Object:
        if path.endswith("/configmaps") and left[0]:
            left[0] -= 1
            raise error
        return await send(method, path, **options)

    bench.kube.mutate = mutate  # type: ignore[method-assign]
    assert (await bench.create(patience=20.0)).failure is None
    assert left == [0]


async def test_a_status_that_is_not_served_for_a_moment_is_written_once_it_is(bench: Bench):
    """As between the application of a kind and the first answer of its storage: the anchor is there all the time."""
    bench.components = (config(),)
    await bench.prepare()
    send, left = bench.kube.mutate, [3]

    async def mutate(method: str, path: str, **options: Any) -> Object:
        if "/anchors/" in path and path.endswith("/status") and left[0]:
            left[0] -= 1
            raise UnknownKind(404, "NotFound", "404 page not found")
        return await send(method, path, **options)

    bench.kube.mutate = mutate  # type: ignore[method-assign]
    report = bench.report(message="it is created")
    assert (await bench.create(report=report, report_submitted=report)).failure is None
    assert left == [0]
    anchor = await bench.anchor()
    assert anchor is not None
    assert anchor["status"]["message"] == "it is created"


async def test_a_request_that_was_carried_out_and_never_answered_is_recognized(bench: Bench):
    bench.components = (config(), job())
    await bench.prepare()
    send = bench.kube.mutate
    lost: list[str] = []

    async def mutate(method: str, path: str, **options: Any) -> Object:
        answer = await send(method, path, **options)
        if method == "POST" and path not in lost:
            lost.append(path)
            raise Unreachable(0, "Unreachable", "the answer was lost")
        return answer

    bench.kube.mutate = mutate  # type: ignore[method-assign]
    created = await bench.create()
    assert created.failure is None
    assert len(created.objects) == len(lost) == 2
