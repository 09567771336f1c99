"""Real torchruns in a real PyTorch, whose scripts reduce over gloo, against the gang's real rules (rows T1-T13)."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast import progress
from holdfast.model.gang.state import Absence, GangState
from holdfast.model.gang.status import CloseReason, GangPhase
from holdfast.model.gang.wire import MemberState
from tests.torchrun.fleet import PACKAGES, Fleet, fleet, pytorch

pytestmark = pytest.mark.torch
ROW = pytest.mark.row


def runs(number: int) -> Callable[[GangState], bool]:
    return lambda state: (
        state.round == number
        and all(one.report.state is MemberState.HEALTHY for one in state.members.values() if one.round == number)
    )


def charged(state: GangState) -> dict[str, int]:
    return {name: one.restarts for name, one in sorted(state.members.items())}


async def finish(one: Fleet, *members: str, worker: str = "") -> None:
    """Let the workers of these members finish, whose torchruns then end well."""
    found = await one.workers(*members)
    found[worker or members[0]].do("finish")
    for each in one.running:
        if each.process.returncode is None:
            assert await each.ends() == 0
    assert one.gathering.state.closed is CloseReason.SUCCEEDED


@ROW("T1", level="pure")
async def test_T1_torchruns_meet_train_and_succeed_together(tmp_path: Path) -> None:
    async with fleet(tmp_path, min=2, max=2) as one:
        await one.start("a")
        await one.start("b")
        found = await one.workers("a", "b")
        told = [found[name].environment for name in ("a", "b")]
        assert sorted(each["RANK"] for each in told) == ["0", "1"]
        assert {each["WORLD_SIZE"] for each in told} == {"2"}
        assert {each["TORCHELASTIC_RUN_ID"] for each in told} == {"u-1-1"}
        assert {each["MASTER_ADDR"] for each in told} == {"127.0.0.1"}
        found["a"].do("finish")
        assert [await each.ends() for each in one.running] == [0, 0]
        assert one.gathering.state.closed is CloseReason.SUCCEEDED
        for name in ("a", "b"):
            states = [state for member, state in one.gathering.said if member == name]
            assert states == [MemberState.INIT, MemberState.HEALTHY, MemberState.SUCCEEDED]


async def test_workers_of_a_pod_are_counted_and_have_its_role(tmp_path: Path) -> None:
    async with fleet(tmp_path, min=2, max=2) as one:
        await one.start("a", "--nproc_per_node=2")
        await one.start("b", "--nproc_per_node=1")
        found = [*(await one.workers("a")).values(), *(await one.workers("a", "b")).values()]
        assert sorted(each.environment["RANK"] for each in found) == ["0", "1", "2"]
        assert {each.environment["WORLD_SIZE"] for each in found} == {"3"}
        members = one.gathering.state.members
        assert {name: each.join.local_world_size for name, each in members.items()} == {"a": 2, "b": 1}
        found[0].do("finish")
        assert [await each.ends() for each in one.running] == [0, 0]


@ROW("T2", level="pure")
async def test_T2_who_is_done_first_waits_for_the_others_at_the_rendezvouss_barrier(tmp_path: Path) -> None:
    async with fleet(tmp_path, min=2, max=2) as one:
        await one.start("a")
        late = await one.start("b")
        found = await one.workers("a", "b")
        found["b"].do("late", late=4)
        await asyncio.sleep(0.5)
        found["a"].do("finish")
        await one.gathering.until(lambda state: state.phase is GangPhase.FINISHING)
        assert late.process.returncode is None
        assert [await each.ends() for each in one.running] == [0, 0]
        assert one.gathering.state.closed is CloseReason.SUCCEEDED


@ROW("T2", level="pure")
async def test_T2_the_barrier_ends_and_who_has_not_finished_is_stopped(tmp_path: Path) -> None:
    async with fleet(tmp_path, min=2, max=2, finalization_barrier=timedelta(seconds=5)) as one:
        first = await one.start("a")
        late = await one.start("b")
        found = await one.workers("a", "b")
        found["b"].do("late", late=1000)
        await asyncio.sleep(0.5)
        found["a"].do("finish")
        assert (await first.ends(), await late.ends()) == (0, 1)
        assert one.gathering.state.closed is CloseReason.EXIT_BARRIER_TIMEOUT
        assert "had not finished 5s after the first" in late.said()


@ROW("T3", level="pure")
async def test_T3_a_killed_worker_is_charged_to_its_member_and_all_meet_again(tmp_path: Path) -> None:
    async with fleet(tmp_path, min=3, max=3) as one:
        told = {name: tmp_path / f"{name}.json" for name in "abc"}
        for name in "abc":
            await one.start(name, **{progress.ENV_FILE: str(told[name])})
        found = await one.workers(*"abc")
        await one.gathering.until(runs(1))
        for file in told.values():
            progress.write(file, {"step": 395})
        os.kill(found["b"].pid, signal.SIGKILL)
        state = await one.gathering.until(runs(2))
        assert charged(state) == {"a": 0, "b": 1, "c": 0}
        assert state.why == "local rank 0 of b was ended by signal 9"
        await finish(one, *"abc")
        assert len(one.gathering.rounds) == 2
        assert not any(file.exists() for file in told.values()), "the step is of the round before"


@ROW("T3", level="pure")
async def test_T3_what_a_script_raised_is_told(tmp_path: Path) -> None:
    async with fleet(tmp_path, min=2, max=2) as one:
        for name in "ab":
            await one.start(name)
        found = await one.workers(*"ab")
        await one.gathering.until(runs(1))
        found["a"].do("exit", code=7)
        state = await one.gathering.until(runs(2))
        assert charged(state) == {"a": 1, "b": 0}
        assert state.why == "local rank 0 of a exited 7"
        await finish(one, *"ab")


@ROW("T4", level="pure")
async def test_T4_the_gangs_budget_ends_all_torchruns_at_once(tmp_path: Path) -> None:
    async with fleet(tmp_path, min=3, max=3, max_restarts=1) as one:
        for name in "abc":
            await one.start(name)
        for number in (1, 2):
            found = await one.workers(*"abc")
            await one.gathering.until(runs(number))
            os.kill(found["c"].pid, signal.SIGKILL)
        loop = asyncio.get_running_loop()
        began = loop.time()
        assert [await each.ends() for each in one.running] == [1, 1, 1]
        assert loop.time() - began < 60, "long before PyTorch's barrier of 300 s"
        assert one.gathering.state.closed is CloseReason.RESTARTS_EXHAUSTED
        assert "local rank 0 of c was ended by signal 9; 1 restart used" in one.running[0].said()


@ROW("T6", level="pure")
async def test_T6_a_newcomer_stops_all_for_a_round_that_nobody_pays_for(tmp_path: Path) -> None:
    async with fleet(tmp_path, min=2, max=3) as one:
        await one.start("a")
        await one.start("b")
        found = await one.workers("a", "b")
        assert found["a"].environment["WORLD_SIZE"] == "2"
        await one.gathering.until(runs(1))
        await one.start("c")
        found = await one.workers("a", "b", "c")
        assert {each.environment["WORLD_SIZE"] for each in found.values()} == {"3"}
        assert {each.environment["TORCHELASTIC_RESTART_COUNT"] for each in found.values()} == {"0"}
        assert charged(one.gathering.state) == {"a": 0, "b": 0, "c": 0}
        found["c"].do("finish")
        assert [await each.ends() for each in one.running] == [0, 0, 0]


@ROW("T9", level="pure")
async def test_T9_a_torchrun_that_is_killed_is_lost_and_the_others_go_on(tmp_path: Path) -> None:
    async with fleet(tmp_path, min=2, max=3, keep_alive_attempts=5) as one:
        for name in "abc":
            await one.start(name)
        found = await one.workers(*"abc")
        await one.gathering.until(runs(1))
        one.running[2].process.kill()
        os.kill(found["c"].pid, signal.SIGKILL)
        state = await one.gathering.until(runs(2))
        assert state.members["c"].absent is Absence.SILENT
        assert state.members["c"].restarts == 0
        found = await one.workers("a", "b")
        assert {each.environment["WORLD_SIZE"] for each in found.values()} == {"2"}
        found["a"].do("finish")
        assert [await each.ends() for each in one.running[:2]] == [0, 0]


async def test_T9_one_that_is_lost_before_it_enters_holds_nobody_up(tmp_path: Path) -> None:
    async with fleet(tmp_path, min=1, max=2, keep_alive_attempts=5) as one:
        await one.start("a")
        await one.workers("a")
        # It joins, is given a place, and is gone before its torchrun comes to the store of the round.
        lost = await one.start("b")
        await one.gathering.until(lambda state: "b" in state.members)
        lost.process.send_signal(signal.SIGSTOP)
        await one.gathering.until(lambda state: state.round >= 2 and "b" not in state.participants)
        found = await one.workers("a")
        assert found["a"].environment["WORLD_SIZE"] == "1"
        lost.process.kill()
        found["a"].do("finish")
        assert await one.running[0].ends() == 0


@ROW("T13", level="pure")
async def test_T13_a_preempted_torchrun_leaves_in_order_and_uncharged(tmp_path: Path) -> None:
    async with fleet(tmp_path, min=1, max=2, heartbeat=timedelta(seconds=20)) as one:
        await one.start("a")
        left = await one.start("b")
        await one.workers("a", "b")
        await one.gathering.until(runs(1))
        left.process.send_signal(signal.SIGTERM)
        assert await left.ends() != 0
        state = await one.gathering.until(lambda state: state.round >= 2 and "b" not in state.participants)
        assert state.members["b"].absent is Absence.LEFT
        await finish(one, "a")
        assert one.gathering.state.members["b"].restarts == 0


@ROW("T13", level="pure")
async def test_T13_one_that_still_waits_for_a_round_ends_by_its_signal_too(tmp_path: Path) -> None:
    async with fleet(tmp_path, min=2, max=2, heartbeat=timedelta(seconds=20)) as one:
        left = await one.start("a")
        await one.gathering.until(lambda state: "a" in state.members)
        left.process.send_signal(signal.SIGTERM)
        assert await left.ends() != 0
        assert one.gathering.state.members["a"].absent is Absence.LEFT


async def test_torchruns_own_restarts_hold_too(tmp_path: Path) -> None:
    async with fleet(tmp_path, min=1, max=1) as one:
        first = await one.start("a", "--max_restarts=0")
        found = await one.workers("a")
        await one.gathering.until(runs(1))
        found["a"].do("exit", code=7)
        assert await first.ends() == 1
        state = await one.gathering.until(lambda state: state.members["a"].absent is Absence.LEFT)
        assert charged(state) == {"a": 1}
        # What its container's restart is: the budget is where it was left.
        await one.start("a")
        await finish(one, "a")
        assert charged(one.gathering.state) == {"a": 1}


async def test_a_gang_outlives_a_rendezvous_that_is_away(tmp_path: Path) -> None:
    async with fleet(tmp_path, min=2, max=2) as one:
        await one.start("a")
        await one.start("b")
        found = await one.workers("a", "b")
        await one.gathering.until(runs(1))
        one.gathering.away = True
        found["a"].do("finish")
        await asyncio.sleep(3)
        assert all(each.process.returncode is None for each in one.running)
        one.gathering.away = False
        assert [await each.ends() for each in one.running] == [0, 0]
        assert one.gathering.state.closed is CloseReason.SUCCEEDED


def test_outside_a_gang_the_error_says_what_is_missing() -> None:
    using = pytorch()
    module = ["torch.distributed.run", "--rdzv_backend=holdfast"] if using.asks else ["holdfast.torchrun"]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    done = subprocess.run(
        [using.python, "-m", *module, "train.py"],
        env=clean | ({} if using.asks else {"PYTHONPATH": str(PACKAGES)}),
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
    )
    assert done.returncode != 0
    assert re.search("HOLDFAST_RENDEZVOUS, .*: not set; expected the environment that Holdfast gives", done.stderr)
