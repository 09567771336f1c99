"""The command line of the benches: `python -m bench start --sizes 100,300`, `python -m bench all`, `... tables`."""

from __future__ import annotations

import dataclasses
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from bench import bill, capacity, plan, steps
from bench.ground import Options
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
)
from bench.measures import workers as scaling
from bench.plan import Plan
from bench.report import write
from bench.report.published import KEPT, merged
from bench.report.samples import REPORTS, load

app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__)

Sizes = Annotated[str, typer.Option(help="How many, several separated by commas; else those of the report.")]
Seconds = Annotated[float, typer.Option(help="Seconds of idleness that are measured.")]
_OPTIONS: list[Options] = []


@app.callback()
def common(
    stack: Annotated[
        str, typer.Option(help="Name of the local stack to run on; it is made, and gone at the end.")
    ] = "bench",
    keep: Annotated[bool, typer.Option("--keep", help="Leave the stack up.")] = False,
    repeats: Annotated[int, typer.Option(envvar="BENCH_REPEATS", help="How often each case is run.")] = 3,
    out: Annotated[Path, typer.Option(help="Folder for samples, tables and plots.")] = REPORTS,
    add: Annotated[
        bool, typer.Option("--add", help="Add to the samples that there are of the measure; else they are replaced.")
    ] = False,
    system: Annotated[
        list[str] | None, typer.Option(help="Only this system: plain, AppWrapper, JobSet, Holdfast.")
    ] = None,
    settle: Annotated[float, typer.Option(help="Seconds that running workloads are left alone first.")] = 65.0,
    worker: Annotated[list[str] | None, typer.Option(help="A setting of the worker: HOLDFAST_X=VALUE.")] = None,
    dynamic_config: Annotated[list[str] | None, typer.Option(help="A dynamic config of Temporal: KEY=JSON.")] = None,
) -> None:
    """Measure Holdfast beside the controllers it replaces. Every option stands before the measure's name."""
    _OPTIONS[:] = [
        Options(
            stack=stack,
            keep=keep,
            repeats=repeats,
            out=out,
            add=add,
            systems=tuple(system or ()),
            settle=settle,
            worker=_pairs(worker),
            dynamic_config=_pairs(dynamic_config),
        )
    ]


@app.command("start")
def start_(sizes: Sizes = "") -> None:
    """N two-pod workloads until all run and until all are recorded as ended; API requests of a life."""
    _run(Plan(start.NAME, lambda on: start.measure(on, _numbers(sizes) or start.SIZES)))


@app.command("applied")
def applied_(
    sizes: Sizes = "", at_once: Annotated[int, typer.Option(help="That Kueue admits.")] = applied.AT_ONCE
) -> None:
    """N AppWrappers by one kubectl apply, under Kueue; needs root."""
    _run(Plan(applied.NAME, lambda on: applied.measure(on, _numbers(sizes) or applied.SIZES, at_once)))


@app.command("latency")
def latency_(active: Sizes = "") -> None:
    """From a pod's failure to the decision."""
    _run(Plan(latency.NAME, lambda on: latency.measure(on, _numbers(active) or latency.ACTIVE), audit_bodies=True))


@app.command("removal")
def removal_(sizes: Sizes = "") -> None:
    """Suspension and removal, against foreground deletion."""
    _run(Plan(removal.NAME, lambda on: removal.measure(on, _numbers(sizes) or removal.SIZES)))


@app.command("crash")
def crash_(sizes: Sizes = "") -> None:
    """The controller killed with workloads in their failure grace."""
    _run(Plan(crash.NAME, lambda on: crash.measure(on, _numbers(sizes) or crash.SIZES), audit_bodies=True))


@app.command("idle")
def idle_(sizes: Sizes = "", window: Seconds = idle.WINDOW) -> None:
    """What idle workloads cost."""
    _run(Plan(idle.NAME, lambda on: idle.measure(on, _numbers(sizes) or idle.SIZES, window)))


@app.command("cli")
def cli_(runs: Annotated[int, typer.Option(help="How often each command is run.")] = cli.RUNS) -> None:
    """Wall and CPU seconds of `holdfast --help`, `list` and `status`."""
    _run(Plan(cli.NAME, lambda on: cli.measure(on, runs)))


@app.command("gang")
def gang_(jobs: Sizes = "", each: Annotated[int, typer.Option(help="Pods of a Job.")] = gang.EACH) -> None:
    """A gang restart, against JobSet."""
    sizes = _numbers(jobs) or gang.JOBS
    _run(Plan(gang.NAME, lambda on: gang.measure(on, sizes, each), nodes=max(8, 2 * max(sizes) * each // 1000)))


@app.command("history")
def history_(pods: Sizes = "") -> None:
    """Temporal events and bytes of a life."""
    _run(Plan(history.NAME, lambda on: history.measure(on, _numbers(pods) or history.PODS)))


@app.command("profile")
def profile_(sizes: Sizes = "") -> None:
    """Whose each millisecond of a life in the worker is, and a flame graph; may need root."""
    _run(Plan(profile.NAME, lambda on: profile.measure(on, _numbers(sizes) or profile.SIZES)))


@app.command("workers")
def workers_(workers: Sizes = "", size: Annotated[int, typer.Option(help="Workloads.")] = scaling.SIZE) -> None:
    """One worker process against several."""
    _run(Plan(scaling.NAME, lambda on: scaling.measure(on, _numbers(workers) or scaling.WORKERS, size)))


@app.command("engine")
def engine_(lives: int = engine.LIVES) -> None:
    """The pure engine."""
    _run(Plan(engine.NAME, lambda on: engine.measure(on, lives)))


@app.command("crowd")
def crowd_(steps: Sizes = "", window: Seconds = crowd.WINDOW) -> None:
    """Ten thousand idle workloads on one worker, on a stack of their own."""
    _run(
        Plan(crowd.NAME, lambda on: crowd.measure(on, _numbers(steps) or crowd.STEPS, window), crowd.NODES, alone=True)
    )


@app.command("nodes")
def nodes_(
    count: Annotated[int, typer.Option("--nodes", help="Nodes, a tenth of which is lost; 0: none is.")] = nodes.NODES,
    workloads: Annotated[int, typer.Option(help="Two-pod workloads on them.")] = nodes.WORKLOADS,
    watched: Annotated[int, typer.Option(help="Nodes that are only watched; 0: not measured.")] = nodes.WATCHED,
    window: Seconds = nodes.WINDOW,
) -> None:
    """A tenth of the nodes lose power; what it costs to watch thousands; on a stack of their own."""
    _run(Plan(nodes.NAME, lambda on: nodes.measure(on, count, workloads, watched, window), alone=True))


@app.command("agents")
def agents_(sizes: Sizes = "", steady: Seconds = agents.STEADY) -> None:
    """The agents of one elastic gang: their meeting, their rest, and a loss."""
    _run(Plan(agents.NAME, lambda on: agents.measure(on, _numbers(sizes) or agents.SIZES, steady)))


@app.command("rounds")
def rounds_(sizes: Sizes = "") -> None:
    """A member of an elastic gang of real processes is killed, until a new round runs; needs root."""
    _run(Plan(rounds.NAME, lambda on: rounds.measure(on, _numbers(sizes) or rounds.SIZES), real_node=True))


@app.command("inplace")
def inplace_(sizes: Sizes = "") -> None:
    """A program of a JobSet of real containers is killed, until all run: in their pods, and in new ones; needs root."""
    _run(Plan(inplace.NAME, lambda on: inplace.measure(on, _numbers(sizes) or inplace.SIZES), real_node=True))


@app.command("exclusive")
def exclusive_(sizes: Sizes = "") -> None:
    """A JobSet of so many Jobs of exclusive topologies, until all run: JobSet with its pod webhook, and Holdfast."""
    _run(
        Plan(
            exclusive.NAME,
            lambda on: exclusive.measure(on, _numbers(sizes) or exclusive.JOBS),
            max(exclusive.NODES, *_numbers(sizes), 0),
        )
    )


@app.command("all")
def all_() -> None:
    """Every measure at its full size, one after another: hours."""
    _run(*plan.FULL)


@app.command()
def smoke(only: Annotated[list[str] | None, typer.Option(help="Only this measure.")] = None) -> None:
    """Every measure at its smallest, all at once, to see that all of them work; the figures mean nothing."""
    _OPTIONS[:] = [dataclasses.replace(_OPTIONS[0], repeats=1, settle=0.0, warm=False, smoke=True)]
    _run(*(each for each in plan.SMOKE if not only or each.measure in only))
    if problems := [] if only else write.lacks(_OPTIONS[0].out):
        raise SystemExit("\n".join(problems))


class From(StrEnum):
    """Which samples tables and plots are made of."""

    MERGED = "merged"
    SAMPLES = "samples"
    PUBLISHED = "published"


@app.command("tables")
def tables_(
    samples: Annotated[Path, typer.Option(help="Folder with the samples; tables and plots go there too.")] = REPORTS,
    source: Annotated[
        From,
        typer.Option(
            "--from",
            help="Those samples, or those that were published; merged: both, of a system at a size the newer ones.",
        ),
    ] = From.MERGED,
    publish: Annotated[
        bool, typer.Option("--publish", help="Into docs/performance.md too, and keep the samples in bench/published.")
    ] = False,
) -> None:
    """Write tables and plots again from saved samples; nothing is run."""
    fresh = load(samples) if source is not From.PUBLISHED else []
    recordings = merged(load(KEPT) if source is not From.SAMPLES else [], fresh)
    print(write.write(recordings, samples))
    if publish:
        print(write.publish(recordings))


@app.command("bill")
def bill_() -> None:
    """Write what Temporal bills, and what that costs a month, into docs/performance.md; nothing is run."""
    print(bill.publish())


@app.command("capacity")
def capacity_() -> None:
    """Write what so many workloads need into docs/how-to/capacity.md, from published figures; nothing is run."""
    print(capacity.publish())


@app.command("progress")
def progress_() -> None:
    """Write how often a stall is seen wrongly and how soon rightly, into docs/performance.md; pure, for minutes."""
    print(steps.publish())


def _run(*plans: Plan) -> None:
    plan.carry_out(_OPTIONS[0], *plans)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(each) for each in text.split(",") if each)


def _pairs(given: list[str] | None) -> dict[str, str]:
    return {name: value for name, _, value in (each.partition("=") for each in given or ())}
