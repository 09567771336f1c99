"""The priorities that a cluster's PriorityClasses give to pods, read at most once a minute (row J21)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Final

from holdfast.activities.kube.client import Forbidden, Kube
from holdfast.activities.kube.raw import mapping

KEPT: Final = 60.0
"""Seconds for which what was read counts. The value of a PriorityClass never changes. The default class may."""
ABSENT_KEPT: Final = 1.0
"""Seconds for which a class that was not there counts as absent."""


class Priorities:
    """Reads PriorityClasses, and keeps them for a while."""

    def __init__(self, kube: Kube) -> None:
        """Start with nothing read."""
        self._kube = kube
        self._lock = asyncio.Lock()
        self._read: tuple[float, dict[str, int]] | None = None

    async def of(self, name: str) -> int | None:
        """Return the priority of pods with this class, or of those without (empty name).

        None if it is not known: there is no such class, or the worker may not read them.

        Raises:
            KubeError: if they cannot be read now.
        """
        async with self._lock:
            now = asyncio.get_running_loop().time()
            if self._read is None or now - self._read[0] >= (KEPT if name in self._read[1] else ABSENT_KEPT):
                self._read = now, await self._list()
            return self._read[1].get(name)

    async def _list(self) -> dict[str, int]:
        try:
            return by_name((await self._kube.list("scheduling.k8s.io/v1", "PriorityClass"))["items"])
        except Forbidden:
            return {}


def by_name(classes: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Return the priority of each class by name; under the empty name that of pods without a class."""
    classes = list(classes)
    values = {str(one["metadata"]["name"]): int(one["value"]) for one in classes}
    # Of several defaults, Kubernetes takes the lowest.
    default = min((int(one["value"]) for one in classes if one.get("globalDefault")), default=0)
    return {**values, "": default}


def priority_class(template: Mapping[str, Any]) -> str:
    """Return the PriorityClass of a Job's pods; empty if it names none."""
    pods = mapping(mapping(mapping(template.get("spec")).get("template")).get("spec"))
    return str(pods.get("priorityClassName") or "")
