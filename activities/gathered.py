"""Quorum reads of several workloads' objects that are asked for at the same time, made as one.

An answer is always of a read that began after it was asked for, so that it proves as much as a read of one's own.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from holdfast import names
from holdfast.activities.kept import trace, unsigned
from holdfast.activities.kube import Kube, Object
from holdfast.activities.raw import mapping

MOST = 100
"""Workloads asked for in one request: their uids stand in its address."""


@dataclass
class _Lane:
    """What is asked for of one kind in one namespace, and whether a read of it is under way."""

    asked: list[tuple[str, asyncio.Future[list[Object]]]] = field(default_factory=list)
    reading: asyncio.Task[None] | None = None


class Gathered:
    """Reads objects by the uid of their workload, of several workloads at once."""

    def __init__(self, kube: Kube) -> None:
        """Begin without anything asked."""
        self._kube = kube
        self._lanes: dict[tuple[str, str, str], _Lane] = {}

    async def of(self, api_version: str, kind: str, namespace: str, workload_uid: str) -> list[Object]:
        """Return the objects of a kind that bear a workload's uid: of a pod, as there may be thousands, its `trace`.

        Raises:
            KubeError: what the read was answered by.
        """
        key = (api_version, kind, namespace)
        lane = self._lanes.setdefault(key, _Lane())
        answer: asyncio.Future[list[Object]] = asyncio.get_running_loop().create_future()
        lane.asked.append((workload_uid, answer))
        if lane.reading is None:
            lane.reading = asyncio.create_task(self._read(key, lane))
        return await answer

    async def _read(self, key: tuple[str, str, str], lane: _Lane) -> None:
        """Read for all who have asked by now, then for those who have asked meanwhile, until nobody has."""
        try:
            while lane.asked:
                batch, lane.asked = lane.asked[:MOST], lane.asked[MOST:]
                await self._answer(key, batch)
        finally:
            lane.reading = None
            self._lanes.pop(key, None)
            for _, answer in lane.asked:  # Only where this was broken off.
                answer.cancel()

    async def _answer(self, key: tuple[str, str, str], batch: list[tuple[str, asyncio.Future[list[Object]]]]) -> None:
        api_version, kind, namespace = key
        found: dict[str, list[Object]] = {uid: [] for uid, _ in batch}
        one_of = f"={next(iter(found))}" if len(found) == 1 else f" in ({','.join(sorted(found))})"
        labels, keep = names.LABEL_WORKLOAD_UID + one_of, trace if kind == "Pod" else unsigned
        try:
            listed = await self._kube.list(api_version, kind, namespace, labels=labels, keep=keep)
            for item in listed["items"]:
                found[mapping(item["metadata"].get("labels"))[names.LABEL_WORKLOAD_UID]].append(item)
        except Exception as error:
            for _, answer in batch:
                if not answer.done():
                    answer.set_exception(error)
            return
        for uid, answer in batch:
            if not answer.done():
                answer.set_result(found[uid])
