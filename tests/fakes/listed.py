"""A collection as the API server lists and watches it, to a reader whose rights change."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from kubernetes.aio.client import Configuration

from holdfast.activities.kube.client import Forbidden, Object
from holdfast.activities.kube.resources import Resource
from holdfast.worker.runtime.kube import WorkerKube


class Rights:
    """What the readers may list; changed by `grant` and `revoke`, empty for all namespaces."""

    def __init__(self, *granted: str) -> None:
        self.granted = set(granted)
        self.changed = asyncio.Event()

    def grant(self, namespace: str = "") -> None:
        self.granted.add(namespace)
        self._change()

    def revoke(self, namespace: str = "") -> None:
        self.granted.discard(namespace)
        self._change()

    def _change(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()


class ListedKube(WorkerKube):
    """Lists some objects, of which none changes; each change of rights ends its stream."""

    def __init__(self, rights: Rights, objects: list[Object]) -> None:
        super().__init__(Configuration(host="http://127.0.0.1:9"))
        self._rights, self._objects = rights, objects

    async def resource(self, api_version: str, kind: str) -> Resource:
        plural = f"{kind.lower()}s"
        return Resource(group="", version="v1", kind=kind, plural=plural, namespaced=True, verbs=frozenset({"list"}))

    async def page(self, path: str, query: dict[str, str]) -> Object:
        namespace = path.split("/")[4] if "/namespaces/" in path else ""
        if namespace not in self._rights.granted and "" not in self._rights.granted:
            raise Forbidden(403, "Forbidden", f"may not list in {namespace or 'all namespaces'}")
        items = [one for one in self._objects if namespace in {"", one["metadata"]["namespace"]}]
        return {"metadata": {"resourceVersion": "7"}, "items": items}

    async def watch(self, *_: Any, **__: Any) -> AsyncIterator[Object]:
        await self._rights.changed.wait()
        return
        yield {}
