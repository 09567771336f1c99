"""A list whose pages come too late, on a real API server: what is read is one state of the cluster, or nothing is."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from holdfast.activities.kube import pages
from holdfast.activities.kube.client import Kube, Object, Unreachable
from holdfast.local import Stack
from tests.activities.versions import aged, alone, compact

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]
LIMIT = 2
LABEL = "test.holdfast.dev/pages"


class Late(Kube):
    """A client that is so slow between two pages that their version has been let go of meanwhile."""

    stack: Stack
    ages = False
    """Whether each token it sends on is of a version that was let go of long ago."""
    asked: list[bool]
    """Of each page that was asked for, whether it was a further one."""
    meanwhile: Callable[[], Awaitable[None]] | None = None
    """What happens once, between the first page and the second."""

    async def _request(self, method: str, path: str, **options: Any) -> Object:
        query: dict[str, str] = dict(options.get("query") or {})
        if query.get("limit") == str(LIMIT):
            self.asked.append("continue" in query)
            if "continue" in query and self.meanwhile is not None:
                happens, self.meanwhile = self.meanwhile, None
                await happens()
            if "continue" in query and self.ages:
                options["query"] = query | {"continue": aged(query["continue"])}
        return await super()._request(method, path, **options)


@pytest.fixture
async def late(stack: Stack, bare_namespace: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Late]:
    monkeypatch.setattr(pages, "PAUSE_FIRST", 0.01)
    async with alone(stack), await Late.connect(str(stack.kubeconfig)) as kube:
        kube.asked, kube.stack = [], stack
        for name in ("b", "c", "d", "e", "f"):
            await make(kube, bare_namespace, name)
        yield kube


async def make(kube: Kube, namespace: str, name: str) -> None:
    metadata = {"name": name, "namespace": namespace, "labels": {LABEL: "it"}}
    await kube.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})


async def read(kube: Kube, namespace: str) -> list[str]:
    listed = await kube.list(
        "v1", "ConfigMap", namespace, labels=LABEL, limit=LIMIT, keep=lambda one: one["metadata"]["name"]
    )
    return listed["items"]


async def test_a_list_that_was_too_slow_is_read_anew_in_pages_and_shows_one_state(late: Late, bare_namespace: str):
    """What came before, and what went from, the page that was read already would else be seen wrongly."""

    async def change() -> None:
        gone = await late.get("v1", "ConfigMap", "b", bare_namespace)
        await late.delete("v1", "ConfigMap", "b", bare_namespace, uid=gone["metadata"]["uid"])
        await make(late, bare_namespace, "a")
        await compact(late.stack, late)

    late.meanwhile = change
    assert await read(late, bare_namespace) == ["a", "c", "d", "e", "f"]
    assert late.asked == [False, True, False, True, True], "the second time from the beginning, in pages too"


async def test_a_list_that_is_always_too_slow_says_nothing(late: Late, bare_namespace: str):
    await compact(late.stack, late)
    late.ages = True
    with pytest.raises(Unreachable):
        await read(late, bare_namespace)
    assert late.asked == [False, True] * (pages.BEGUN_ANEW + 1)
    assert not late.sight.blind, "the API server answered all the time"
