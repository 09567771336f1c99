"""Commands for named workloads, or all that match once the user agrees: suspend, resume, preempt, cancel (row E3)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Final

import typer

from holdfast.cli.common import complete, kubectl
from holdfast.cli.common.ask import Yes, confirmed, interactive
from holdfast.cli.common.options import HERE, Chosen, Format, Output, Place, grouped, seconds, session
from holdfast.cli.common.output import say
from holdfast.cli.common.several import emit_all, named_by
from holdfast.cli.workloads.listing import Listing, Selection, Sort, select
from holdfast.cli.workloads.steer import Wish, steer
from holdfast.errors import HoldfastError

_SHOWN: Final = 20
"""How many selected workloads are shown before the question."""


@dataclass(frozen=True, slots=True)
class Targets:
    """The workloads that a command is for: those named, or those selected."""

    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="The workloads: NAME, or NAMESPACE/NAME.",
            metavar="[NAME...]",
            autocompletion=complete.workloads,
            show_default=False,
        ),
    ] = None
    everything: Annotated[bool, typer.Option("--all", help="All of the namespace.")] = False
    everywhere: Annotated[
        bool, typer.Option("--all-namespaces", "-A", help="With --all or a selection: of all namespaces.")
    ] = False
    yes: Yes = False


def suspend(
    targets: Targets, selection: Selection, wish: Wish, place: Place = HERE, output: Format = Output.TABLE
) -> None:
    """Remove workloads from the cluster, and keep them for `resume`. With a selector, lists the matches and asks."""
    _steer("suspend", targets, selection, wish, place, output)


def resume(
    targets: Targets, selection: Selection, wish: Wish, place: Place = HERE, output: Format = Output.TABLE
) -> None:
    """Put suspended or preempted workloads back. With a selector, lists the matches and asks."""
    _steer("resume", targets, selection, wish, place, output)


def preempt(
    targets: Targets,
    selection: Selection,
    wish: Wish,
    within: Annotated[
        str | None,
        typer.Option(
            "--within",
            help="Wait so long for its checkpoint, not as long as it says; 0s: not at all.",
            show_default=False,
        ),
    ] = None,
    place: Place = HERE,
    output: Format = Output.TABLE,
) -> None:
    """Save the state of workloads, then suspend them, to make room for others. Not a failure; charges no budget."""
    _steer("preempt", targets, selection, wish, place, output, within=seconds(within, "--within"))


def cancel(
    targets: Targets, selection: Selection, wish: Wish, place: Place = HERE, output: Format = Output.TABLE
) -> None:
    """End workloads: remove all, and record the end once all is gone. With a selector, lists the matches and asks."""
    _steer("cancel", targets, selection, wish, place, output)


def add_to(app: typer.Typer, panel: str) -> None:
    """Add this file's commands."""
    commands: tuple[Callable[..., None], ...] = (suspend, resume, preempt, cancel)
    for command in commands:
        app.command(rich_help_panel=panel)(grouped(command))
    app.command("delete", hidden=True)(grouped(cancel))


def _steer(
    verb: str,
    targets: Targets,
    selection: Selection,
    wish: Wish,
    place: Place,
    output: Output,
    *,
    within: float | None = None,
) -> None:
    selects = targets.everything or selection != Selection()
    if bool(targets.names) == selects:
        wanted = "expected names of workloads, or a selection (-l, --phase, --queue), or --all"
        raise typer.BadParameter(wanted, param_hint="NAME")
    if targets.everywhere and (targets.names or wish.namespace is not None):
        wanted = "expected --all or a selection with it, and neither names nor --namespace"
        raise typer.BadParameter(wanted, param_hint="--all-namespaces")
    if targets.names:
        steer(verb, named_by(targets.names, wish.namespace), wish, place, output, within=within)
        return
    namespace = None if targets.everywhere else wish.namespace or kubectl.namespace() or "default"
    if found := _selected(verb, selection, namespace, place, yes=targets.yes):
        steer(verb, list(found), wish, place, output, within=within, uids=found)
    else:
        emit_all((), output, str, many=True)


def _selected(verb: str, selection: Selection, namespace: str | None, place: Place, *, yes: bool) -> dict[Chosen, str]:
    """Return the selected workloads that the command can change, with their uids, once the user has agreed."""
    cluster, terms = place.required(), selection.terms()
    if not yes and not interactive():
        raise HoldfastError(f"{verb} asks first, and there is no terminal to ask at: --yes goes on unasked")

    async def find() -> Listing:
        async with session(place) as holdfast:
            return await select(holdfast, Sort.NAME, cluster=cluster, namespace=namespace, running=True, **terms)

    from holdfast.cli.common import render
    from holdfast.model.words import counted

    listing = asyncio.run(find())
    found = [one for one in listing.found if changes(verb, one.phase)]
    count = counted(len(found), "workload")
    where = f"{f'namespace {namespace}' if namespace else 'all namespaces'} on cluster {cluster}"
    if listing.cut:
        raise HoldfastError(f"more than {len(listing.found):,} workloads match: select fewer (-l, --phase, --queue)")
    if not found:
        say(f"no matching workload in {where} would be changed by {verb}", err=True)
        return {}
    if not yes:
        say(render.summaries(found[:_SHOWN], datetime.now(UTC)), err=True)
        if len(found) > _SHOWN:
            say(f"... and {len(found) - _SHOWN:,} more", err=True)
        if not confirmed(f"{verb.capitalize()} {count} of {where}?"):
            raise HoldfastError("nothing was changed")
    # What stands behind the namespace in the id has the kind, where one name may be that of two workloads.
    return {Chosen(one.namespace, one.workflow_id.split("/", 3)[3]): one.uid for one in found}


def changes(verb: str, phase: str) -> bool:
    """Whether a command changes a workload whose workflow runs, by its phase; a held one can only be cancelled."""
    from holdfast.model import Phase

    down = {Phase.SUSPENDING, Phase.SUSPENDED}
    if verb == "resume":
        return phase in down
    ended = {one for one in Phase if one.ended} | {Phase.TERMINATING}
    return {"suspend": phase not in ended, "preempt": phase not in ended | down}.get(verb, True)
