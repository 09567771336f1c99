"""`holdfast sweep`: what outages left behind in a cluster is listed, and removed where Temporal's answer allows it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.options import EXIT_FAILED, EXIT_REFUSED, Address, Cluster, Format, Output, TemporalNamespace
from holdfast.cli.output import emit
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from datetime import timedelta

    from holdfast.worker.sweep_act import Outcome
    from holdfast.worker.sweep_ask import Ground, Item, Survey


def sweep(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be removed, and change nothing.")] = False,
    unknown: Annotated[
        bool, typer.Option("--unknown", help="Remove also what Temporal does not know, after asking.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --unknown: do not ask.")] = False,
    timeout: Annotated[str, typer.Option("--timeout", help="How long the removal of one workload may last.")] = "10m",
    cluster: Cluster = None,
    installation: Annotated[
        str | None,
        typer.Option(
            "--installation",
            help="Whose objects. Default: $HOLDFAST_INSTALLATION, or that of the worker that watches the cluster.",
            show_default=False,
        ),
    ] = None,
    address: Address = None,
    temporal_namespace: TemporalNamespace = None,
    kubeconfig: Annotated[
        str | None, typer.Option("--kubeconfig", help="Default: $KUBECONFIG.", show_default=False)
    ] = None,
    context: Annotated[str | None, typer.Option("--context", help="Of the kubeconfig.", show_default=False)] = None,
    output: Format = Output.TABLE,
) -> None:
    """Remove what outages left behind in a cluster: of workloads whose run is over, and attempts that are past.

    Temporal is asked about each, and again before each deletion; nothing is removed by force. What Temporal does not
    know is only listed. Exit code 1 if something could not be removed, 3 if Temporal or Kubernetes does not answer.
    """
    limit = _limit(timeout)
    outcomes: list[Outcome] = []

    async def go() -> tuple[Ground, Survey]:
        from holdfast.worker import sweep_act, sweep_ask

        async with _ground(cluster, installation, address, temporal_namespace, kubeconfig, context) as ground:
            survey = await sweep_ask.survey(ground)
            if output is Output.TABLE:
                typer.echo(table(ground, survey))
            if dry_run:
                return ground, survey
            _ask(ground, survey, unknown=unknown, yes=yes)
            chosen = sweep_act.to_remove(survey.items, unknown=unknown)

            def done(outcome: Outcome) -> None:
                outcomes.append(outcome)
                if output is Output.TABLE:
                    typer.echo(line(outcome))

            try:
                await sweep_act.sweep(ground, chosen, done=done, say=_say, limit=limit)
            except BaseException:
                _interrupted(chosen, outcomes)
                raise
            return ground, survey

    ground, survey = asyncio.run(go())
    if output is not Output.TABLE:
        emit(document(ground, survey, outcomes, dry_run=dry_run), output, str)
    if any(outcome.result == "left" for outcome in outcomes):
        raise typer.Exit(EXIT_FAILED)


def table(ground: Ground, survey: Survey) -> str:
    """Say what was found, as a person reads it."""
    from holdfast.cli import render
    from holdfast.worker.sweep import Verdict

    shown = [item for item in survey.items if item.judgement.verdict is not Verdict.ALIVE]
    rows = [
        (
            item.left.namespace,
            item.left.name,
            item.left.sentence(),
            item.judgement.verdict.value,
            item.judgement.why,
        )
        for item in shown
    ]
    heads = ("NAMESPACE", "WORKLOAD", "IN THE CLUSTER", "VERDICT", "WHY")
    parts = [render.table(heads, rows) if rows else "nothing was left behind"]
    unknown = _count(survey, Verdict.UNKNOWN)
    if unknown:
        parts.append(
            f"Unknown to Temporal at {ground.client.service_client.config.target_host}, namespace "
            f"{ground.client.namespace}: {_workloads(unknown)}. If that is where they ran, `holdfast sweep --unknown` "
            f"removes {'it' if unknown == 1 else 'them'}."
        )
    return "\n".join([*parts, _untouched(ground, survey)])


def line(outcome: Outcome) -> str:
    """Say in one line what became of one workload's leftovers."""
    left = outcome.item.left
    name = f"{left.namespace}/{left.name}"
    match outcome.result.value:
        case "removed":
            return f"{name}: removed ({_what(outcome.item)})"
        case "changed":
            return f"{name}: let be: {outcome.why}"
        case _:
            more = outcome.left_total - len(outcome.left)
            rest = f"; and {more} more" if more > 0 else ""
            return f"{name}: NOT removed, still there when time was up: {'; '.join(outcome.left)}{rest}"


def document(ground: Ground, survey: Survey, outcomes: Sequence[Outcome], *, dry_run: bool) -> dict[str, Any]:
    """Return what was found and done, as JSON has it; workloads that are simply alive are only counted."""
    from holdfast.worker.sweep import Verdict

    results = {outcome.item: outcome for outcome in outcomes}
    workloads: list[dict[str, Any]] = []
    for item in survey.items:
        if item.judgement.verdict is Verdict.ALIVE:
            continue
        left, judgement, outcome = item.left, item.judgement, results.get(item)
        workloads.append(
            {
                "namespace": left.namespace,
                "name": left.name,
                "uid": left.workload_uid,
                "workflowId": left.workflow_id,
                "anchor": left.anchor,
                "attempts": [one.number for one in left.attempts],
                "verdict": judgement.verdict.value,
                "why": judgement.why,
                "remove": [one.name for one in judgement.doomed],
                "result": outcome.result.value if outcome else "untouched",
                "detail": outcome.why if outcome else "",
                "left": list(outcome.left) if outcome else [],
                "leftTotal": outcome.left_total if outcome else 0,
            }
        )
    return {
        "cluster": ground.site.cluster,
        "clusterUid": ground.site.cluster_uid,
        "installation": ground.site.installation,
        "temporal": {"address": ground.client.service_client.config.target_host, "namespace": ground.client.namespace},
        "dryRun": dry_run,
        "workloads": workloads,
        "alive": _count(survey, Verdict.ALIVE),
        "settled": survey.found.settled,
        "foreign": survey.found.foreign,
    }


def add_to(app: typer.Typer, panel: str) -> None:
    """Add this file's command."""
    app.command(rich_help_panel=panel)(sweep)


@asynccontextmanager
async def _ground(
    cluster: str | None,
    installation: str | None,
    address: str | None,
    temporal_namespace: str | None,
    kubeconfig: str | None,
    context: str | None,
) -> AsyncGenerator[Ground]:
    """Reach Temporal and the cluster, which is to be the one that the name stands for."""
    from holdfast.cli.kubernetes import reached
    from holdfast.cli.options import session
    from holdfast.client.connection import refusals
    from holdfast.worker.settings import Role, load
    from holdfast.worker.sweep_ask import ground

    # Where a worker takes them from: flags, environment, holdfast.toml.
    flags = {"cluster": cluster, "installation": installation, "kubeconfig": kubeconfig, "roles": (Role.WORKFLOWS,)}
    settings = load(flags)
    async with session(address, temporal_namespace, settings.cluster) as holdfast:
        named = holdfast.require_cluster()
        with refusals(holdfast.place):
            async with reached(settings.kubeconfig or None, context or settings.kube_context or None) as kube:
                yield await ground(holdfast.client, kube, named, settings.installation)


def _ask(ground: Ground, survey: Survey, *, unknown: bool, yes: bool) -> None:
    """Have a person say that what Temporal does not know may go.

    Raises:
        HoldfastError: if this Temporal namespace does not even know the cluster.
        typer.Exit: if the answer is no.
    """
    from holdfast.worker.sweep import Verdict

    lost = [item for item in survey.items if item.judgement.verdict is Verdict.UNKNOWN]
    if not unknown or not lost:
        return
    where = f"{ground.client.service_client.config.target_host}, namespace {ground.client.namespace}"
    if not ground.watched:
        raise HoldfastError(
            f"nothing is touched: Temporal at {where} does not know cluster {ground.site.cluster} at all, so that it "
            "is hardly the one its workloads run in. Set TEMPORAL_NAMESPACE or --temporal-namespace; if it is the "
            "right one and has lost its memory, start `holdfast worker` there first"
        )
    if yes:
        return
    typer.echo(f"Unknown to Temporal at {where}, and to be deleted with all their pods:", err=True)
    for item in lost:
        typer.echo(f"  {item.left.namespace}/{item.left.name}: {_what(item)}, uid {item.left.workload_uid}", err=True)
    try:
        agreed = typer.confirm("Delete them?", err=True)
    except typer.Abort:
        agreed = False
    if not agreed:
        typer.echo("nothing is touched (to delete them without being asked: --unknown --yes)", err=True)
        raise typer.Exit(EXIT_REFUSED)


def _interrupted(chosen: Sequence[Item], outcomes: Sequence[Outcome]) -> None:
    finished = {outcome.item for outcome in outcomes}
    for item in chosen:
        if item not in finished:
            _say(f"{item.left.namespace}/{item.left.name}: not finished; sweep again to go on")


def _untouched(ground: Ground, survey: Survey) -> str:
    from holdfast.worker.sweep import Verdict

    found = survey.found
    alive = _count(survey, Verdict.ALIVE)
    return (
        f"Not touched on cluster {ground.site.cluster}: {_workloads(alive)} alive, {found.settled} settled, and "
        f"{found.foreign} object{'' if found.foreign == 1 else 's'} not of installation {ground.site.installation}."
    )


def _count(survey: Survey, verdict: str) -> int:
    return sum(item.judgement.verdict == verdict for item in survey.items)


def _workloads(count: int) -> str:
    return f"{count} workload{'' if count == 1 else 's'}"


def _what(item: Item) -> str:
    """Say what of a workload goes: `anchor, attempts 1 and 2`."""
    from dataclasses import replace

    return replace(
        item.left, anchor=item.left.anchor and item.judgement.releases, attempts=item.judgement.doomed
    ).sentence()


def _say(text: str) -> None:
    typer.echo(text, err=True)


def _limit(timeout: str) -> timedelta:
    from holdfast.model import parse_duration

    try:
        return parse_duration(timeout)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--timeout") from None
