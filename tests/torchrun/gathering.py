"""A gang's rendezvous over real HTTP, decided by the real rules (`holdfast.policy`), in one process and in memory.

What is missing of the real one is what keeps it: history, the hub's place in a worker, tokens, the watch.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from aiohttp import web

from holdfast import names
from holdfast.model.gang.state import Absence, Gang, GangEvent, GangState, Listening, Lost, Said
from holdfast.model.gang.wire import Announcement, MemberState
from holdfast.policy.rendezvous.orders import answer
from holdfast.policy.rendezvous.step import begun, step

LIMIT = 900.0
"""Seconds after which a test that waits for something has failed: never how long it should take."""
_TICK = 0.05


class Gathering:
    """The rendezvous of one gang."""

    def __init__(self, url: str, **settings: Any) -> None:
        self.url = url
        self.state: GangState = begun(Gang(**settings), "u-1-1", 1, _now())
        self.rounds: list[tuple[str, ...]] = []
        self.said: list[tuple[str, MemberState]] = []
        """What each member has said, in order, without what it only said again."""
        self.away = False
        self._since = _now()
        self._last: dict[str, Said] = {}
        self._heard: dict[str, datetime] = {}
        self._pending: list[tuple[datetime, Said]] = []
        self._changed = asyncio.Event()

    async def announce(self, request: web.Request) -> web.Response:
        said = Announcement.model_validate(await request.json())
        if self.away:
            return web.json_response({"error": "nobody knows yet"}, status=503)
        name, at = said.join.member, _now()
        self._heard[name] = at
        word = Said(join=said.join, report=said.report)
        if word != self._last.get(name):
            self._last[name] = word
            self.said.append((name, word.report.state))
            # A failure is not handed on before the others have spoken, so that the earliest is charged (0030).
            if word.report.state is MemberState.FAILED:
                self._pending.append((at, word))
                self._hand_on(at)
            else:
                self.decide(word)
        until = asyncio.get_running_loop().time() + said.wait.total_seconds()
        while True:
            told = answer(self.state, said.join)
            asked = any(begun_at > at for begun_at, _ in self._pending)
            if told is not None and (told.revision != said.seen or asked):
                break
            left = until - asyncio.get_running_loop().time()
            if left <= 0:
                break
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), left)
        if told is None:
            return web.json_response({"error": "nobody knows yet"}, status=503)
        return web.json_response(told.model_dump(mode="json"))

    def decide(self, *events: GangEvent) -> None:
        before = self.state
        self.state = step(self.state, [*events, Listening(since=self._since)], _now()).state
        if self.state.round != before.round:
            self.rounds.append(self.state.participants)
        if self.state is not before:
            self._wake()

    async def until(self, holds: Callable[[GangState], Any]) -> GangState:
        """Wait until the state is so, and return it."""
        async with asyncio.timeout(LIMIT):
            while not holds(self.state):
                await self._changed.wait()
        return self.state

    async def tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK)
            now, keep_alive = _now(), self.state.gang.keep_alive
            silent = [
                Lost(member=name, pod_uid=one.join.pod_uid, absence=Absence.SILENT, why="it is silent")
                for name, one in self.state.members.items()
                if one.absent is None and not self.away and now - self._heard.get(name, now) > keep_alive
            ]
            self.decide(*silent)
            self._hand_on(now)

    def _hand_on(self, now: datetime) -> None:
        if not self._pending:
            return
        first = self._pending[0][0]
        failed = {said.join.member for _, said in self._pending}
        others = [name for name, one in self.state.members.items() if one.absent is None and name not in failed]
        if all(self._heard.get(name, first) > first for name in others) or now - first > self.state.gang.keep_alive:
            told, self._pending = [said for _, said in self._pending], []
            self.decide(*told)
        else:
            self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


@asynccontextmanager
async def gather(**settings: Any) -> AsyncIterator[Gathering]:
    """Open a rendezvous, quick in all that a test would wait for."""
    quick: dict[str, Any] = {
        "last_call": timedelta(seconds=1.5),
        "heartbeat": timedelta(seconds=2),
        "keep_alive_attempts": 15,
    }
    app = web.Application()
    runner = web.AppRunner(app, shutdown_timeout=0)
    gathering = Gathering("", **{**quick, **settings})
    app.router.add_post("/rendezvous/v1/{workload}/announce", gathering.announce)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    gathering.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    ticking = asyncio.ensure_future(gathering.tick())
    try:
        yield gathering
    finally:
        ticking.cancel()
        await runner.cleanup()


def environment(url: str, member: str, token: str, pod: str = "") -> dict[str, str]:
    """Return what Holdfast gives the pod of a member."""
    return {
        names.ENV_RENDEZVOUS: url,
        names.ENV_RENDEZVOUS_TOKEN: token,
        names.ENV_WORKLOAD_UID: "u-1",
        names.ENV_ATTEMPT: "1",
        names.ENV_MEMBER: member,
        names.ENV_POD_UID: pod or f"pod-{member}",
        names.ENV_POD_ADDRESS: "127.0.0.1",
    }


def _now() -> datetime:
    return datetime.now(UTC)
