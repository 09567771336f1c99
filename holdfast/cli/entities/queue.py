"""Commands that create, change, show, list and delete admission queues."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.common import complete
from holdfast.cli.common.options import HERE, Format, Output, Place, grouped, session
from holdfast.cli.common.output import document, emit
from holdfast.cli.common.silence import ASKED, BEGUN, attended

if TYPE_CHECKING:
    from holdfast.client import Holdfast
    from holdfast.client.entities.queue import QueueRun
    from holdfast.model.entities.queue import QueueStatus

app = typer.Typer(help="Admission queues: how much may run at once, and who waits.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="The queue.", metavar="NAME", autocompletion=complete.queues)]


@app.callback()
def queue() -> None:
    """Admission queues: how much may run at once, and who waits."""


@app.command()
@grouped
def apply(
    file: Annotated[str, typer.Argument(help="Documents of kind Queue, YAML or JSON; - is standard input.")],
    place: Place = HERE,
    output: Format = Output.TABLE,
) -> None:
    """Create queues, or change the quota, strategy or stopPolicy of existing ones. Admitted workloads stay admitted."""
    from holdfast.cli.submission.files import text_of
    from holdfast.formats.queue import read_queues

    cluster = place.required()
    queues = read_queues(text_of(file), cluster=cluster)

    runs: list[QueueRun] = []

    async def go() -> None:
        async with session(place) as holdfast:
            for one in queues:
                runs.append(await holdfast.apply_queue(one))
            for run in runs[:1]:  # One is enough: all wait for the same workers.
                await attended(run, asyncio.sleep(0), BEGUN)

    try:
        asyncio.run(go())
    finally:
        # If one queue cannot be applied, the queues before it were.
        if runs:
            documents = [{"workflowId": one.workflow_id, "name": one.name} for one in runs]
            emit(documents, output, lambda: "\n".join(f"queue {one.name}  {one.workflow_id}" for one in runs))


@app.command()
@grouped
def show(
    name: Name,
    place: Place = HERE,
    output: Format = Output.TABLE,
) -> None:
    """Show how much of a queue's quota is taken, which workloads wait and why, and which are admitted."""

    async def go() -> QueueStatus:
        async with session(place) as holdfast:
            return await holdfast.queue(name).status()

    from holdfast.cli.entities.queue_text import shown

    told = asyncio.run(go())
    emit(document(told), output, lambda: shown(told, datetime.now(UTC)))


async def statuses(holdfast: Holdfast) -> tuple[list[QueueStatus], dict[str, str]]:
    """Return the status of each queue of a cluster, and of those that do not answer the name and the reason.

    Raises:
        NotReachable: if Temporal does not answer.
    """
    from holdfast.client.entities.configured import NotThere
    from holdfast.errors import NotAnswering

    runs = await holdfast.queues()
    answers = await asyncio.gather(*(one.status() for one in runs), return_exceptions=True)
    told: list[QueueStatus] = []
    silent: dict[str, str] = {}
    for run, answer in zip(runs, answers, strict=True):
        if isinstance(answer, NotAnswering):
            silent[run.name] = str(answer)
        elif not isinstance(answer, BaseException):
            told.append(answer)
        elif not isinstance(answer, NotThere):  # A queue that has just ended is still listed for a second.
            raise answer
    return told, silent


@app.command("list")
@grouped
def list_(
    place: Place = HERE,
    output: Format = Output.TABLE,
) -> None:
    """List the queues of a cluster."""
    from holdfast.cli.entities.queue_text import listed

    async def go() -> tuple[list[QueueStatus], dict[str, str]]:
        async with session(place) as holdfast:
            return await statuses(holdfast)

    told, silent = asyncio.run(go())
    documents = [*map(document, told), *({"name": name, "error": why} for name, why in silent.items())]
    emit(documents, output, lambda: listed(told, silent))


@app.command()
@grouped
def delete(
    name: Name,
    reason: Annotated[str, typer.Option("--reason", help="Why, for its history.")] = "",
    place: Place = HERE,
) -> None:
    """Stop admitting workloads. The queue ends once none waits and all admitted ones have released their quota."""

    async def go() -> None:
        async with session(place) as holdfast:
            run = holdfast.queue(name)
            await attended(run, run.cancel(reason), ASKED)

    asyncio.run(go())
    typer.echo(f"queue {name} admits no more workloads, and ends once it is empty; `holdfast queue apply` undoes this")
