"""Which measures are run, at which sizes, and running them on a stack of the bench's own."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import sys
import tempfile
import traceback
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.ground import Ground, Options, floor
from bench.machine import this_machine
from bench.measures import (
    agents,
    applied,
    cli,
    crash,
    crowd,
    engine,
    exclusive,
    gang,
    history,
    idle,
    inplace,
    latency,
    nodes,
    profile,
    removal,
    rounds,
    start,
    workers,
)
from bench.report import write
from bench.report.samples import Recording, load
from holdfast.local import NotRunningError, Stack

SHORT_SILENCE = {"HOLDFAST_NODE_DEGRADED": "12s", "HOLDFAST_NODE_DOWN": "3s"}


@dataclass(frozen=True)
class Plan:
    """One measure at certain sizes.

    Attributes:
        measure: its name, also of its file of samples.
        run: runs it.
        nodes: fake nodes that it needs, of 1,000 pods each.
        audit_bodies: it reads what was sent from the audit log, not only that; writing it slows the cluster down.
        real_node: it needs the real kubelet, and with it root.
        alone: it leaves its work behind, so that it needs a stack that nobody uses after it.
        warm: its systems live one life first even in a smoke.
    """

    measure: str
    run: Callable[[Ground], Awaitable[None]]
    nodes: int = 8
    audit_bodies: bool = False
    real_node: bool = False
    alone: bool = False
    warm: bool = False


FULL = (
    Plan(engine.NAME, engine.measure),
    Plan(start.NAME, start.measure),
    Plan(applied.NAME, applied.measure),
    Plan(removal.NAME, removal.measure),
    Plan(latency.NAME, latency.measure, audit_bodies=True),
    Plan(crash.NAME, crash.measure, audit_bodies=True),
    Plan(gang.NAME, gang.measure),
    Plan(exclusive.NAME, exclusive.measure, exclusive.NODES),
    Plan(history.NAME, history.measure),
    Plan(profile.NAME, profile.measure),
    Plan(workers.NAME, workers.measure),
    Plan(idle.NAME, idle.measure),
    Plan(cli.NAME, cli.measure),
    Plan(agents.NAME, agents.measure),
    Plan(rounds.NAME, rounds.measure, real_node=True),
    Plan(inplace.NAME, inplace.measure, real_node=True),
    Plan(nodes.NAME, nodes.measure, alone=True),
    Plan(crowd.NAME, crowd.measure, crowd.NODES, alone=True),
)
SMOKE = (
    Plan(engine.NAME, lambda on: engine.measure(on, 2)),
    Plan(start.NAME, lambda on: start.measure(on, (2,)), warm=True),
    Plan(latency.NAME, lambda on: latency.measure(on, (2,)), audit_bodies=True),
    Plan(removal.NAME, lambda on: removal.measure(on, (2,))),
    Plan(crash.NAME, lambda on: crash.measure(on, (2,), longest=20), audit_bodies=True),
    Plan(gang.NAME, lambda on: gang.measure(on, (2,), 2, ("JobSet",))),
    Plan(exclusive.NAME, lambda on: exclusive.measure(on, (2,), 2)),
    Plan(history.NAME, lambda on: history.measure(on, (2,))),
    Plan(workers.NAME, lambda on: workers.measure(on, (2,), 2)),
    Plan(idle.NAME, lambda on: idle.measure(on, (2,), 1)),
    Plan(cli.NAME, lambda on: cli.measure(on, 1)),
    Plan(nodes.NAME, lambda on: nodes.measure(on, 10, 4, 20, 2, SHORT_SILENCE, 8)),
    Plan(agents.NAME, lambda on: agents.measure(on, (3,), 0.5)),
    Plan(rounds.NAME, lambda on: rounds.measure(on, (2,)), real_node=True),
    Plan(inplace.NAME, lambda on: inplace.measure(on, (2,)), real_node=True),
    # What it leaves behind goes with everybody's stack here.
    Plan(crowd.NAME, lambda on: crowd.measure(on, (2, 3), 2, 2, 1)),
)


def carry_out(options: Options, *plans: Plan) -> None:
    """Run measures, each of which keeps its samples, then write tables and plots of all samples in the folder.

    One after another; in a smoke all at once on one stack. One that breaks does not keep the others from being run.

    Raises:
        SystemExit: if any broke; it names them.
    """
    broken: list[str] = []
    try:
        for several in [plans] if options.smoke else [(plan,) for plan in plans]:
            broken += _together(options, several)
    finally:
        _take_down(options, options.stack)
    print(write.write(load(options.out), options.out))
    if broken:
        raise SystemExit(f"broken: {', '.join(broken)}")


def _together(options: Options, plans: Sequence[Plan]) -> list[str]:
    """Run measures on one stack, and return which of them broke."""
    alone = any(plan.alone for plan in plans)
    stack = f"{options.stack}-{plans[0].measure}" if alone else options.stack
    if alone:
        _take_down(options, options.stack)
    try:
        return asyncio.run(_run(dataclasses.replace(options, stack=stack), plans))
    except Exception:
        traceback.print_exc()
        return [plan.measure for plan in plans]
    finally:
        if alone:
            _take_down(options, stack)


async def _run(options: Options, plans: Sequence[Plan]) -> list[str]:
    machine = this_machine()
    begun = [Recording(measure=plan.measure, machine=machine, settings=options.settings) for plan in plans]
    earlier = [each.earlier(options.out) if options.add else [] for each in begun]
    bodies = any(plan.audit_bodies for plan in plans)
    count, real = max(plan.nodes for plan in plans), any(plan.real_node for plan in plans)
    async with floor(options, nodes=count, audit_bodies=bodies, real_node=real) as standing:
        with tempfile.TemporaryDirectory() as directory:

            def ground(index: int) -> Ground:
                own = dataclasses.replace(options, warm=options.warm or plans[index].warm)
                return Ground(own, standing, Path(directory), begun[index], earlier[index])

            runs = [plan.run(ground(index)) for index, plan in enumerate(plans)]
            ends = await asyncio.gather(*runs, return_exceptions=True)
    broken: list[str] = []
    for plan, error in zip(plans, ends, strict=True):
        if error is not None:
            print(f"{plan.measure} broke:\n{''.join(traceback.format_exception(error))}", file=sys.stderr)
            broken.append(plan.measure)
    return broken


def _take_down(options: Options, stack: str) -> None:
    if not options.keep or stack != options.stack:
        with contextlib.suppress(NotRunningError):
            Stack.load(stack).down(purge=True)
