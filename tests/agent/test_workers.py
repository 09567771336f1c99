"""One round's workers as real processes: how they end, and that nothing of theirs outlives them."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.agent import error_file
from holdfast.agent.machine import Ended, Event, Gone
from holdfast.agent.workers import Launch, Workers, describe
from tests.agent.stage import LIMIT, Puppet, Stage, open_stage

NEVER = 3600.0
"""Seconds of grace that no test lives to see the end of."""


class Round:
    """The workers of one round, and what is told of them, in order."""

    def __init__(self, stage: Stage, folder: Path) -> None:
        self.stage = stage
        self.folder = folder
        self.told: asyncio.Queue[Event] = asyncio.Queue()
        self.workers: Workers

    async def start(self, *names: str) -> list[Puppet]:
        await self.launch(*(self.stage.command(name) for name in names))
        return [await self.stage.enters(name) for name in names]

    async def launch(self, *commands: list[str]) -> None:
        launches = [
            Launch(command, {"WHO": str(local_rank)}, str(self.folder / f"error-{local_rank}"))
            for local_rank, command in enumerate(commands)
        ]
        self.workers = await Workers.start(launches, self.told.put_nowait, self._never)

    async def next(self) -> Event:
        return await asyncio.wait_for(self.told.get(), LIMIT)

    async def _never(self) -> None:
        raise AssertionError("the keeper has not ended of itself")


@pytest.fixture
async def a_round(tmp_path: Path) -> AsyncIterator[Round]:
    async with open_stage(tmp_path) as stage:
        one = Round(stage, tmp_path)
        yield one
        one.workers.stop(0.0)
        await asyncio.wait_for(one.workers.gone(), LIMIT)


def ended(event: Event) -> tuple[int, int, bool]:
    assert isinstance(event, Ended)
    return event.local_rank, event.failure.code if event.failure else 0, event.asked


async def test_workers_have_their_own_environment_sessions_and_no_other_descriptors(a_round: Round) -> None:
    first, second = await a_round.start("a", "b")
    assert [first.environment["WHO"], second.environment["WHO"]] == ["0", "1"]
    assert first.environment["PATH"] == os.environ["PATH"]
    assert [first.session, second.session] == [first.pid, second.pid]
    # Its streams, and its socket to this test.
    assert len(os.listdir(f"/proc/{first.pid}/fd")) == 4
    assert os.readlink(f"/proc/{first.pid}/fd/0") == "/dev/null"


@pytest.mark.parametrize(
    ("order", "code"),
    [({"what": "exit", "code": 0}, 0), ({"what": "exit", "code": 3}, 3), ({"what": "signal", "number": 9}, -9)],
)
async def test_how_a_worker_ended_is_told(a_round: Round, order: dict[str, Any], code: int) -> None:
    first, second = await a_round.start("a", "b")
    second.do(**order)
    assert ended(await a_round.next()) == (1, code, False)
    await first.done("trap", code=0)
    a_round.workers.stop(NEVER)
    assert ended(await a_round.next()) == (0, 0, True)
    assert await a_round.next() == Gone()


async def test_the_error_file_tells_more_than_the_code(a_round: Round) -> None:
    (first,) = await a_round.start("a")
    text = '{"message": {"message": "m", "extraInfo": {"py_callstack": "no GPU", "timestamp": "1700000000"}}}'
    await first.done("write", path=str(a_round.folder / "error-0"), text=text)
    first.do("exit", code=1)
    event = await a_round.next()
    assert isinstance(event, Ended)
    assert event.failure
    assert (event.failure.code, event.failure.error) == (1, "no GPU")


@pytest.mark.row("D43", level="pure")
async def test_D43_a_worker_has_not_failed_before_it_was_seen_running_whatever_its_error_file_says(
    a_round: Round,
) -> None:
    before = time.time()
    (first,) = await a_round.start("a")
    text = '{"message": "no GPU", "timestamp": 1700000000}'
    await first.done("write", path=str(a_round.folder / "error-0"), text=text)
    first.do("exit", code=1)
    event = await a_round.next()
    assert isinstance(event, Ended)
    assert event.failure
    assert before <= event.failure.at <= time.time()


@pytest.mark.row("D43", level="pure")
def test_D43_of_a_second_that_pytorch_writes_the_files_own_time_says_which_part(tmp_path: Path) -> None:
    path = tmp_path / "error.json"
    for written, at in ((1_700_000_000.75, 1_700_000_000.75), (1_700_000_009.5, 1_700_000_000.0)):
        path.write_text('{"message": {"message": "m", "extraInfo": {"timestamp": "1700000000"}}}')
        os.utime(path, (written, written))
        told = error_file.read(str(path))
        assert told is not None
        assert told.at == at


async def test_a_worker_that_ignores_TERM_is_killed_after_the_grace(a_round: Round) -> None:
    (first,) = await a_round.start("a")
    await first.done("trap")
    a_round.workers.stop(0.2)
    assert await first.says() == "TERM"
    assert ended(await a_round.next()) == (0, -9, True)
    assert await a_round.next() == Gone()


async def test_a_second_word_shortens_the_grace_and_none_lengthens_it(a_round: Round) -> None:
    (first,) = await a_round.start("a")
    await first.done("trap")
    a_round.workers.stop(NEVER)
    assert await first.says() == "TERM"
    a_round.workers.stop(0.0)
    a_round.workers.stop(NEVER)
    assert ended(await a_round.next()) == (0, -9, True)


async def test_TERM_reaches_the_whole_group_and_whoever_has_left_it(a_round: Round) -> None:
    (first,) = await a_round.start("a")
    await first.done("fork", name="child")
    await first.done("fork", name="daemon", session=True)
    child, daemon = await a_round.stage.enters("child"), await a_round.stage.enters("daemon")
    assert (child.session, daemon.session) == (first.pid, daemon.pid)
    for puppet in (first, child, daemon):
        await puppet.done("trap", code=0)
    a_round.workers.stop(NEVER)
    for puppet in (first, child, daemon):
        assert await puppet.says() == "TERM"
    assert ended(await a_round.next()) == (0, 0, True)
    assert await a_round.next() == Gone()


async def test_what_a_worker_left_behind_keeps_the_round_open_until_it_is_killed(a_round: Round) -> None:
    (first,) = await a_round.start("a")
    await first.done("fork", name="daemon", session=True)
    daemon = await a_round.stage.enters("daemon")
    await daemon.done("trap")
    first.do("exit", code=0)
    assert ended(await a_round.next()) == (0, 0, False)
    a_round.workers.stop(NEVER)
    assert await daemon.says() == "TERM"
    assert a_round.told.empty()
    a_round.workers.stop(0.0)
    await daemon.ends()
    assert await a_round.next() == Gone()


@pytest.mark.parametrize(("program", "code"), [("/no/such/program", 127), ("/etc/passwd", 126), ("/etc", 126)])
async def test_a_command_that_cannot_be_run_is_told_as_a_shell_does(a_round: Round, program: str, code: int) -> None:
    await a_round.launch([program], a_round.stage.command("b"))
    event = await a_round.next()
    assert ended(event) == (0, code, False)
    assert isinstance(event, Ended)
    assert event.failure
    assert program in event.failure.error
    await a_round.stage.enters("b")


async def test_signals_that_are_not_the_agents_do_not_end_the_keeper(a_round: Round) -> None:
    (first,) = await a_round.start("a")
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        os.kill(a_round.workers.keeper.pid, number)
    # And workers do not find them ignored.
    first.do("signal", number=signal.SIGTERM)
    assert ended(await a_round.next()) == (0, -15, False)


async def test_a_keeper_that_is_killed_takes_its_workers_with_it_and_is_told(tmp_path: Path) -> None:
    cleared = asyncio.Event()

    async def clear() -> None:
        cleared.set()

    async with open_stage(tmp_path) as stage:
        told: asyncio.Queue[Event] = asyncio.Queue()
        workers = await Workers.start([Launch(stage.command("a"), {}, "")], told.put_nowait, clear)
        first = await stage.enters("a")
        await first.done("trap")
        os.kill(workers.keeper.pid, signal.SIGKILL)
        event = await asyncio.wait_for(told.get(), LIMIT)
        await first.ends()
    assert isinstance(event, Gone)
    assert event.failure
    assert event.failure.code == -9
    assert cleared.is_set()


def test_how_a_process_ended_is_said_in_words() -> None:
    assert [describe(3), describe(-9), describe(-60)] == ["exit code 3", "signal 9 (SIGKILL)", "signal 60"]
