"""Commands that only read one workload or some: status, explain, history."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.cluster.archive import From, archived
from holdfast.cli.common import complete
from holdfast.cli.common.options import (
    EXIT_FAILED,
    HERE,
    AllNamespaces,
    Columns,
    Format,
    Name,
    Namespace,
    Output,
    Place,
    WideFormat,
    chosen,
    grouped,
    with_run,
)
from holdfast.cli.common.output import emit, say
from holdfast.cli.common.several import Names, ask_each, emit_all, leave, named_by, say_error
from holdfast.cli.common.silence import READ
from holdfast.cli.workloads.listing import Everywhere, Selection, list_

if TYPE_CHECKING:
    from holdfast.client import Run, StatusView
    from holdfast.model import Workload


def status(
    names: Names,
    namespace: Namespace = None,
    place: Place = HERE,
    columns: WideFormat = Columns.TABLE,
) -> None:
    """Show the status of workloads. Exit code 1 if one has failed.

    With -o wide, all conditions are shown, not only those that are abnormal.
    In JSON and YAML, sourceForm also gives the status of a document that defines its own, such as an AppWrapper.
    """
    output = columns.output

    async def both(run: Run) -> tuple[StatusView, Workload | None]:
        return await run.status(), None if output is Output.TABLE else await run.workload()

    from holdfast.cli.common import render
    from holdfast.model import Phase

    def document(answer: tuple[StatusView, Workload | None]) -> Any:
        from holdfast.formats import source_form

        view, workload = answer
        told = source_form(workload, view.status) if workload is not None else None
        return view.model_dump(mode="json") | ({"sourceForm": told} if told is not None else {})

    answers = ask_each(named_by(names, namespace), place, both)
    for number, answer in enumerate(answers):
        if answer.value is None:
            say_error(answer)
        elif output is Output.TABLE:
            text = render.status(answer.value[0], datetime.now(UTC), wide=columns is Columns.WIDE)
            say(("\n" if number else "") + text)
    emit_all(answers, output, document)
    failed = any(one.value is not None and one.value[0].phase is Phase.FAILED for one in answers)
    leave(answers, EXIT_FAILED if failed else 0)


def get(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME...]", autocompletion=complete.workloads, show_default=False)
    ] = None,
    namespace: Namespace = None,
    everywhere: AllNamespaces = False,
    place: Place = HERE,
    columns: WideFormat = Columns.TABLE,
) -> None:
    """List workloads, or show the status of some: `list` and `status`, by kubectl's word."""
    if names:
        status(names, namespace, place, columns)
    else:
        everything = Everywhere(place.cluster, place.address, place.temporal_namespace)
        list_(Selection(), namespace=namespace, everywhere=everywhere, place=everything, output=columns)


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
    archive: From = None,
) -> None:
    """List the causes of all decisions in a workload's life, oldest first; -o json or yaml exports its whole life.

    The command reads Temporal's record of all runs of the workflow. It works with every worker down, and after the
    workload has ended and its objects are gone. Notes below the list say what is no longer known.
    """
    named = chosen(name, namespace)

    from holdfast.cli.workloads import history_text as past_text

    if archive is not None:
        from holdfast.past import history_of

        life = history_of(archived(archive, named, place))
    else:
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
    app.command("get", hidden=True)(grouped(get))
    app.command("describe", hidden=True)(grouped(explain))
