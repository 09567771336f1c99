"""The thread that speaks for torchrun's process: over real HTTP, against a rendezvous that its test decides."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from holdfast.agent.messages import Failure, Kind, Report, State
from holdfast.agent.settings import from_environment
from holdfast.model.gang.wire import DirectiveKind, MemberState
from holdfast.torchrun.member import Member
from tests.agent.stage import LIMIT
from tests.agent.test_agent import Gang
from tests.torchrun.gathering import environment

FAILED = Report(State.FAILED, 1, (Failure(0, -9, 1.0, "killed"),))


@asynccontextmanager
async def speaking(folder: Path) -> AsyncIterator[tuple[Gang, Member]]:
    gang = Gang()
    app = web.Application()
    app.router.add_post("/rendezvous/v1/{workload}/announce", gang.announce)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    (folder / "token").write_text("token")
    url = f"http://localhost:{runner.addresses[0][1]}"
    member = Member(from_environment(environment(url, "a", str(folder / "token"))))
    try:
        yield gang, member
    finally:
        await asyncio.to_thread(member.close)
        await runner.cleanup()


async def test_what_is_said_is_heard_and_what_is_told_ends_a_wait(tmp_path: Path) -> None:
    async with speaking(tmp_path) as (gang, member):
        member.say(Report(State.INIT), port=29400)
        joined = await gang.hears(MemberState.INIT)
        assert (joined.join.member, joined.join.port) == ("a", 29400)
        waiting = asyncio.ensure_future(asyncio.to_thread(member.wait, lambda told: told.kind is Kind.RUN, LIMIT))
        gang.run(1)
        assert await waiting
        place = member.directive.assignment
        assert place is not None
        assert place.round == 1
        member.say(Report(State.HEALTHY, 1))
        await gang.hears(MemberState.HEALTHY)
        gang.tell(DirectiveKind.REJOIN)
        assert await asyncio.to_thread(member.wait, lambda told: told.kind is Kind.REJOIN, LIMIT)


@pytest.mark.row("D42", level="pure")
async def test_D42_a_failure_that_is_seen_is_said_at_once_and_once(tmp_path: Path) -> None:
    async with speaking(tmp_path) as (gang, member):
        healthy = Report(State.HEALTHY, 1)
        found: list[tuple[Failure, ...]] = [(), (), FAILED.failures]
        member.say(healthy, port=29400)
        member.watch(healthy, lambda: found.pop(0))
        said = await gang.hears(MemberState.FAILED)
        assert (said.report.round, said.report.failures[0].signal, said.report.stopping) == (1, 9, True)
        assert member.report == Report(State.FAILED, 1, FAILED.failures, stopping=True)
        assert found == [], "nobody looks any more"


async def test_a_wait_has_its_limit_and_says_so(tmp_path: Path) -> None:
    async with speaking(tmp_path) as (_, member):
        member.say(Report(State.INIT), port=29400)
        assert not await asyncio.to_thread(member.wait, lambda told: told.kind is Kind.RUN, 0.05)


async def test_a_word_is_heard_only_once_it_is_answered_itself(tmp_path: Path) -> None:
    async with speaking(tmp_path) as (gang, member):
        member.say(Report(State.HEALTHY, 1), port=29400)
        assert await asyncio.to_thread(member.wait_until_heard, LIMIT)
        gang.away = True
        member.say(FAILED)
        assert not await asyncio.to_thread(member.wait_until_heard, 0.3)
        gang.away = False
        assert await asyncio.to_thread(member.wait_until_heard, LIMIT)
        assert (await gang.hears(MemberState.FAILED)).report.failures[0].signal == 9


async def test_a_refused_member_waits_for_nothing(tmp_path: Path) -> None:
    async with speaking(tmp_path) as (gang, member):
        gang.refuses = "no such pod"
        member.say(Report(State.INIT), port=29400)
        assert await asyncio.to_thread(member.wait, lambda told: False, LIMIT)
        assert "no such pod" in member.refused


async def test_one_that_is_closed_is_silent_and_has_no_thread(tmp_path: Path) -> None:
    async with speaking(tmp_path) as (gang, member):
        member.say(Report(State.INIT), port=29400)
        await gang.hears(MemberState.INIT)
        await asyncio.to_thread(member.close)
        assert "holdfast-rendezvous" not in {thread.name for thread in threading.enumerate()}
        member.say(FAILED)
        await asyncio.sleep(0.2)
        assert gang.heard.empty()
