"""The parts of an installation by the chart, killed one after the other under live workloads (row O1).

Two real nodes run the chart's pods, and two Temporal servers on a PostgreSQL serve them. `make test-peers` runs this.
What it measures is the table in docs/recovery.md.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio
import yaml

from holdfast.local import StackError
from holdfast.local.extras import ha
from holdfast.local.node.real_node import NODE, RealNode
from tests.e2e.chart.installed import COMPONENTS, Chart, load_image, open_site, reachable, values, write_image
from tests.e2e.chart.second_node import NAME, SecondNode
from tests.e2e.ground.site import until
from tests.e2e.ground.space import Space, open_space
from tests.e2e.upgrade import lives
from tests.e2e.upgrade.lives import Life, Sentinels
from tests.e2e.upgrade.test_upgrade import UNWATCHED, all_end, all_held, unmoved
from tests.e2e.witness.invariants import check_decisions, check_nothing_twice, ledger_of
from tests.e2e.witness.law import judge
from tests.shared_stack import own_stack

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.kueue,
    pytest.mark.timeout(900),
    pytest.mark.asyncio(loop_scope="module"),
]
COUNTS: Final = {"running": 2, "unhealthy": 1, "removing": 1, "suspended": 1, "sentinel": 3}
SERVERS: Final = tuple(ha.SERVERS)
SILENT: Final = 15.0
"""Seconds after which the stack's Temporal gives nothing more to a worker whose host died without a word."""


def _workers(*pods: dict[str, Any]) -> list[int]:
    """Return the processes of the workers in these pods."""
    uids = [pod["metadata"]["uid"] for pod in pods]
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        try:
            inside = entry.name.isdigit() and any(uid in (entry / "cgroup").read_text() for uid in uids)
            if inside and b"holdfast" in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:  # It has ended.
            continue
    return found


async def _kill(chart: Chart, *pods: dict[str, Any]) -> None:
    """Kill workers with -9, and wait until their kubelet has started them again."""
    pids = _workers(*pods)
    assert len(pids) >= len(pods), f"{len(pids)} workers found in {len(pods)} pods"
    for pid in pids:
        os.kill(pid, signal.SIGKILL)

    async def restarted() -> bool:
        new = _workers(*pods)
        return len(new) >= len(pods) and not set(new) & set(pids)

    await until(restarted, 60, "the kubelet starts them again")
    await chart.ready()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def chart(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Chart]:
    """The chart, installed on two nodes."""
    if os.geteuid() != 0:
        pytest.skip("a real kubelet needs root")
    try:
        ha.program("postgres")
    except StackError as error:
        pytest.skip(str(error))
    directory = tmp_path_factory.mktemp("chart")
    own = own_stack("chart", directory / "stack", nodes=2, real_node=True, ha=True, apply=False)
    with own as stack:
        archive = await write_image(directory)
        await load_image(stack, archive, RealNode(stack.directory))
        second = SecondNode(stack)
        try:
            async with reachable(stack) as (api, temporal), open_site(stack, directory) as site:
                file = directory / "values.yaml"
                file.write_text(yaml.safe_dump(values(api, temporal)))
                found = Chart(site, second, archive, file)
                await found.whole()
                yield found
        finally:
            second.remove()


# --- what is done to the installation

Kill = Callable[[Chart, Sentinels], Awaitable[None]]


def each_worker_of(component: str) -> Kill:
    async def kill(chart: Chart, sentinels: Sentinels) -> None:
        for pod in await chart.pods(component):
            await _kill(chart, pod)
            await sentinels.more()

    return kill


async def all_workers(chart: Chart, _: Sentinels) -> None:
    await _kill(chart, *[pod for component in COMPONENTS for pod in await chart.pods(component)])


async def rolled(chart: Chart, sentinels: Sentinels) -> None:
    """Exchange all pods, then go down to one of each, up to three, and back."""
    await chart.upgrade("--set", "env[2].name=HOLDFAST_LOG_LEVEL,env[2].value=debug")
    await sentinels.more()
    for count in (1, 3, 2):
        await chart.upgrade("--set", f"replicas={count}")
        await chart.ready(count)
        await sentinels.more()


async def drained(chart: Chart, _: Sentinels) -> None:
    await chart.kubectl("drain", NAME, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=110s")
    for component in COMPONENTS:
        assert await chart.nodes(component) <= {NODE}
    await chart.ready()
    await chart.kubectl("uncordon", NAME)


def parts(*names: str) -> Kill:
    """Kill parts of the stack at once, and start them again in this order."""

    async def kill(chart: Chart, _: Sentinels) -> None:
        stack = chart.site.stack
        for name in reversed(names):
            await asyncio.to_thread(stack.stop_part, name, signal.SIGKILL)
        for name in names:
            await asyncio.to_thread(stack.start_part, name)

    return kill


async def lost(chart: Chart, _: Sentinels) -> None:
    await asyncio.to_thread(chart.second.lose)


@dataclass(frozen=True)
class Case:
    """One way to harm the installation.

    Attributes:
        kill: does it, and brings back what a supervisor would.
        within: seconds within which a failure is noticed at the latest.
        away: whether the time until it is back is added to that: what was killed was all there was of its sort.
        exact: whether each failure that the test caused is known to it.
    """

    kill: Kill
    within: float = UNWATCHED
    away: bool = False
    exact: bool = True


CASES: Final = {
    "each worker with the role workflows": Case(each_worker_of("workflows")),
    "each worker with the role cluster": Case(each_worker_of("cluster")),
    "rolling update, scaled down and up": Case(rolled),
    "a node drained": Case(drained),
    "all workers at once": Case(all_workers, away=True),
    "one of two Temporal servers": Case(parts("temporal-1"), within=2 * UNWATCHED),
    "Temporal's PostgreSQL": Case(parts("postgresql"), away=True),
    "both Temporal servers": Case(parts(*SERVERS), away=True),
    "the API server": Case(parts("kube-apiserver"), away=True, exact=False),
    "etcd": Case(parts("etcd"), away=True, exact=False),
    "controller manager and scheduler": Case(parts("kube-controller-manager", "kube-scheduler")),
    "a node lost": Case(lost, within=SILENT + UNWATCHED),
}


@pytest.mark.row("O1", level="e2e")
@pytest.mark.parametrize("name", CASES)
async def test_O1_with_a_part_of_the_installation_killed_nothing_is_lost_reset_or_long_unwatched(
    chart: Chart, name: str
):
    case = CASES[name]
    await chart.whole()
    async with open_space(chart.site) as space:
        every = await _begun(space)
        held = [life for life in every if life.kind != "sentinel"]
        failing = [life for life in every if life.kind == "sentinel"]
        await all_held(space, every)
        sentinels = Sentinels(space, failing)
        await sentinels.more()

        at, begun = datetime.now(UTC), time.monotonic()
        await case.kill(chart, sentinels)
        took = time.monotonic() - begun
        await sentinels.more(12)
        await unmoved(space, held)
        await sentinels.stop()
        delays = await sentinels.delays()
        waits = [b - a for one in sentinels.failed.values() for a, b in pairwise(one) if b > at]
        print(
            f"MEASURED {name}: {took:.1f} s until it was back; of {len(delays)} failures the last was noticed after"
            f" {max(delays):.1f} s; at most {max(waits).total_seconds():.1f} s between two failures of a workload"
        )

        await all_end(space, held)
        for life in failing:
            status = await lives.end(space, life)
            known = len(sentinels.failed[life.name])
            assert status.restarts == known if case.exact else status.restarts >= known, life.name
        assert max(delays) <= case.within + case.away * took
        ledger = ledger_of(space)
        check_nothing_twice(ledger)
        assert not judge(ledger).broken
        for life in every:
            await check_decisions(life.handle)


async def _begun(space: Space) -> list[Life]:
    """Begin workloads that will be held in the middle of their phases, and some that fail again and again."""
    return [
        Life(kind, document["metadata"]["name"], await space.submit(document))
        for kind, documents in lives.documents(COUNTS).items()
        for document in documents
    ]
