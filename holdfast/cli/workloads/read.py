"""Commands that only read one workload or some: status, explain, history."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import typer

from holdfast.cli.common.options import (
    EXIT_FAILED,
    HERE,
    Format,
    Name,
    Namespace,
    Output,
    Place,
    chosen,
    grouped,
    with_run,
)
from holdfast.cli.common.output import emit
from holdfast.cli.common.silence import READ

if TYPE_CHECKING:
    from holdfast.client import Run, StatusView
    from holdfast.model import Workload


def status(
    name: Name,
    namespace: Namespace = None,
    place: Place = HERE,
    output: Format = Output.TABLE,
) -> None:
    """Show a workload's status. Exit code 1 if it has failed.

    In JSON and YAML, sourceForm also gives the status of a document that defines its own, such as an AppWrapper.
    """
    named = chosen(name, namespace)

    async def both(run: Run) -> tuple[StatusView, Workload | None]:
        return await run.status(), None if output is Output.TABLE else await run.workload()

    from holdfast.cli.common import render
    from holdfast.formats import source_form
    from holdfast.model import Phase

    view, workload = with_run(named, place, both)
    document = view.model_dump(mode="json")
    told = source_form(workload, view.status) if workload is not None else None
    if told is not None:
        document["sourceForm"] = told
    emit(document, output, lambda: render.status(view, datetime.now(UTC)))
    if view.phase is Phase.FAILED:
        raise typer.Exit(EXIT_FAILED)


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
        ("status", status),
        ("explain", explain),
        ("history", history),
    )
    for name, command in commands:
        app.command(name, rich_help_panel=panel)(grouped(command))
