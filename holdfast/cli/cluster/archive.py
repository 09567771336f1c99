"""`holdfast archive`: keep the histories of ended runs in a store, and read lives back from there (row O6)."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.common.options import EXIT_REFUSED, HERE, Chosen, Format, Output, Place, grouped, session
from holdfast.cli.common.output import emit, say
from holdfast.errors import WorkloadNotFound

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
        WorkloadNotFound: if it has none.
        HoldfastError: if it has several workloads of that name, or cannot be read.
    """
    from holdfast import names
    from holdfast.client.found import several
    from holdfast.codec.options import from_environment
    from holdfast.past.archive import opened

    ids, kept = names.workflow_ids(place.required(), named.namespace, named.name), opened(source)
    converter = from_environment()["data_converter"]

    async def go() -> dict[str, Story]:
        found: dict[str, Story] = {}
        for one in ids:
            with suppress(WorkloadNotFound):
                found[one] = await kept.story(one, converter)
        return found

    found = asyncio.run(go())
    if not found:
        raise WorkloadNotFound(
            ids[0], f"{source} has only what `holdfast archive` kept there; while Temporal has it, leave out --archive"
        )
    if len(found) > 1:
        raise several(named.namespace, named.name, list(found))
    return next(iter(found.values()))


def add_to(app: typer.Typer, panel: str) -> None:
    """Add this file's command."""
    app.command(rich_help_panel=panel)(grouped(archive))
