"""`holdfast uninstall`: remove Holdfast from a cluster; running workloads are removed first, or left alone."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from holdfast.cli.common.live import LiveLine
from holdfast.cli.common.options import EXIT_REFUSED, HERE, Context, Installation, Kubeconfig, Place, grouped
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.worker.cleanup.sweep_lookup import Ground

_KINDS: Final = ("crds/anchors.yaml", "crds/attempts.yaml")
_FILES: Final = (*_KINDS, "namespace.yaml", "rbac.yaml", "connection.yaml", "node-policy.yaml", "flow-control.yaml")


class Workloads(StrEnum):
    """What happens to the workloads on the cluster."""

    REMOVE = "remove"
    LEAVE = "leave"


def uninstall(
    workloads: Annotated[
        Workloads | None,
        typer.Option(
            "--workloads",
            help="remove: each is cancelled, and all of it removed, with its custom resource, also where that has "
            "ended. leave: its pods run on, and nobody heals them.",
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what there is, and change nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    timeout: Annotated[str, typer.Option("--timeout", help="How long removing all workloads may last.")] = "10m",
    place: Place = HERE,
    installation: Installation = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Remove Holdfast from a cluster: workloads, its marks on nodes, policies, RBAC and CRDs, in this order.

    If interrupted, run it again to continue. Histories stay in Temporal.
    """
    from holdfast.cli.cluster.sweep import grounded, time_limit

    limit = time_limit(timeout)

    async def go() -> None:
        from holdfast import formats
        from holdfast.deploy import FOLDER, door_files
        from holdfast.worker.cleanup import uninstall as taking
        from holdfast.worker.cleanup.disable import delete_own
        from holdfast.worker.cleanup.workloads import open_workflows, standing

        async with grounded(place, installation, kubeconfig, context) as ground:
            await taking.check_ground(ground)
            things = await standing(ground)
            workflows = await open_workflows(ground.client, ground.site.cluster)
            _tell(ground, len(workflows), len(things))
            if dry_run:
                return
            if workloads is None and (workflows or any(one.lives for one in things)):
                raise HoldfastError("what becomes of them? --workloads remove, or --workloads leave")
            if not yes:
                _confirm(ground)
            if workloads is Workloads.LEAVE:
                await taking.check_stopped(ground, _say)
            # First what makes objects Holdfast's, so that no new one arrives during the uninstall.
            claims = (FOLDER / form.folder / "managed-by.yaml" for form in formats.RESOURCES.values())
            for manifest in _manifests(one for one in claims if one.is_file()):  # A kind of our own needs none.
                await delete_own(ground.site.kube, manifest, _say)
            if workloads is Workloads.LEAVE:
                await taking.leave_workloads(ground, say=_say)
            elif workloads is Workloads.REMOVE:
                await remove(ground, because=taking.BECAUSE, limit=limit)
            door = {path: None for form in formats.RESOURCES.values() for path in door_files(form.folder)}
            files = (*(FOLDER / file for file in _FILES), *door)
            manifests, accounts = list(_manifests(files)), workloads is Workloads.REMOVE
            await taking.take_off(ground, manifests, accounts=accounts, say=_say)
            _say(f"Holdfast is off cluster {ground.site.cluster}")

    asyncio.run(go())


async def remove(ground: Ground, namespace: str | None = None, *, because: str, limit: timedelta) -> None:
    """Remove all workloads, or those of a namespace; at a terminal, a line shows what is left.

    Raises:
        HoldfastError: if something still exists at the end of `limit`.
    """
    from holdfast.cli.common.render import age
    from holdfast.worker.cleanup.workloads import remove_workloads

    line, begun = LiveLine(sys.stderr), datetime.now(UTC)

    def say(text: str) -> None:
        line.erase()
        _say(text)

    def show(text: str) -> None:
        line.show(f"{age(datetime.now(UTC) - begun)}: {text}")

    try:
        await remove_workloads(ground, namespace, because=because, limit=limit, say=say, show=show)
    finally:
        line.erase()


def add_to(app: typer.Typer, panel: str) -> None:
    """Add this file's command."""
    app.command(rich_help_panel=panel)(grouped(uninstall))


def _tell(ground: Ground, workflows: int, things: int) -> None:
    from holdfast.model.words import counted

    site = ground.site
    _say(f"cluster {site.cluster}, installation {site.installation}, Temporal namespace {ground.client.namespace}")
    running = counted(workflows, "graph or workload", "graphs and workloads")
    _say(f"under way: {running}; {counted(things, 'object stands', 'objects stand')} for them")


def _confirm(ground: Ground) -> None:
    typer.echo(f"Take Holdfast off cluster {ground.site.cluster}? [y/N] ", nl=False, err=True)
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        typer.echo("nothing is changed (`--yes` goes on without asking)", err=True)
        raise typer.Exit(EXIT_REFUSED)


def _manifests(files: Iterable[Path]) -> Iterator[dict[str, Any]]:
    import yaml

    for file in files:
        yield from yaml.safe_load_all(file.read_text(encoding="utf-8"))


def _say(text: str) -> None:
    typer.echo(text)
