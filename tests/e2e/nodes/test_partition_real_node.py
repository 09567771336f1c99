"""A real node that lives on while nothing of it reaches the API server, nor the other way round (row L12).

Unlike one whose kubelet is stopped, this kubelet goes on: it sees its processes end, and has all of it to tell.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
from datetime import UTC, datetime
from pathlib import Path

import pytest

from holdfast import names
from holdfast.activities.kube.raw import time_of
from holdfast.local import Stack
from holdfast.model import NodeState, NodeWord
from tests.e2e.ground.partition import Sampled, partible, shells, turns
from tests.e2e.ground.site import until
from tests.e2e.nodes.test_lost_nodes import QUICK, is_tainted, stands, word
from tests.e2e.nodes.test_lost_real_node import PATIENT, is_free, lent, sleeper

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.real_node,
    pytest.mark.timeout(900),
    pytest.mark.asyncio(loop_scope="session"),
]
ROW = pytest.mark.row
OBEDIENT = "trap 'exit 0' TERM; while :; do sleep 0.1; done"


@ROW("L12", level="e2e")
async def test_L12_a_partition_that_heals_within_the_grace_disturbs_nothing(stack: Stack, tmp_path: Path):
    marker = secrets.token_hex(8)
    async with lent(stack, tmp_path, **PATIENT) as (space, nodes), partible(stack, tmp_path) as line:
        handle = await space.submit(sleeper(space, nodes, marker))
        before = await space.reach(handle, "Running", 1)
        (process,) = await asyncio.to_thread(shells, marker)
        line.black_hole()
        await stands(space.site, "real", NodeState.DEGRADED, 120)
        done = turns(process)
        requests = len(space.truth.requests())
        await asyncio.sleep(5)
        assert turns(process) > done, "the process goes on behind the partition"
        await line.heal()
        await stands(space.site, "real", NodeState.HEALTHY, 120)
        status = await space.site.status(handle)
        assert (status.phase, status.attempt, status.restarts) == ("Running", 1, 0)
        assert status.causes == before.causes, "nothing was decided"
        assert await word(space.site, "real") is NodeWord.NONE, "and nothing said on the node"
        since = space.truth.requests()[requests:]
        assert not [one for one in since if one.worker and one.verb in {"create", "delete"}]
        assert list(await asyncio.to_thread(shells, marker)) == [process], "the same process"


@ROW("L12", level="e2e")
async def test_L12_an_exit_behind_a_partition_is_told_as_it_was_once_that_heals(stack: Stack, tmp_path: Path):
    marker = secrets.token_hex(8)
    async with lent(stack, tmp_path, **PATIENT) as (space, nodes), partible(stack, tmp_path) as line:
        handle = await space.submit(sleeper(space, nodes, marker))
        await space.reach(handle, "Running", 1)
        (process,) = await asyncio.to_thread(shells, marker)
        line.black_hole()
        await stands(space.site, "real", NodeState.DEGRADED, 120)
        os.kill(process, signal.SIGKILL)
        await asyncio.sleep(5)
        assert (await space.site.status(handle)).phase == "Running", "nobody knows of it"
        healed = datetime.now(UTC)
        await line.heal()
        status = await space.ended(handle, 240)
        assert (status.phase, status.restarts) == ("Failed", 0)
        await space.truth.settle()
        (life,) = space.truth.of(1, "Pod")
        ended = life.object["status"]["containerStatuses"][0]["state"]["terminated"]
        assert ended["exitCode"] == 137
        finished = time_of(ended["finishedAt"])
        assert finished is not None
        assert finished < healed, "its kubelet has seen it, and told it later"


@ROW("L12", level="e2e")
async def test_L12_what_a_partition_took_too_long_from_is_moved_and_ends_once_it_heals(stack: Stack, tmp_path: Path):
    marker = secrets.token_hex(8)
    async with lent(stack, tmp_path, **QUICK) as (space, nodes), partible(stack, tmp_path) as line:
        handle = await space.submit(sleeper(space, nodes, marker, OBEDIENT))
        await space.reach(handle, "Running", 1)
        (process,) = await asyncio.to_thread(shells, marker)
        await nodes.join(nodes.group)
        line.black_hole()
        status = await space.reach(handle, "Running", 2, 240)
        (moved,) = await space.pods("train")
        assert moved["spec"]["nodeName"] in nodes.names
        (gone,) = [each.message for each in status.causes if each.reason == "DeletionComplete"]
        assert gone.endswith("it may still run on real until that node is heard again or powered off")
        assert list(await asyncio.to_thread(shells, marker)) == [process], "which it does"
        await line.heal()

        async def ended() -> bool:
            return not await asyncio.to_thread(shells, marker)

        await until(ended, 120, "the process of the first attempt has ended")
        await until(lambda: is_free(space), 120, "the node takes pods again")
        status = await space.site.status(handle)
        assert (status.phase, status.attempt, status.restarts) == ("Running", 2, 1)
        assert [pod["metadata"]["uid"] for pod in await space.pods("train")] == [moved["metadata"]["uid"]]
        await space.truth.settle()
        space.truth.assert_one_attempt_at_a_time("train")
        assert {life.object["metadata"]["labels"][names.LABEL_ATTEMPT] for life in space.truth.of(1, "Pod")} == {"1"}


@ROW("L5", level="e2e")
@ROW("L12", level="e2e")
async def test_L12_two_attempts_are_never_processes_at_once_on_the_node_that_was_parted(stack: Stack, tmp_path: Path):
    """Nowhere else can it run: so its second attempt waits for the very node on which its first one still runs."""
    marker = secrets.token_hex(8)
    async with lent(stack, tmp_path, **QUICK) as (space, nodes), partible(stack, tmp_path) as line:
        handle = await space.submit(sleeper(space, nodes, marker, OBEDIENT))
        await space.reach(handle, "Running", 1)
        (first,) = await asyncio.to_thread(shells, marker)
        sampled = Sampled(marker)
        async with sampled.running():
            line.black_hole()
            await stands(space.site, "real", NodeState.DOWN, 300)
            await space.reach(handle, "Resuming", 2, 240)
            assert is_tainted(await space.site.kube.get("v1", "Node", "real"), space.site)
            assert list(await asyncio.to_thread(shells, marker)) == [first]
            await line.heal()
            status = await space.reach(handle, "Running", 2, 240)
        (second,) = await asyncio.to_thread(shells, marker)
        assert second != first
        assert sampled.seen[0] == {first}
        assert sampled.seen[-1] == {second}
        assert not sampled.together, "they were processes at the same time"
        assert (status.restarts, [each.used for each in status.budgets]) == (1, [1])
        await space.truth.settle()
        space.truth.assert_one_attempt_at_a_time("train")
