"""The `cancel` command: named workloads, or all that match, once the user has agreed (row E3)."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Annotated, Final

import typer

from holdfast.cli.common import kubectl
from holdfast.cli.common.ask import Yes, confirmed, interactive
from holdfast.cli.common.options import HERE, Chosen, Format, Output, Place, grouped, session
from holdfast.cli.common.output import say
from holdfast.cli.common.several import emit_all, named_by
from holdfast.cli.workloads.listing import Listing, Selection, Sort, select
from holdfast.cli.workloads.steer import Wish, steer
from holdfast.errors import HoldfastError

_SHOWN: Final = 20
"""How many workloads `--all` shows before it asks."""


def cancel(
    wish: Wish,
    selection: Selection,
    names: Annotated[
        list[str] | None,
        typer.Argument(help="The workloads: NAME, or NAMESPACE/NAME.", metavar="NAME...", show_default=False),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="All of the namespace that run or are held, and match the other options.")
    ] = False,
    yes: Yes = False,
    place: Place = HERE,
    output: Format = Output.TABLE,
) -> None:
    """End workloads: remove everything until proven gone. `--all` shows them, and asks first."""
    if bool(names) == everything:
        raise typer.BadParameter("expected names of workloads, or --all", param_hint="NAME")
    if names:
        if selection != Selection():
            raise typer.BadParameter("--selector, --phase and --queue are for --all", param_hint="NAME")
        steer("cancel", named_by(names, wish.namespace), wish, place, output)
    elif found := _all(selection, wish.namespace or kubectl.namespace() or "default", place, yes=yes):
        steer("cancel", list(found), wish, place, output, uids=found)
    else:
        emit_all((), output, str, many=True)


def add_to(app: typer.Typer, panel: str) -> None:
    """Add this file's command."""
    app.command(rich_help_panel=panel)(grouped(cancel))
    app.command("delete", hidden=True)(grouped(cancel))


def _all(selection: Selection, namespace: str, place: Place, *, yes: bool) -> dict[Chosen, str]:
    """Return all workloads that are selected and not over, with their uids, once the user has agreed."""
    cluster, terms = place.required(), selection.terms()
    if not yes and not interactive():
        raise HoldfastError("--all asks before it cancels, and there is no terminal to ask at: --yes cancels unasked")

    async def find() -> Listing:
        async with session(place) as holdfast:
            return await select(holdfast, Sort.NAME, cluster=cluster, namespace=namespace, running=True, **terms)

    from holdfast.cli.common import render

    listing = asyncio.run(find())
    count = f"{len(listing.found):,} workload{'' if len(listing.found) == 1 else 's'}"
    if listing.cut:
        raise HoldfastError(f"more than {count} match: select fewer (--selector, --phase, --queue)")
    if not listing.found:
        say(f"no workload in namespace {namespace} on cluster {cluster} matches", err=True)
        return {}
    if not yes:
        say(render.summaries(listing.found[:_SHOWN], datetime.now(UTC)), err=True)
        if len(listing.found) > _SHOWN:
            say(f"... and {len(listing.found) - _SHOWN:,} more", err=True)
        if not confirmed(f"Cancel {count} of namespace {namespace} on cluster {cluster}?"):
            raise HoldfastError("nothing was cancelled")
    return {Chosen(one.namespace, one.name): one.uid for one in listing.found}
