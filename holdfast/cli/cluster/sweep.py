"""`holdfast sweep`: list what outages left behind in a cluster, and remove it if Temporal's answer allows that."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.common import kubectl, progress
from holdfast.cli.common.live import LiveLine
from holdfast.cli.common.options import (
    EXIT_FAILED,
    EXIT_REFUSED,
    HERE,
    Context,
    Format,
    Installation,
    Kubeconfig,
    Output,
    Place,
    grouped,
)
from holdfast.cli.common.output import emit, say
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.cli.cluster.sweep_text import Scene
    from holdfast.worker.cleanup.sweep_delete import Outcome
    from holdfast.worker.cleanup.sweep_lookup import Ground, Item, Survey


def sweep(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be removed, and change nothing.")] = False,
    unknown: Annotated[
        bool, typer.Option("--unknown", help="Remove also what Temporal does not know, after asking.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --unknown: do not ask.")] = False,
    timeout: Annotated[str, typer.Option("--timeout", help="How long the removal of one workload may last.")] = "10m",
    place: Place = HERE,
    installation: Installation = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: Format = Output.TABLE,
) -> None:
    """Remove what outages left behind in a cluster: objects of finished workloads, and of past attempts.

    The command asks Temporal about each workload, and again before each deletion. It removes nothing by force, and only
    lists what Temporal does not know. Exit code 1 if something could not be removed, 3 if Temporal or Kubernetes does
    not answer.
    """
    limit = time_limit(timeout)
    told: list[Told] = []

    async def go() -> None:
        from holdfast.cli.cluster.sweep_text import going, line, table
        from holdfast.worker.cleanup.sweep_delete import sweep as carry_out
        from holdfast.worker.cleanup.sweep_delete import to_remove
        from holdfast.worker.cleanup.sweep_lookup import survey

        async with grounded(place, installation, kubeconfig, context) as ground:
            seen = Told(_scene(ground), await survey(ground))
            told.append(seen)
            if output is Output.TABLE:
                say(table(seen.scene, seen.survey, hint=not unknown))
            if dry_run:
                return
            _ask(ground, seen, unknown=unknown, yes=yes)
            seen.chosen = to_remove(seen.survey.items, unknown=unknown)

            live = LiveLine(sys.stderr)

            async def read(waited: timedelta) -> str:
                return going(seen.chosen, seen.outcomes, waited)

            def tell(text: str) -> None:
                live.erase()
                _say(text)

            def done(outcome: Outcome) -> None:
                seen.outcomes.append(outcome)
                live.erase()
                if output is Output.TABLE:
                    say(line(outcome))

            async with progress.kept(live, read):
                await carry_out(ground, seen.chosen, done=done, say=tell, limit=limit)

    try:
        asyncio.run(go())
    finally:
        # Also if Temporal or the cluster went away halfway: report what was done until then.
        for seen in told:
            _conclude(seen, output, dry_run=dry_run)
    if any(outcome.result == "left" for seen in told for outcome in seen.outcomes):
        raise typer.Exit(EXIT_FAILED)


@dataclass
class Told:
    """What the sweep has to report so far."""

    scene: Scene
    survey: Survey
    chosen: Sequence[Item] = ()
    outcomes: list[Outcome] = field(default_factory=list)


def add_to(app: typer.Typer, panel: str) -> None:
    """Add this file's command."""
    app.command(rich_help_panel=panel)(grouped(sweep))


@asynccontextmanager
async def grounded(
    place: Place, installation: str | None, kubeconfig: str | None, context: str | None
) -> AsyncGenerator[Ground]:
    """Connect to Temporal and to the cluster, which must be the one that the name stands for."""
    from holdfast.cli.common.kubernetes import reached
    from holdfast.cli.common.options import session
    from holdfast.client.connection import refusals
    from holdfast.worker.cleanup.sweep_lookup import ground
    from holdfast.worker.runtime.settings import Role, load

    kubectl.connect(place.cluster, place.address)
    # The same sources as for a worker: flags, environment, holdfast.toml.
    flags = {
        "cluster": place.cluster,
        "installation": installation,
        "kubeconfig": kubeconfig,
        "roles": (Role.WORKFLOWS,),
    }
    settings = load(flags)
    async with session(replace(place, cluster=settings.cluster)) as holdfast:
        named = holdfast.require_cluster()
        with refusals(holdfast.place):
            async with reached(settings.kubeconfig or None, context or settings.kube_context or None) as kube:
                yield await ground(holdfast.client, kube, named, settings.installation, settings.managed_by)


def _scene(ground: Ground) -> Scene:
    from holdfast.cli.cluster.sweep_text import Scene

    site, client = ground.site, ground.client
    address = client.service_client.config.target_host
    return Scene(site.cluster, site.cluster_uid, site.installation, address, client.namespace)


def _ask(ground: Ground, seen: Told, *, unknown: bool, yes: bool) -> None:
    """Have a person confirm that what Temporal does not know may be deleted.

    Raises:
        HoldfastError: if this Temporal namespace does not even know the cluster.
        typer.Exit: if the answer is no.
    """
    from holdfast.cli.cluster.sweep_text import count, question
    from holdfast.worker.cleanup.sweep import Verdict

    if not unknown or not count(seen.survey, Verdict.UNKNOWN):
        return
    if not ground.watched:
        raise HoldfastError(
            f"nothing is touched: Temporal at {seen.scene.temporal} does not know cluster {seen.scene.cluster} at all, "
            "so it is hardly the one its workloads run in. Set TEMPORAL_NAMESPACE or --temporal-namespace; if it is "
            "the right one and has lost its memory, start `holdfast worker` with it first"
        )
    if yes:
        return
    say(question(seen.scene, seen.survey), err=True)
    # Not `typer.confirm`: even with `err` it writes a blank to standard output, which may be a JSON document.
    typer.echo("Delete them? [y/N] ", nl=False, err=True)
    agreed = sys.stdin.readline().strip().lower() in {"y", "yes"}
    if not agreed:
        typer.echo("nothing is deleted (`--unknown --yes` deletes them without asking)", err=True)
        raise typer.Exit(EXIT_REFUSED)


def _conclude(seen: Told, output: Output, *, dry_run: bool) -> None:
    from holdfast.cli.cluster.sweep_text import document, name

    if output is not Output.TABLE:
        emit(document(seen.scene, seen.survey, seen.chosen, seen.outcomes, dry_run=dry_run), output, str)
    finished = {outcome.item for outcome in seen.outcomes}
    for item in seen.chosen:
        if item not in finished:
            _say(f"{name(item.left)}: not finished: run `holdfast sweep` again to go on")


def _say(text: str) -> None:
    typer.echo(text, err=True)


def time_limit(timeout: str) -> timedelta:
    """Return the duration in `--timeout`: how long a removal may last.

    Raises:
        typer.BadParameter: if it is not a duration.
    """
    from holdfast.model import parse_duration

    try:
        return parse_duration(timeout)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--timeout") from None
