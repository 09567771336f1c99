"""Combines concurrent quorum reads of several workloads' objects, or of the same object, into one request.

An answer always comes from a read that began after the caller asked, so it proves as much as a read of its own.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from holdfast import names
from holdfast.activities.kube.client import Kube, KubeError, NotFound, Object, UnknownKind, Unreachable
from holdfast.activities.kube.each import each
from holdfast.activities.kube.raw import mapping, version_of
from holdfast.activities.kube.trim import pod_trace, unsigned

MOST = 100
"""Workloads per request: the URL contains their uids."""
MANY = 4
"""So many names that are asked for at once are looked up in one list; fewer are read each by itself."""
PER_NAME = 30
"""A list that holds more objects for each name that is asked for costs more than it saves."""
COSTLY_SECONDS = 5.0
"""For so long no list is tried again where it failed, or for less than twice as many names where it held too many."""


Keep = Callable[[Object], Any]
_Key = TypeVar("_Key", bound=Hashable)
_Asked = TypeVar("_Asked", bound=Hashable)
_Answer = TypeVar("_Answer")
_List = tuple[str, str, str, Keep]
_Object = tuple[str, str, str, str]
_Named = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True)
class Listed:
    """The objects of one workload that a read found."""

    items: list[Any]
    version: int
    """The cluster's resource version that the read shows."""


class _Lanes(Generic[_Key, _Asked, _Answer]):
    """Has one read at a time for each key. What is asked for during a read is answered by the next one."""

    def __init__(
        self, read: Callable[[_Key, Sequence[_Asked]], Awaitable[Mapping[_Asked, _Answer]]], most: int | None = None
    ) -> None:
        """Start without requests. `read` answers at most so many at once; None: all."""
        self._read, self._most = read, most
        self._waiting: dict[_Key, list[tuple[_Asked, asyncio.Future[_Answer]]]] = {}
        self._reading: set[asyncio.Task[None]] = set()

    async def of(self, key: _Key, asked: _Asked) -> _Answer:
        """Return the answer of a read that begins after this call.

        Raises:
            KubeError: the error that the read failed with.
        """
        answer: asyncio.Future[_Answer] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.get(key)
        if waiting is None:
            waiting = self._waiting[key] = []
            task = asyncio.create_task(self._answer_all(key, waiting))
            self._reading.add(task)
            task.add_done_callback(self._reading.discard)
        waiting.append((asked, answer))
        return await answer

    async def _answer_all(self, key: _Key, waiting: list[tuple[_Asked, asyncio.Future[_Answer]]]) -> None:
        """Read for all pending requests, then for those made meanwhile, until there are none."""
        try:
            while waiting:
                batch = waiting[: self._most]
                del waiting[: self._most]
                await self._answer(key, batch)
        finally:
            del self._waiting[key]
            _fail(waiting, _broken_off())  # Only if this task was cancelled.

    async def _answer(self, key: _Key, batch: list[tuple[_Asked, asyncio.Future[_Answer]]]) -> None:
        try:
            found = await self._read(key, [asked for asked, _ in batch])
        except Exception as error:
            _fail(batch, error)
            return
        except BaseException:  # The client is being closed, and another one takes its place.
            _fail(batch, _broken_off())
            raise
        for asked, answer in batch:
            if not answer.done():
                answer.set_result(found[asked])


def _broken_off() -> Unreachable:
    return Unreachable(0, "Unreachable", "the read was broken off")


def _fail(batch: list[tuple[Any, asyncio.Future[Any]]], error: Exception) -> None:
    for _, answer in batch:
        if not answer.done():
            answer.set_exception(error)


class _TooLarge(Exception):
    """A list holds many more objects than were asked for."""


@dataclass(frozen=True, slots=True)
class _Costly:
    """Where a list held too many objects, or failed."""

    until: float
    """By the loop's clock."""
    least: float
    """With fewer names that are asked for at once, no list is tried until then."""


class Gathered:
    """Reads objects by the uid of their workload, or by name, for several workloads at once; one object for all."""

    def __init__(self, kube: Kube) -> None:
        """Start without requests."""
        self._kube = kube
        self._lists = _Lanes(self._list, MOST)
        self._objects = _Lanes(self._find)
        self._named = _Lanes(self._find_named)
        self._costly: dict[_Named, _Costly] = {}

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
        return await self._lists.of((api_version, kind, namespace, keep), workload_uid)

    async def find(self, api_version: str, kind: str, name: str, namespace: str = "") -> Mapping[str, Any] | None:
        """Return an object that several workloads depend on, such as a node; None if there is none.

        Raises:
            KubeError: the error that the read failed with.
        """
        return await self._objects.of((api_version, kind, name, namespace), "")

    async def named(
        self, api_version: str, kind: str, name: str, namespace: str = "", *, impersonate: str = ""
    ) -> Object | None:
        """Return an object; None if there is none. Many that are asked for at once are looked up in one list.

        An object from a list may lack its apiVersion and kind.

        Raises:
            UnknownKind: if the cluster does not serve the kind.
            KubeError: the error that the read of this object failed with.
        """
        answer = await self._named.of((api_version, kind, namespace, impersonate), name)
        if isinstance(answer, KubeError):
            raise answer
        return answer

    async def _find_named(self, key: _Named, asked: Sequence[str]) -> Mapping[str, Object | KubeError | None]:
        now = asyncio.get_running_loop().time()
        wanted = set(asked)
        self._costly = {one: costly for one, costly in self._costly.items() if costly.until > now}
        least = self._costly[key].least if key in self._costly else MANY
        if len(wanted) >= least:
            try:
                return await self._look_up(key, wanted)
            except (_TooLarge, KubeError) as error:
                until = asyncio.get_running_loop().time() + COSTLY_SECONDS
                least = 2 * len(wanted) if isinstance(error, _TooLarge) else math.inf
                self._costly[key] = _Costly(until, least)
                if isinstance(error, Unreachable) and not error.is_one_kinds:
                    raise
                # Another's object may be unreadable, or the kind may not be listed, where these can be read.

        async def find(name: str) -> Object | KubeError | None:
            api_version, kind, namespace, user = key
            try:
                return await self._kube.get(api_version, kind, name, namespace, impersonate=user)
            except NotFound as error:
                return error if isinstance(error, UnknownKind) else None
            except KubeError as error:
                return error

        return dict(zip(wanted, await each(wanted, find), strict=True))

    async def _look_up(self, key: _Named, wanted: Set[str]) -> dict[str, Object | KubeError | None]:
        """Return each of these objects from one whole list; None for those that are not in it.

        Raises:
            _TooLarge: if the list holds too many others.
        """
        api_version, kind, namespace, user = key
        seen = 0

        def asked_for(raw: Object) -> Object | None:
            nonlocal seen
            seen += 1
            if seen > PER_NAME * len(wanted):
                raise _TooLarge
            return raw if raw["metadata"]["name"] in wanted else None

        listed = await self._kube.list(api_version, kind, namespace, keep=asked_for, impersonate=user)
        found = {one["metadata"]["name"]: one for one in listed["items"]}
        return {name: found.get(name) for name in wanted}

    async def _list(self, key: _List, uids: Sequence[str]) -> dict[str, Listed]:
        api_version, kind, namespace, keep = key
        found: dict[str, list[Any]] = {uid: [] for uid in uids}
        one_of = f"={next(iter(found))}" if len(found) == 1 else f" in ({','.join(sorted(found))})"

        def with_uid(raw: Object) -> tuple[str, Any]:
            return mapping(raw["metadata"].get("labels"))[names.LABEL_WORKLOAD_UID], keep(raw)

        listed = await self._kube.list(
            api_version, kind, namespace, labels=names.LABEL_WORKLOAD_UID + one_of, keep=with_uid
        )
        for uid, item in listed["items"]:
            found[uid].append(item)
        version = version_of(listed["metadata"])
        return {uid: Listed(items, version) for uid, items in found.items()}

    async def _find(self, key: _Object, asked: Sequence[str]) -> dict[str, Object | None]:
        return dict.fromkeys(asked, await self._kube.find(*key))
