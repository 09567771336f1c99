"""Versions of the cluster that are let go of, so that a page of a list comes too late."""

from __future__ import annotations

import asyncio
import base64
import fcntl
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from holdfast.activities.kube.client import Gone, Kube, Object
from holdfast.local import Stack

COMPACTED = "compact_rev_key"
"""Under which API servers tell each other what has been compacted."""
SECONDS = 60


def aged(token: str) -> str:
    """Return a token by which to go on with a list as it was at one of the cluster's first versions."""
    said: dict[str, Any] = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    assert said["rv"] > 2
    return base64.urlsafe_b64encode(json.dumps(said | {"rv": 2}).encode()).decode().rstrip("=")


@asynccontextmanager
async def alone(stack: Stack) -> AsyncIterator[None]:
    """Be the only one whose cluster lets go of versions as the test says; processes of other tests wait."""
    with (stack.directory / "versions.lock").open("w") as lock:
        await asyncio.to_thread(fcntl.flock, lock, fcntl.LOCK_EX)
        yield


async def compact(stack: Stack, kube: Kube) -> None:
    """Have the cluster let go of all earlier versions of ConfigMaps, as it does by itself every few minutes.

    That is, etcd forgets them, and the API server, which could show them out of its memory, is told so and forgets too.
    """
    path = (await kube.resource("v1", "ConfigMap")).path("kube-system")
    query = {"limit": "1"}
    page = await kube._request("GET", path, query=query)
    token = page["metadata"]["continue"]
    address = stack.parts()["etcd"].address
    async with aiohttp.ClientSession() as session:

        async def ask(what: str, body: Object) -> Object:
            async with session.post(f"{address}/v3/kv/{what}", json=body) as response:
                said: Object = await response.json()
                assert response.status == 200, said
                return said

        put = await ask("put", {"key": coded(COMPACTED), "value": coded(page["metadata"]["resourceVersion"])})
        revision = put["header"]["revision"]
        await ask("put", {"key": coded(COMPACTED), "value": coded(revision)})
        await ask("compaction", {"revision": revision})
    for _ in range(SECONDS * 5):
        try:
            await kube._request("GET", path, query={**query, "continue": token})
        except Gone:
            return
        await asyncio.sleep(0.2)
    raise AssertionError("the API server still shows what etcd has compacted")


def coded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
