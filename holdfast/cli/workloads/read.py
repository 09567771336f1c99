"""Commands that only read: list, status, explain, history."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.common import complete
from holdfast.cli.common.options import (
    EXIT_FAILED,
    HERE,
    Columns,
    Format,
    Name,
    Namespace,
    Output,
    Place,
    WideFormat,
    chosen,
    grouped,
    session,
    with_run,
)
from holdfast.cli.common.output import emit
from holdfast.cli.common.silence import READ, warn

if TYPE_CHECKING:
    from holdfast.client import Holdfast, Run, StatusView, Summary
    from holdfast.model import Workload


def list_(
    namespace: Namespace = None,
    phase: Annotated[
        str | None,
        typer.Option("--phase", help="Only in this phase.", show_default=False, autocompletion=complete.phases),
    ] = None,
    queue: Annotated[
        str | None,
        typer.Option("--queue", help="Only of this queue.", show_default=False, autocompletion=complete.queues),
    ] = None,
    running: Annotated[
        bool | None,
        typer.Option("--running/--closed", help="Only those alive, or only those over.", show_default=False),
    ] = None,
    query: Annotated[
        str | None,
        typer.Option("--query", help="A condition in Temporal's list filter language.", show_default=False),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many.")] = 100,
    place: Place = HERE,
    output: Format = Output.TABLE,
) -> None:
    """List workloads, newest first."""
    wanted = _phase(phase)
    foreign = list[str]()

    async def go() -> list[Summary]:
        async with session(place) as holdfast:
            found = holdfast.list(
                cluster=place.cluster,
                namespace=namespace,
                phase=wanted,
                queue=queue,
                running=running,
                query=query,
                limit=limit,
                foreign=foreign.append,
            )
            listed = [each async for each in found]
            if any(each.execution == "Running" for each in listed):
                await _warn_if_unserved(holdfast)
            return listed

    from holdfast.cli.common import render

    found = asyncio.run(go())
    if foreign:
        count = "1 workflow" if len(foreign) == 1 else f"{len(foreign)} workflows"
        typer.echo(f"left out: {count} of type Workload that Holdfast did not begin ({_some(foreign)})", err=True)
    emit([each.model_dump(mode="json") for each in found], output, lambda: render.summaries(found, datetime.now(UTC)))


def status(
    name: Name,
    namespace: Namespace = None,
    place: Place = HERE,
    columns: WideFormat = Columns.TABLE,
) -> None:
    """Show a workload's status. Exit code 1 if it has failed.

    With -o wide, all conditions are shown, not only those that are abnormal.
    In JSON and YAML, sourceForm also gives the status of a document that defines its own, such as an AppWrapper.
    """
    named, output = chosen(name, namespace), columns.output

    async def both(run: Run) -> tuple[StatusView, Workload | None]:
        return await run.status(), None if output is Output.TABLE else await run.workload()

    from holdfast.cli.common import render
    from holdfast.model import Phase

    view, workload = with_run(named, place, both)
    document = view.model_dump(mode="json")
    if workload is not None:
        from holdfast.formats import source_form

        told = source_form(workload, view.status)
        if told is not None:
            document["sourceForm"] = told
    emit(document, output, lambda: render.status(view, datetime.now(UTC), wide=columns is Columns.WIDE))
    if view.phase is Phase.FAILED:
        raise typer.Exit(EXIT_FAILED)


def get(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", autocompletion=complete.workloads)] = None,
    namespace: Namespace = None,
    place: Place = HERE,
    columns: WideFormat = Columns.TABLE,
) -> None:
    """List workloads, or show the status of one: `list` and `status`, by kubectl's word."""
    if name is None:
        list_(namespace=namespace, place=place, output=columns.output)
    else:
        status(name, namespace, place, columns)


def explain(
    name: Name,
    namespace: Namespace = None,
    place: Place = HERE,
    output: Format = Output.TABLE,
) -> None:
    """Explain why a workload is in its current state, and what happens next."""
    named = chosen(name, namespace)

    from holdfast.cli.common import render

    view = with_run(named, place, lambda run: run.explain())
    emit(view.model_dump(mode="json"), output, lambda: render.explanation(view, datetime.now(UTC)))


def history(
    name: Name,
    namespace: Namespace = None,
    place: Place = HERE,
    output: Format = Output.TABLE,
) -> None:
    """List the causes of all decisions in a workload's life, oldest first; -o json or yaml exports its whole life.

    The command reads Temporal's record of all runs of the workflow. It works with every worker down, and after the
    workload has ended and its objects are gone. Notes below the list say what is no longer known.
    """
    named = chosen(name, namespace)

    from holdfast.cli.workloads import history_text as past_text

    life = with_run(named, place, lambda run: run.history(), READ)
    emit(life.model_dump(mode="json"), output, lambda: past_text.history(life))


def add_to(app: typer.Typer, panel: str) -> None:
    """Add this file's commands."""
    commands: tuple[tuple[str, Callable[..., None]], ...] = (
        ("list", list_),
        ("status", status),
        ("explain", explain),
        ("history", history),
    )
    for name, command in commands:
        app.command(name, rich_help_panel=panel)(grouped(command))
    app.command("get", hidden=True)(grouped(get))
    app.command("describe", hidden=True)(grouped(explain))


async def _warn_if_unserved(holdfast: Holdfast) -> None:
    """Warn on standard error if no worker polls for workloads: the list then shows what was last recorded."""
    from temporalio.service import RPCError

    from holdfast import names
    from holdfast.client.silence import Silence
    from holdfast.worker.runtime.pollers import polled

    try:
        found = await polled(holdfast.client, names.QUEUE_WORKFLOWS)
    except RPCError:
        return  # A user who may list workflows may lack the permission for this request.
    if not found.served:
        why = f"no worker answers: {found.sentence(datetime.now(UTC))}"
        warn(Silence(why=why, remedy="start one: holdfast worker --roles workflows"), READ)


def _some(ids: list[str]) -> str:
    return ", ".join(ids[:3]) + (", ..." if len(ids) > 3 else "")


def _phase(given: str | None) -> str | None:
    from holdfast.model import Phase

    if given is None:
        return None
    if given.lower() == "starting":  # The first start is a Resuming that is shown so.
        return Phase.RESUMING.value
    for phase in Phase:
        if phase.value.lower() == given.lower():
            return phase.value
    raise typer.BadParameter(f"{given!r}: expected one of {', '.join(Phase)}", param_hint="--phase")
