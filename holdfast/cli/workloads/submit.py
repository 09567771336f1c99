"""Submit workloads, reconfigure them, and print their JSON schema."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from typer.core import TyperCommand

from holdfast.cli.common.ask import Yes
from holdfast.cli.common.options import (
    HERE,
    Chosen,
    Context,
    Format,
    Kubeconfig,
    Namespace,
    Output,
    Place,
    grouped,
    seconds,
    session,
    with_run,
)
from holdfast.cli.common.output import dumped, emit
from holdfast.cli.common.silence import BEGUN, ONLY_BY_A_WORKER, attended
from holdfast.cli.submission.apply import recreated
from holdfast.cli.submission.files import Files, Set, overrides, read_all, read_file
from holdfast.cli.submission.namespace_check import refuse_closed
from holdfast.cli.submission.plan import agree
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.client import Holdfast, Run
    from holdfast.client.entities.graph import GraphRun
    from holdfast.formats.graph import GraphDocument
    from holdfast.model import Workload

As = Annotated[str | None, typer.Option("--name", help="Submit it under this name.", show_default=False)]


class WithSettings(TyperCommand):
    """A command whose help lists the keys of --set; they are loaded for that alone."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help."""
        from holdfast.formats import NAMES

        self.epilog = f"Keys of --set: {', '.join(NAMES)}."
        super().format_help(ctx, formatter)


def submit(
    files: Files,
    watch: Annotated[bool, typer.Option("--watch", help="Show its life until its outcome.")] = False,
    timeout: Annotated[
        str | None,
        typer.Option("--timeout", help="With --watch: give up after so long, for example 5m.", show_default=False),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be started, and start nothing.")] = False,
    settings: Set = None,
    allow_missing_kinds: Annotated[
        bool, typer.Option("--allow-missing-kinds", help="Wait for a kind that the cluster lacks; do not refuse it.")
    ] = False,
    name: As = None,
    namespace: Namespace = None,
    again: Annotated[bool, typer.Option("--again", help="Run it once more, where it has run before.")] = False,
    plan: Annotated[
        bool, typer.Option("--plan", help="Show what will be submitted, then ask, as for more than 100 pods.")
    ] = False,
    yes: Yes = False,
    place: Place = HERE,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: Format = Output.TABLE,
) -> None:
    """Start workloads. A workload that already runs with the same specification is left as it is.

    One that has ended is refused, also while it is kept: --again runs it once more.

    If a kubeconfig leads to their cluster, a namespace that does not exist or is not enabled is refused at once.
    """
    if seconds(timeout, "--timeout") is not None and not watch:
        raise typer.BadParameter("is for --watch", param_hint="--timeout")
    cluster = place.required()
    asked = overrides(settings) | ({"allowMissingKinds": "true"} if allow_missing_kinds else {})
    workloads, graphs = read_all(files, cluster, namespace, name, asked)
    if name is not None and len(workloads) + len(graphs) != 1:
        given = len(workloads) + len(graphs)
        raise typer.BadParameter(f"names one workload, but {given} are given", param_hint="--name")
    if watch and graphs:
        raise typer.BadParameter("a graph is looked at with `holdfast graph NAME --wait`", param_hint="--watch")
    everything = [*workloads, *(one for graph in graphs for one in graph.workloads)]
    if dry_run:
        documents = [workload.model_dump(mode="json") for workload in everything]
        emit(documents[0] if len(documents) == 1 else documents, output, lambda: lines(everything, "would start"))
        return
    agree(everything, plan=plan, yes=yes)

    async def go() -> bool:
        async with session(place) as holdfast:
            await refuse_closed(holdfast, everything, kubeconfig, context)
            begun = await _begin(holdfast, graphs, workloads, again, output)
            if not watch:
                for one in begun[-1:]:  # One is enough: all wait for the same workers.
                    await attended(one, asyncio.sleep(0), BEGUN)
                _flush()
                return True
            from holdfast.cli.workloads.watch import follow_all

            return await follow_all(cast("list[Run]", begun), output, timeout)  # Graphs are not watched.

    if not asyncio.run(go()):
        raise typer.Exit(1)


async def _begin(
    holdfast: Holdfast, graphs: list[GraphDocument], workloads: list[Workload], again: bool, output: Output
) -> list[Run | GraphRun]:
    """Begin all, and print each as it begins; on an error, print what was begun and what was not (row D60).

    As JSON and YAML, everything that was begun is one document, even on an error. All are begun also if nobody reads
    what is printed any more, as behind `head`.
    """
    documents: list[dict[str, str]] = []
    runs: list[Run | GraphRun] = []
    named = [f"graph {one.graph.namespace}/{one.graph.name}" for one in graphs]
    named += [f"{one.namespace}/{one.name}" for one in workloads]

    def told(document: dict[str, str], line: str) -> None:
        documents.append(document)
        if output is Output.TABLE:
            with suppress(BrokenPipeError):
                typer.echo(line)

    try:
        for one in graphs:
            graph = await holdfast.submit_graph(one.graph, one.workloads, again=again)
            runs.append(graph)
            told({"workflowId": graph.workflow_id, "name": graph.name}, f"graph {graph.name}  {graph.workflow_id}")
        for workload in workloads:
            run = await holdfast.submit(workload, again=again)
            runs.append(run)
            told(_document(run), f"{run.namespace}/{run.name}  {run.workflow_id}")
    except BaseException as error:  # Of Ctrl-C, too.
        if len(named) > 1:
            count, outcome = len(documents), "not known"
            done, tried, left = named[:count], named[count : count + 1], named[count + 1 :]
            if isinstance(error, HoldfastError):
                outcome, left = "refused", tried + left
            typer.echo(f"begun: {_listed(done)}; not begun: {_listed(left)}; {outcome}: {_listed(tried)}", err=True)
        raise
    finally:
        if output is not Output.TABLE and documents:
            with suppress(BrokenPipeError):
                emit(documents, output, str)
    return runs


def _listed(named: list[str]) -> str:
    return ", ".join(named) or "nothing"


def _flush() -> None:
    """Have what is printed written; if nobody reads it any more, Python must not fail at that when it ends."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def configure(
    file: Annotated[str, typer.Argument(help="The workload's file as it is to be from now on; - is standard input.")],
    settings: Set = None,
    name: Annotated[str | None, typer.Option("--name", help="The workload's name.", show_default=False)] = None,
    namespace: Namespace = None,
    reason: Annotated[str, typer.Option("--reason", help="Why, for its history.")] = "",
    place: Place = HERE,
    output: Format = Output.TABLE,
) -> None:
    """Change the components of a running workload: only those that differ are re-created.

    Its pods, names and settings stay as they are. A component that reads a changed ConfigMap is re-created too.
    """
    cluster = place.required()
    workloads = read_file(file, cluster, namespace, name, overrides(settings))
    if len(workloads) != 1:
        raise typer.BadParameter(f"one workload is expected, and {len(workloads)} are given", param_hint="FILE")
    wanted = workloads[0]

    async def change(run: Run) -> tuple[str, ...]:
        from holdfast.policy.loop.change import ComponentsChange

        return await run.update_components(ComponentsChange(components=wanted.components, note=reason))

    named = Chosen(wanted.namespace, wanted.name)
    changed = with_run(named, place, change, ONLY_BY_A_WORKER)
    where = f"{wanted.namespace}/{wanted.name}"
    text = f"{where}: {recreated(changed) if changed else 'nothing differs'}"
    emit({"name": wanted.name, "namespace": wanted.namespace, "changed": list(changed)}, output, lambda: text)


def schema(
    output: Annotated[Output, typer.Option("--output", "-o", help="json or yaml.")] = Output.JSON,
) -> None:
    """Print the JSON schema of a workload: the contract of every SDK and of the `temporal` CLI."""
    from holdfast.model.schema import schema as published

    document = published()
    typer.echo(dumped(document, Output.JSON if output is Output.TABLE else output).rstrip("\n"))


def add_to(app: typer.Typer, panel: str) -> None:
    """Add this file's commands."""
    commands: tuple[Callable[..., None], ...] = (submit, configure)
    for command in commands:
        app.command(cls=WithSettings, rich_help_panel=panel)(grouped(command))
    app.command(rich_help_panel=panel)(schema)


def lines(workloads: list[Workload], verb: str) -> str:
    """Return one line for each workload: a verb, then its summary."""
    from holdfast.workflows.start import summary

    return "\n".join(f"{verb}: {summary(workload)}" for workload in workloads)


def _document(run: Run) -> dict[str, str]:
    return {
        "workflowId": run.workflow_id,
        "runId": run.run_id,
        "cluster": run.cluster,
        "namespace": run.namespace,
        "name": run.name,
        "uid": run.uid,
    }
