"""The bench's own eyes: watches of its own, apart from those of whatever is measured. Times are `time.monotonic`."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from holdfast.activities.kube.client import Gone, Kube, Unreachable

Json = dict[str, Any]
State = Callable[[Json], bool]
"""Whether an object is in a certain state."""
PATIENCE = 7200.0
"""Seconds after which nothing is waited for any longer: something is broken."""
LOOK = 0.2
"""Seconds between two looks at what a watch has seen: seldom, on the cores that are measured. What is reported are the
times of the events themselves."""


@dataclass
class Life:
    """What was seen of one object."""

    name: str
    last: Json
    begun: float
    reached: dict[str, float] = field(default_factory=dict)
    """When each state was first seen."""
    gone: float | None = None


class Seen:
    """What a watch has seen of one kind in one namespace, by uid."""

    def __init__(self, states: Mapping[str, State]) -> None:
        self.lives: dict[str, Life] = {}
        self.states = states
        self.task: asyncio.Task[None] | None = None

    def take(self, kind: str, found: Json) -> None:
        """Take in an event of the watch."""
        now = time.monotonic()
        metadata = found["metadata"]
        life = self.lives.setdefault(metadata["uid"], Life(metadata["name"], found, now))
        life.last = found
        for state, holds in self.states.items():
            if state not in life.reached and holds(found):
                life.reached[state] = now
        if kind == "DELETED":
            life.gone = life.gone or now

    @property
    def present(self) -> list[Life]:
        """What is there now."""
        return [life for life in self.lives.values() if life.gone is None]

    def count(self, state: str) -> int:
        """Return how many have reached a state so far."""
        return sum(state in life.reached for life in self.lives.values())

    async def until(self, reached: Callable[[], bool], seconds: float, what: str, look: float = 0) -> None:
        """Wait until something has been seen. `look`: seconds between two looks; 0 chooses them by what there is.

        Raises:
            TimeoutError: if it is not seen in time; it says what was waited for.
        """
        deadline = time.monotonic() + seconds
        while not reached():
            if self.task is not None and self.task.done():
                self.task.result()
            if time.monotonic() > deadline:
                raise TimeoutError(f"not seen within {seconds:g} s: {what}")
            # Looking at tens of thousands takes the cores that are measured; when each was reached is known anyway.
            await asyncio.sleep(look or max(LOOK, len(self.lives) / 10_000))

    async def all_reach(self, state: str, count: int, seconds: float = PATIENCE) -> list[float]:
        """Wait until so many have reached a state, and return when each first did, in order."""
        await self.until(lambda: self.count(state) >= count, seconds, f"{count} are {state} ({self.count(state)} were)")
        return sorted(life.reached[state] for life in self.lives.values() if state in life.reached)[:count]

    async def now_reach(self, state: str, count: int, seconds: float = PATIENCE) -> float:
        """Wait until so many of what is there have reached a state, and return when the last of them did."""

        def reached() -> list[float]:
            return sorted(life.reached[state] for life in self.present if state in life.reached)

        await self.until(lambda: len(reached()) >= count, seconds, f"{count} are {state} ({len(reached())} were)")
        return reached()[count - 1]

    async def all_gone(self, seconds: float = PATIENCE) -> float:
        """Wait until nothing is there any more, and return when the last was gone."""
        await self.until(lambda: not self.present, seconds, "all is gone")
        return max((life.gone for life in self.lives.values() if life.gone is not None), default=time.monotonic())


def in_phase(phase: str) -> State:
    """Tell whether an object's status names a phase."""
    return lambda found: (found.get("status") or {}).get("phase") == phase


def has_condition(kind: str) -> State:
    """Tell whether an object has a condition, and it is True."""

    def holds(found: Json) -> bool:
        conditions = (found.get("status") or {}).get("conditions") or []
        return any(each["type"] == kind and each["status"] == "True" for each in conditions)

    return holds


@asynccontextmanager
async def seeing(kube: Kube, api_version: str, kind: str, namespace: str, **states: State) -> AsyncIterator[Seen]:
    """Watch a kind in a namespace, from before there is any of it; `states` are what is looked for in each object."""
    seen = Seen(states)

    async def watch() -> None:
        while True:
            with contextlib.suppress(Gone, Unreachable):  # Then it is listed and watched anew.
                whole = await kube.list(api_version, kind, namespace)
                _compare(seen, whole["items"])
                version = whole["metadata"]["resourceVersion"]
                while True:  # The server ends a stream when it likes.
                    async for event in kube.watch(api_version, kind, namespace, resource_version=version):
                        version = event["object"]["metadata"]["resourceVersion"]
                        if event["type"] != "BOOKMARK":
                            seen.take(event["type"], event["object"])
            await asyncio.sleep(0.1)

    seen.task = asyncio.create_task(watch())
    try:
        yield seen
    finally:
        seen.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await seen.task


def _compare(seen: Seen, items: list[Json]) -> None:
    for item in items:
        seen.take("LISTED", item)
    uids = {item["metadata"]["uid"] for item in items}
    for uid, life in seen.lives.items():
        if uid not in uids:
            seen.take("DELETED", life.last)
