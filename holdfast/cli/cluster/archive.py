"""`holdfast archive`: keep the histories of ended runs in a store, and read lives back from there (row O6)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.common.options import EXIT_REFUSED, HERE, Chosen, Format, Output, Place, grouped, session
from holdfast.cli.common.output import emit, say

if TYPE_CHECKING:
    from holdfast.past import Story

Source = Annotated[str, typer.Argument(help="s3://bucket/prefix; HOLDFAST_DATA_* name the store.", metavar="ARCHIVE")]
From = Annotated[
    str | None,
    typer.Option("--archive", help="Read it from here, s3://bucket/prefix, not from Temporal.", metavar="ARCHIVE"),
]


def archive(source: Source, place: Place = HERE, output: Format = Output.TABLE) -> None:
    """Keep the histories of workloads' ended runs in an S3 store, before Temporal's retention removes them.

    A run that cannot be kept is named, the others are kept, and the exit code is 2.

    Run it more often than the retention is long, for example once a day. It writes what the archive does not have yet,
    and changes nothing in Temporal. `history`, `goodput` and `report` read it with --archive.
    """
    from holdfast.model.words import counted, plain

    cluster = place.required()

    async def go() -> tuple[int, int, int]:
        from temporalio.service import RPCError

        from holdfast.client.connection import explained
        from holdfast.past.archive import opened

        written = there = missing = 0
        kept = opened(source)
        async with session(place) as holdfast:
            try:
                async for one in kept.keep(holdfast.client, cluster):
                    written += one.written
                    there += not one.written and not one.problem
                    missing += bool(one.problem)
                    if one.problem:
                        say(plain(f"not kept: {one.workflow_id}, run {one.run_id}: {one.problem}"), err=True)
            except RPCError as error:
                raise explained(error, holdfast.place) from error
        return written, there, missing

    written, there, missing = asyncio.run(go())
    document = {"archive": source, "written": written, "there": there, "missing": missing}
    emit(
        document,
        output,
        lambda: f"{source}: {counted(written, 'history', 'histories')} written, {there} were there, {missing} not kept",
    )
    if missing:
        raise typer.Exit(EXIT_REFUSED)


def archived(source: str, named: Chosen, place: Place) -> Story:
    """Return the latest life of a workload that an archive has.

    Raises:
        HoldfastError: if it has none, or cannot be read.
    """
    from holdfast import names
    from holdfast.codec.options import from_environment
    from holdfast.past.archive import opened

    workflow_id = names.workflow_id(place.required(), named.namespace, named.name)
    return asyncio.run(opened(source).story(workflow_id, from_environment()["data_converter"]))


def add_to(app: typer.Typer, panel: str) -> None:
    """Add this file's command."""
    app.command(rich_help_panel=panel)(grouped(archive))
