"""Combines concurrent quorum reads of several workloads' objects into one request.

An answer always comes from a read that began after the caller asked, so it proves as much as a read of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from holdfast import names
from holdfast.activities.kube.client import Kube, Object
from holdfast.activities.kube.raw import mapping, version_of
from holdfast.activities.kube.trim import pod_trace, unsigned

MOST = 100
"""Workloads per request: the URL contains their uids."""


Keep = Callable[[Object], Any]


@dataclass(frozen=True, slots=True)
class Listed:
    """The objects of one workload that a read found."""

    items: list[Any]
    version: int
    """The cluster's resource version that the read shows."""


@dataclass
class _Lane:
    """The pending requests for one kind in one namespace, and the read under way, if any."""

    asked: list[tuple[str, asyncio.Future[Listed]]] = field(default_factory=list)
    reading: asyncio.Task[None] | None = None


_Key = tuple[str, str, str, Keep]


class Gathered:
    """Reads objects by the uid of their workload, for several workloads at once."""

    def __init__(self, kube: Kube) -> None:
        """Start without requests."""
        self._kube = kube
        self._lanes: dict[_Key, _Lane] = {}

    async def of(self, api_version: str, kind: str, namespace: str, workload_uid: str) -> list[Object]:
        """Return the objects of a kind with a workload's uid; for pods, of which there may be thousands, a `pod_trace`.

        Raises:
            KubeError: the error that the read failed with.
        """
        keep = pod_trace if kind == "Pod" else unsigned
        return (await self.listed(api_version, kind, namespace, workload_uid, keep)).items

    async def listed(self, api_version: str, kind: str, namespace: str, workload_uid: str, keep: Keep) -> Listed:
        """Return what `keep` makes of the objects of a kind with a workload's uid, and the version of the read.

        Raises:
            KubeError: the error that the read failed with.
        """
        key = (api_version, kind, namespace, keep)
        lane = self._lanes.setdefault(key, _Lane())
        answer: asyncio.Future[Listed] = asyncio.get_running_loop().create_future()
        lane.asked.append((workload_uid, answer))
        if lane.reading is None:
            lane.reading = asyncio.create_task(self._read(key, lane))
        return await answer

    async def _read(self, key: _Key, lane: _Lane) -> None:
        """Read for all pending requests, then for those made meanwhile, until there are none."""
        try:
            while lane.asked:
                batch, lane.asked = lane.asked[:MOST], lane.asked[MOST:]
                await self._answer(key, batch)
        finally:
            lane.reading = None
            self._lanes.pop(key, None)
            for _, answer in lane.asked:  # Only if this task was cancelled.
                answer.cancel()

    async def _answer(self, key: _Key, batch: list[tuple[str, asyncio.Future[Listed]]]) -> None:
        api_version, kind, namespace, keep = key
        found: dict[str, list[Any]] = {uid: [] for uid, _ in batch}
        one_of = f"={next(iter(found))}" if len(found) == 1 else f" in ({','.join(sorted(found))})"

        def with_uid(raw: Object) -> tuple[str, Any]:
            return mapping(raw["metadata"].get("labels"))[names.LABEL_WORKLOAD_UID], keep(raw)

        try:
            listed = await self._kube.list(
                api_version, kind, namespace, labels=names.LABEL_WORKLOAD_UID + one_of, keep=with_uid
            )
            for uid, item in listed["items"]:
                found[uid].append(item)
            version = version_of(listed["metadata"])
        except Exception as error:
            for _, answer in batch:
                if not answer.done():
                    answer.set_exception(error)
            return
        for uid, answer in batch:
            if not answer.done():
                answer.set_result(Listed(found[uid], version))
