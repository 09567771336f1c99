"""The command line of the benches: `python -m bench start --sizes 100,300`, `python -m bench all`, `... tables`."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Annotated

import typer

from bench import report
from bench.ground import Ground, Options, ground
from bench.measures import start
from bench.samples import REPORTS
from holdfast.local import NotRunningError, Stack

app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__)

Sizes = Annotated[str, typer.Option(help="How many workloads, several separated by commas.")]
Measure = Callable[[Ground], Awaitable[None]]
_OPTIONS: list[Options] = []


@app.callback()
def common(
    stack: Annotated[
        str, typer.Option(help="Name of the local stack to run on; it is made, and gone at the end.")
    ] = "bench",
    keep: Annotated[bool, typer.Option("--keep", help="Leave the stack up.")] = False,
    repeats: Annotated[int, typer.Option(envvar="BENCH_REPEATS", help="How often each case is run.")] = 3,
    out: Annotated[Path, typer.Option(help="Folder for samples, tables and plots.")] = REPORTS,
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
            systems=tuple(system or ()),
            settle=settle,
            worker=_pairs(worker),
            dynamic_config=_pairs(dynamic_config),
        )
    ]


@app.command("start")
def start_(sizes: Sizes = "100,300,1000") -> None:
    """N two-pod workloads until all run and until all are recorded as ended."""
    _run({start.NAME: lambda on: start.measure(on, _numbers(sizes))})


@app.command("all")
def all_() -> None:
    """Every measure at its full size, one after another: hours."""
    _run({start.NAME: start.measure})


@app.command()
def smoke() -> None:
    """Every measure at its smallest, to see that all of them work; the figures mean nothing."""
    _run({start.NAME: lambda on: start.measure(on, (2,))})


@app.command("tables")
def tables_(
    samples: Annotated[Path, typer.Option(help="Folder with the samples.")] = REPORTS,
    publish: Annotated[bool, typer.Option("--publish", help="Into docs/performance.md too.")] = False,
) -> None:
    """Write tables and plots again from saved samples; nothing is run."""
    print(report.write(samples))
    if publish:
        print(report.publish(samples))


def _run(measures: Mapping[str, Measure]) -> None:
    """Run measures one after another on one stack, then write tables and plots of all samples in the folder."""
    options = _OPTIONS[0]

    async def run() -> None:
        for name, measure in measures.items():
            async with ground(options, name) as found:
                await measure(found)

    try:
        asyncio.run(run())
    finally:
        if not options.keep:
            with contextlib.suppress(NotRunningError):
                Stack.load(options.stack).down(purge=True)
    print(report.write(options.out))


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(each) for each in text.split(",") if each)


def _pairs(given: list[str] | None) -> dict[str, str]:
    return {name: value for name, _, value in (each.partition("=") for each in given or ())}
