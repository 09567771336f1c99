"""The agent as users run it: a real process, real workers, real signals, and the wire of its contract."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from holdfast import names, progress
from holdfast.model.gang.status import CloseReason
from holdfast.model.gang.wire import Announcement, Assignment, Coordinator, Directive, DirectiveKind, MemberState
from tests.agent.stage import LIMIT, Puppet, Stage, open_stage

NEVER = timedelta(hours=1)


class Gang:
    """A rendezvous of one member, decided by the test: the contract's words, over HTTP, and nothing behind them."""

    def __init__(self) -> None:
        self.revision = 0
        self.directive = Directive(revision=0, kind=DirectiveKind.WAIT)
        self.away = False
        self.refuses = ""
        self.heard: asyncio.Queue[Announcement] = asyncio.Queue()
        self._new = asyncio.Event()
        self._last: Any = None

    async def announce(self, request: web.Request) -> web.Response:
        said = Announcement.model_validate(await request.json())
        if self.refuses:
            return web.json_response({"error": self.refuses}, status=403)
        if self.away:
            return web.json_response({"error": "nobody knows yet"}, status=503)
        word = (said.report, said.join.port)
        if word != self._last:
            self._last = word
            self.heard.put_nowait(said)
        if said.seen == self.directive.revision:
            self._new.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._new.wait(), said.wait.total_seconds())
        return web.json_response(self.directive.model_dump(mode="json"))

    def tell(self, kind: DirectiveKind, **more: Any) -> None:
        self.revision += 1
        self.directive = Directive(revision=self.revision, kind=kind, heartbeat=timedelta(seconds=0.5), **more)
        self._new.set()

    def run(self, number: int, workers: int = 1, grace: timedelta = NEVER) -> None:
        place = Assignment(
            run_id="u-1-1",
            round=number,
            group_rank=0,
            group_world_size=1,
            rank=0,
            world_size=workers,
            local_world_size=workers,
            role="default",
            role_rank=0,
            role_world_size=workers,
            coordinator=Coordinator(address="127.0.0.1", port=29500),
            restarts=number - 1,
            max_restarts=3,
        )
        self.tell(DirectiveKind.RUN, assignment=place, grace=grace)

    async def hears(self, state: MemberState) -> Announcement:
        """Wait until the member says that it is in this state, and return how it said so."""
        while True:
            said = await asyncio.wait_for(self.heard.get(), LIMIT)
            if said.report.state is state:
                return said


class Running:
    """An agent's process, its gang and its workers."""

    def __init__(self, gang: Gang, stage: Stage, process: asyncio.subprocess.Process) -> None:
        self.gang = gang
        self.stage = stage
        self.process = process

    async def worker(self) -> Puppet:
        return await self.stage.enters("worker")

    async def ends(self) -> int:
        return await asyncio.wait_for(self.process.wait(), LIMIT)

    def keeper(self) -> int:
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children", encoding="ascii") as file:
            (pid,) = file.read().split()
        return int(pid)


@asynccontextmanager
async def agent(folder: Path, *options: str) -> AsyncIterator[Running]:
    gang = Gang()
    app = web.Application()
    app.router.add_post("/rendezvous/v1/{workload}/announce", gang.announce)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    (folder / "token").write_text("token")
    environment = {
        **os.environ,
        "TMPDIR": str(folder),
        names.ENV_RENDEZVOUS: f"http://127.0.0.1:{runner.addresses[0][1]}",
        names.ENV_RENDEZVOUS_TOKEN: str(folder / "token"),
        names.ENV_WORKLOAD_UID: "u-1",
        names.ENV_ATTEMPT: "1",
        names.ENV_MEMBER: "train-0",
        names.ENV_POD_UID: "p-0",
        names.ENV_POD_ADDRESS: "127.0.0.1",
    }
    async with open_stage(folder) as stage:
        command = [sys.executable, "-m", "holdfast", "agent", *options, "--", *stage.command("worker")]
        process = await asyncio.create_subprocess_exec(*command, env=environment)
        try:
            yield Running(gang, stage, process)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
            await runner.cleanup()


async def test_a_round_from_the_join_to_the_end(tmp_path: Path) -> None:
    async with agent(tmp_path, "--nproc-per-node=2") as one:
        joined = await one.gang.hears(MemberState.INIT)
        assert (joined.join.member, joined.join.local_world_size, joined.report.round) == ("train-0", 2, 0)
        one.gang.run(1, workers=2)
        workers = [await one.worker(), await one.worker()]
        assert sorted(worker.environment["RANK"] for worker in workers) == ["0", "1"]
        assert {worker.environment["WORLD_SIZE"] for worker in workers} == {"2"}
        assert (await one.gang.hears(MemberState.HEALTHY)).report.round == 1
        for worker in workers:
            worker.do("exit", code=0)
        await one.gang.hears(MemberState.SUCCEEDED)
        one.gang.tell(DirectiveKind.FINISH, reason=CloseReason.SUCCEEDED)
        assert await one.ends() == 0
    assert sorted(os.listdir(tmp_path)) == ["s", "token"], "its files are gone with it"


@pytest.mark.row("T3", level="pure")
async def test_T3_a_failed_worker_takes_the_others_along_is_told_and_the_next_round_is_another(tmp_path: Path) -> None:
    async with agent(tmp_path, "--nproc-per-node=2") as one:
        before = await one.gang.hears(MemberState.INIT)
        one.gang.run(1, workers=2)
        workers = sorted([await one.worker(), await one.worker()], key=lambda worker: worker.environment["RANK"])
        await workers[0].done("trap", code=0)
        path = workers[1].environment["TORCHELASTIC_ERROR_FILE"]
        await workers[1].done("write", path=path, text='{"message": "no GPU", "timestamp": 1700000000}')
        workers[1].do("exit", code=3)
        assert await workers[0].says() == "TERM"
        failed = await one.gang.hears(MemberState.FAILED)
        (failure,) = failed.report.failures
        assert (failure.local_rank, failure.exit_code, failure.error) == (1, 3, "no GPU")
        one.gang.tell(DirectiveKind.REJOIN)
        again = await one.gang.hears(MemberState.INIT)
        assert (again.report.round, again.join.incarnation) == (1, before.join.incarnation)
        assert again.join.port != before.join.port
        one.gang.run(2, workers=2)
        assert {(await one.worker()).environment["TORCHELASTIC_RESTART_COUNT"] for _ in range(2)} == {"1"}
        one.gang.tell(DirectiveKind.FINISH, reason=CloseReason.ENDED, exit_code=5)
        assert await one.ends() == 5


@pytest.mark.row("T3", level="pure")
@pytest.mark.row("P2", level="pure")
async def test_P2_the_programs_of_a_round_begin_without_the_step_of_the_round_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "step.json"
    monkeypatch.setenv(progress.ENV_FILE, str(file))
    async with agent(tmp_path) as one:
        one.gang.run(1)
        worker = await one.worker()
        await worker.done("write", path=str(file), text='{"step": 395}')
        worker.do("exit", code=3)
        await one.gang.hears(MemberState.FAILED)
        assert file.exists()
        one.gang.tell(DirectiveKind.REJOIN)
        await one.gang.hears(MemberState.INIT)
        one.gang.run(2)
        await one.worker()
        assert not file.exists()
        one.gang.tell(DirectiveKind.FINISH, reason=CloseReason.ENDED, exit_code=5)
        assert await one.ends() == 5


@pytest.mark.row("D42", level="pure")
async def test_D42_a_failure_is_heard_while_another_worker_still_stops(tmp_path: Path) -> None:
    async with agent(tmp_path, "--nproc-per-node=2") as one:
        await one.gang.hears(MemberState.INIT)
        one.gang.run(1, workers=2)
        workers = sorted([await one.worker(), await one.worker()], key=lambda worker: worker.environment["RANK"])
        await workers[0].done("trap")
        workers[1].do("exit", code=3)
        assert await workers[0].says() == "TERM"
        failed = await one.gang.hears(MemberState.FAILED)
        assert [failure.exit_code for failure in failed.report.failures] == [3]
        assert failed.report.stopping
        one.gang.tell(DirectiveKind.REJOIN)
        workers[0].do("exit", code=0)
        assert (await one.gang.hears(MemberState.INIT)).report.round == 1
        one.gang.tell(DirectiveKind.FINISH, reason=CloseReason.ENDED, exit_code=5)
        assert await one.ends() == 5


@pytest.mark.row("T13", level="pure")
async def test_T13_a_preempted_agent_gives_its_workers_the_grace_kills_what_is_left_and_says_that_it_leaves(
    tmp_path: Path,
) -> None:
    async with agent(tmp_path) as one:
        one.gang.run(1, grace=timedelta(seconds=0.3))
        worker = await one.worker()
        await worker.done("fork", name="child", session=True)
        child = await one.stage.enters("child")
        await worker.done("trap")
        await child.done("trap")
        one.process.send_signal(signal.SIGTERM)
        assert [await worker.says(), await child.says()] == ["TERM", "TERM"]
        await worker.ends()
        await child.ends()
        await one.gang.hears(MemberState.STOPPED)
        assert await one.ends() == 143


async def test_a_second_signal_waits_for_nobody(tmp_path: Path) -> None:
    async with agent(tmp_path) as one:
        one.gang.run(1)
        worker = await one.worker()
        await worker.done("trap")
        one.process.send_signal(signal.SIGTERM)
        assert await worker.says() == "TERM"
        one.process.send_signal(signal.SIGTERM)
        await worker.ends()
        assert await one.ends() == 143


async def test_nothing_survives_an_agent_that_is_killed(tmp_path: Path) -> None:
    async with agent(tmp_path) as one:
        one.gang.run(1)
        worker = await one.worker()
        await worker.done("fork", name="child")
        await worker.done("fork", name="daemon", session=True)
        everyone = [worker, await one.stage.enters("child"), await one.stage.enters("daemon")]
        for puppet in everyone:
            await puppet.done("trap")
        one.process.kill()
        for puppet in everyone:
            await puppet.ends()


async def test_nothing_survives_a_keeper_that_is_killed_and_its_member_has_failed(tmp_path: Path) -> None:
    async with agent(tmp_path) as one:
        one.gang.run(1)
        worker = await one.worker()
        await worker.done("fork", name="daemon", session=True)
        daemon = await one.stage.enters("daemon")
        os.kill(one.keeper(), signal.SIGKILL)
        await worker.ends()
        await daemon.ends()
        (failure,) = (await one.gang.hears(MemberState.FAILED)).report.failures
        assert failure.signal == 9
        assert re.search("keeper", failure.error)
        one.gang.tell(DirectiveKind.FINISH, reason=CloseReason.RESTARTS_EXHAUSTED, exit_code=1)
        assert await one.ends() == 137


async def test_workers_run_on_while_the_rendezvous_is_away_and_nothing_that_happened_is_lost(tmp_path: Path) -> None:
    async with agent(tmp_path) as one:
        one.gang.run(1)
        worker = await one.worker()
        await one.gang.hears(MemberState.HEALTHY)
        one.gang.away = True
        await worker.done("trap", code=0)
        worker.do("exit", code=7)
        await worker.ends()
        one.gang.away = False
        assert (await one.gang.hears(MemberState.FAILED)).report.failures[0].exit_code == 7


async def test_an_agent_whose_rendezvous_is_away_ends_all_the_same_when_it_is_told_to(tmp_path: Path) -> None:
    async with agent(tmp_path) as one:
        one.gang.run(1)
        worker = await one.worker()
        one.gang.away = True
        one.process.send_signal(signal.SIGTERM)
        await worker.ends()
        assert await one.ends() == 143
