"""`goodput`: what the time of one workload, or of many, was spent on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.cluster.archive import From, archived
from holdfast.cli.common import complete, kubectl
from holdfast.cli.common.options import HERE, Format, Output, Place, chosen, grouped, session, with_run
from holdfast.cli.common.output import emit
from holdfast.cli.common.silence import READ
from holdfast.cli.workloads.compare import read_story

if TYPE_CHECKING:
    from holdfast.model.life.ledger import Account, Ledger
    from holdfast.past import Story


def goodput(
    name: Annotated[
        str | None, typer.Argument(help="The workload: NAME, or NAMESPACE/NAME.", metavar="NAME", show_default=False)
    ] = None,
    history: Annotated[
        list[str] | None,
        typer.Option(
            "--history",
            help="Instead of NAME: a file that `temporal workflow show --output json` wrote (once for each run of one "
            "workload).",
            show_default=False,
        ),
    ] = None,
    queue: Annotated[
        str | None, typer.Option("--queue", help="Of all workloads of this queue.", show_default=False)
    ] = None,
    node: Annotated[
        str | None, typer.Option("--node", help="What failures on this node cost.", show_default=False)
    ] = None,
    cause: Annotated[
        str | None,
        typer.Option("--cause", help="What this failure class or reason cost: App, NodeLost, ...", show_default=False),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Without NAME: of the newest workloads.")] = 100,
    namespace: Annotated[
        str | None,
        typer.Option(
            "--namespace",
            "-n",
            help="Kubernetes namespace. Default: default for NAME, else all; of `kubectl holdfast`: its context's.",
            show_default=False,
            autocompletion=complete.namespaces,
        ),
    ] = None,
    place: Place = HERE,
    output: Format = Output.TABLE,
    archive: From = None,
) -> None:
    """Show what a workload's time was spent on: each millisecond of its life in exactly one bucket.

    With --queue, --node or --cause and no NAME: the workloads of the cluster together, newest first. The command reads
    Temporal's record of all runs of the workflow. It works with every worker down, and after the workload has ended.
    """
    if sum(map(bool, (name, history, queue))) > 1:
        raise typer.BadParameter("expected only one of NAME, --history and --queue", param_hint="NAME")
    if not (name or history or queue or node or cause):
        raise typer.BadParameter("expected NAME, --history, --queue, --node or --cause", param_hint="NAME")
    if archive and not name:
        raise typer.BadParameter("expected with NAME", param_hint="--archive")
    if history and any(not one.endswith(".json") for one in history):
        raise typer.BadParameter("expected files with the ending .json", param_hint="--history")
    cause = _cause(cause) if cause else cause
    from holdfast.cli.workloads import history_text as past_text

    if name is None and not history:
        account = asyncio.run(
            _together(namespace or kubectl.namespace(), queue or "", node or "", cause or "", limit, place)
        )
    else:
        one = _of_files(history, namespace, place) if history else _of_run(name or "", namespace, place, archive)
        if not (node or cause):
            emit(one.model_dump(mode="json"), output, lambda: past_text.ledger(one))
            return
        from holdfast.model.life.ledger import together

        account = together([one], node=node or "", cause=cause or "")
    emit(account.model_dump(mode="json"), output, lambda: past_text.account(account))


def _cause(given: str) -> str:
    """Return the cause that is meant: time has no other than these."""
    from holdfast.model import FailureClass, Reason

    known = {one.value.lower(): one.value for one in (*FailureClass, *Reason)}
    if given.lower() not in known:
        expected = f"expected a failure class ({', '.join(FailureClass)}), or the reason of a request"
        raise typer.BadParameter(f"{given!r}: {expected}", param_hint="--cause")
    return known[given.lower()]


def _of_run(name: str, namespace: str | None, place: Place, archive: str | None) -> Ledger:
    named = chosen(name, namespace)
    if archive is not None:
        return _of_story(archived(archive, named, place))
    return with_run(named, place, lambda run: run.ledger(), READ)


def _of_files(history: list[str], namespace: str | None, place: Place) -> Ledger:
    return _of_story(read_story(history, namespace, place))


def _of_story(story: Story) -> Ledger:
    from holdfast.past.ledger import end_of, ledger_of

    return ledger_of(story, end_of(story))


async def _together(namespace: str | None, queue: str, node: str, cause: str, limit: int, place: Place) -> Account:
    async with session(place) as holdfast:
        return await holdfast.account(namespace=namespace, queue=queue, node=node, cause=cause, limit=limit)


def add_to(app: typer.Typer, panel: str) -> None:
    """Add this file's command."""
    app.command(rich_help_panel=panel)(grouped(goodput))
