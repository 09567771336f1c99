"""How a cluster serves a kind: its plural, whether it is namespaced, its verbs. Read once, and again on a miss."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from holdfast import names
from holdfast.activities.kube.errors import NotFound, UnknownKind

_MISS_SECONDS = 2.0
_UP = frozenset({".", ".."})
"""Parts of a path that lead elsewhere, quoted or not."""


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind as the cluster serves it."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool
    verbs: frozenset[str]

    @property
    def api_version(self) -> str:
        """`v1`, `batch/v1`: as an object's `apiVersion` has it."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "") -> str:
        """Return the path of the collection (of all namespaces, if none is given) or of one object.

        Raises:
            NotFound: if nothing can have the name: in a path it would lead elsewhere.
        """
        if not _UP.isdisjoint((namespace, name)):
            raise NotFound(404, "NotFound", f"nothing can be named {name!r} in a namespace {namespace!r}")
        path = prefix(self.api_version)
        if self.namespaced and namespace:
            path += f"/namespaces/{quote(namespace, safe='')}"
        path += f"/{self.plural}"
        return path + (f"/{quote(name, safe='')}" if name else "")


def prefix(api_version: str) -> str:
    """Return where an API version is served: `/api/v1`, `/apis/batch/v1`."""
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"


class Discovery:
    """The kinds a cluster serves, by API version."""

    def __init__(self, get: Callable[[str], Awaitable[dict[str, Any]]]) -> None:
        self._get = get
        self._known: dict[str, dict[str, Resource]] = {}
        self._asked: dict[str, float] = {}
        self._asking: dict[str, asyncio.Lock] = {}

    async def resource(self, api_version: str, kind: str) -> Resource:
        """Return how a kind is served.

        Raises:
            UnknownKind: if it is not; that answer is two seconds old at most. No server serves what is no API version:
                people write it, and pods' owner references do, and in a path it could lead elsewhere.
        """
        found = self._known.get(api_version, {}).get(kind)
        if found is None and names.API_VERSION_FORM.match(api_version):
            async with self._asking.setdefault(api_version, asyncio.Lock()):
                found = self._known.get(api_version, {}).get(kind)
                if found is None and self._due(api_version):
                    await self._ask(api_version)
                    found = self._known[api_version].get(kind)
        if found is None:
            raise UnknownKind(404, "NotFound", f"the cluster does not serve {kind} of {api_version}")
        return found

    def _due(self, api_version: str) -> bool:
        asked = self._asked.get(api_version)
        return asked is None or asyncio.get_running_loop().time() - asked >= _MISS_SECONDS

    async def _ask(self, api_version: str) -> None:
        group, _, version = api_version.rpartition("/")
        try:
            answer = await self._get(prefix(api_version))
        except NotFound:
            answer = {}
        self._asked[api_version] = asyncio.get_running_loop().time()
        self._known[api_version] = {
            entry["kind"]: Resource(
                group=group,
                version=version,
                kind=entry["kind"],
                plural=entry["name"],
                namespaced=bool(entry.get("namespaced")),
                verbs=frozenset(entry.get("verbs") or ()),
            )
            for entry in answer.get("resources") or ()
            if "/" not in entry["name"]
        }
