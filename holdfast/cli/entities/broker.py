"""Commands that start, show and stop the checkpoint broker of a cluster."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.common.options import HERE, Format, Output, Place, grouped, session
from holdfast.cli.common.output import document, emit
from holdfast.cli.common.silence import ASKED, BEGUN, attended, warn

if TYPE_CHECKING:
    from holdfast.model.entities.broker import BrokerStatus

app = typer.Typer(help="The checkpoint broker: who saves when, and how many at once.", no_args_is_help=True)


@app.callback()
def broker() -> None:
    """The checkpoint broker: who saves when, and how many at once."""


@app.command()
@grouped
def start(
    every: Annotated[str | None, typer.Option(help="How often all that run are weighed, 1m.")] = None,
    at_once: Annotated[int | None, typer.Option(help="How many save at the same time, 2.")] = None,
    node_mtbf: Annotated[str | None, typer.Option(help="Mean time between failures of a node, 60d.")] = None,
    cost: Annotated[str | None, typer.Option(help="How long a checkpoint lasts until one was timed, 2m.")] = None,
    least: Annotated[str | None, typer.Option(help="Shortest time between two of a workload, 10m.")] = None,
    most: Annotated[str | None, typer.Option(help="Longest time between two of a workload, 6h.")] = None,
    place: Place = HERE,
    output: Format = Output.TABLE,
) -> None:
    """Start the cluster's broker, or reconfigure the existing one. An option that is not given gets its default."""
    from pydantic import ValidationError

    from holdfast.cli.entities.broker_text import shown
    from holdfast.errors import InvalidWorkload, problems_of
    from holdfast.model.entities.broker import Broker

    cluster = place.required()
    options = {
        "every": every,
        "atOnce": at_once,
        "nodeMtbf": node_mtbf,
        "cost": cost,
        "least": least,
        "most": most,
    }
    given: dict[str, Any] = {key: value for key, value in options.items() if value is not None}
    try:
        wanted = Broker.model_validate({"cluster": cluster, **given})
    except ValidationError as error:
        raise InvalidWorkload(problems_of(error, Broker, ""), "the broker") from None

    async def go() -> tuple[str, BrokerStatus | None]:
        async with session(place) as holdfast:
            run = await holdfast.apply_broker(wanted)
            if (silence := await run.silence()) is None:
                return run.workflow_id, await run.status()
            warn(silence, BEGUN)
            return run.workflow_id, None

    workflow_id, told = asyncio.run(go())
    if told is None:
        emit({"workflowId": workflow_id}, output, lambda: f"broker  {workflow_id}")
    else:
        emit(document(told), output, lambda: shown(told, datetime.now(UTC)))


@app.command()
@grouped
def show(
    place: Place = HERE,
    output: Format = Output.TABLE,
) -> None:
    """Show how many workloads can save their state, how many do now, and which were asked last and why."""
    from holdfast.cli.entities.broker_text import shown

    async def go() -> BrokerStatus:
        async with session(place) as holdfast:
            return await holdfast.broker().status()

    told = asyncio.run(go())
    emit(document(told), output, lambda: shown(told, datetime.now(UTC)))


@app.command()
@grouped
def stop(
    reason: Annotated[str, typer.Option("--reason", help="Why, for its history.")] = "",
    place: Place = HERE,
) -> None:
    """Stop asking workloads for checkpoints; requests under way continue."""

    async def go() -> None:
        async with session(place) as holdfast:
            run = holdfast.broker()
            await attended(run, run.cancel(reason), ASKED)

    asyncio.run(go())
    typer.echo("the broker requests no more checkpoints; those under way go on")
