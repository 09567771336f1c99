"""Which measures are run, at which sizes, and running them one after another on a stack of the bench's own."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from bench import report
from bench.ground import Ground, Options, ground
from bench.measures import crash, crowd, engine, gang, history, idle, latency, removal, start, workers
from bench.samples import load
from holdfast.local import NotRunningError, Stack


@dataclass(frozen=True)
class Plan:
    """One measure at certain sizes.

    Attributes:
        measure: its name, also of its file of samples.
        run: runs it.
        nodes: fake nodes that it needs, of 1,000 pods each.
        audit_bodies: it reads what was sent from the audit log, not only that; writing it slows the cluster down.
        alone: it leaves its work behind, so that it needs a stack that nobody uses after it.
        warm: its systems live one life first even in a smoke.
    """

    measure: str
    run: Callable[[Ground], Awaitable[None]]
    nodes: int = 8
    audit_bodies: bool = False
    alone: bool = False
    warm: bool = False


FULL = (
    Plan(engine.NAME, engine.measure),
    Plan(start.NAME, start.measure),
    Plan(removal.NAME, removal.measure),
    Plan(latency.NAME, latency.measure, audit_bodies=True),
    Plan(crash.NAME, crash.measure, audit_bodies=True),
    Plan(gang.NAME, gang.measure),
    Plan(history.NAME, history.measure),
    Plan(workers.NAME, workers.measure),
    Plan(idle.NAME, idle.measure),
    Plan(crowd.NAME, crowd.measure, crowd.NODES, alone=True),
)
SMOKE = (
    Plan(engine.NAME, lambda on: engine.measure(on, 2)),
    Plan(start.NAME, lambda on: start.measure(on, (2,)), warm=True),
    Plan(latency.NAME, lambda on: latency.measure(on, (2,)), audit_bodies=True),
    Plan(removal.NAME, lambda on: removal.measure(on, (2,))),
    Plan(crash.NAME, lambda on: crash.measure(on, (2,), longest=8), audit_bodies=True),
    Plan(gang.NAME, lambda on: gang.measure(on, (2,), 2, ("JobSet",))),
    Plan(history.NAME, lambda on: history.measure(on, (2,))),
    Plan(workers.NAME, lambda on: workers.measure(on, (2,), 2)),
    Plan(idle.NAME, lambda on: idle.measure(on, (2,), 1)),
    # Last: what it leaves behind is on everybody's stack here.
    Plan(crowd.NAME, lambda on: crowd.measure(on, (2, 3), 2, 2, 1)),
)


def carry_out(options: Options, *plans: Plan) -> None:
    """Run measures, each of which keeps its samples, then write tables and plots of all samples in the folder.

    One that breaks does not keep the others from being run.

    Raises:
        SystemExit: if any broke; it names them.
    """
    broken: list[str] = []
    try:
        for plan in plans:
            if plan.alone:
                _take_down(options, options.stack)
            try:
                asyncio.run(_run(options, plan))
            except Exception:
                traceback.print_exc()
                broken.append(plan.measure)
            finally:
                if plan.alone:
                    _take_down(options, _stack_of(options, plan))
    finally:
        _take_down(options, options.stack)
    print(report.write(load(options.out), options.out))
    if broken:
        raise SystemExit(f"broken: {', '.join(broken)}")


def _stack_of(options: Options, plan: Plan) -> str:
    return f"{options.stack}-{plan.measure}" if plan.alone else options.stack


async def _run(options: Options, plan: Plan) -> None:
    own = dataclasses.replace(options, stack=_stack_of(options, plan), warm=options.warm or plan.warm)
    bodies = plan.audit_bodies or options.smoke  # There the API server is not worth starting again.
    async with ground(own, plan.measure, nodes=plan.nodes, audit_bodies=bodies) as found:
        await plan.run(found)


def _take_down(options: Options, stack: str) -> None:
    if not options.keep or stack != options.stack:
        with contextlib.suppress(NotRunningError):
            Stack.load(stack).down(purge=True)
