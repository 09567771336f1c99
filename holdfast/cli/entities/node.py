"""Commands about nodes and their machines: list, boot, wipe, power off, release, report as powered off."""

from __future__ import annotations

import asyncio
import getpass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.common.options import EXIT_FAILED, HERE, Format, Output, Place, grouped, session
from holdfast.cli.common.output import emit

if TYPE_CHECKING:
    from holdfast.client import Holdfast
    from holdfast.model import NodeBook
    from holdfast.model.entities.provisioner import NodeOutcome, NodeRequest, ProvisionerStatus

app = typer.Typer(help="Nodes and their machines: boot, wipe, power off, fencing.", no_args_is_help=True)

Node = Annotated[str, typer.Argument(help="The node's name.", metavar="NODE")]
Reason = Annotated[str, typer.Option("--reason", help="Why: kept with the request.")]
NeededReason = Annotated[str, typer.Option("--reason", help="Why: kept with the request.", show_default=False)]
Wait = Annotated[bool, typer.Option("--wait", help="Until it is done, however long the service is away.")]


@app.callback()
def node() -> None:
    """Nodes and their machines: boot, wipe, power off, fencing."""


@app.command("list")
@grouped
def list_nodes(
    place: Place = HERE,
    output: Format = Output.TABLE,
) -> None:
    """Show unhealthy nodes, the pending requests for machines with what they wait for, and the last results.

    `holdfast goodput --cause App` shows the nodes on which programs fail.
    """
    from holdfast.cli.entities.node_text import document, shown

    async def go() -> tuple[str, NodeBook | None, ProvisionerStatus | None]:
        async with session(place) as holdfast:
            name = holdfast.require_cluster(place.cluster)
            return name, await holdfast.node_book(name), await provisioner_status(holdfast, name)

    name, book, told = asyncio.run(go())
    emit(document(book, told), output, lambda: shown(name, book, told, datetime.now(UTC)))


@app.command()
@grouped
def boot(
    node: Node,
    pxe: Annotated[bool, typer.Option("--pxe", help="From the network, this once.")] = False,
    reason: Reason = "",
    wait: Wait = False,
    place: Place = HERE,
    output: Format = Output.TABLE,
) -> None:
    """Power on a node's machine."""
    _ask(place, output, wait=wait, node=node, action="Boot", why=reason, pxe=pxe)


@app.command()
@grouped
def wipe(
    node: Node,
    reason: Reason = "",
    wait: Wait = False,
    place: Place = HERE,
    output: Format = Output.TABLE,
) -> None:
    """Erase all drives of a node once its pods are gone. The node takes no new pods until the wipe is proven."""
    _ask(place, output, wait=wait, node=node, action="Wipe", why=reason)


@app.command("power-off")
@grouped
def power_off(
    node: Node,
    force: Annotated[bool, typer.Option("--force", help="Although pods other than DaemonSets' are on it.")] = False,
    reason: Reason = "",
    wait: Wait = False,
    place: Place = HERE,
    output: Format = Output.TABLE,
) -> None:
    """Power off a node's machine once its pods are gone."""
    _ask(place, output, wait=wait, node=node, action="PowerOff", why=reason, force=force)


@app.command()
@grouped
def release(
    node: Node,
    reason: NeededReason = "",
    wait: Wait = False,
    place: Place = HERE,
    output: Format = Output.TABLE,
) -> None:
    """Release a node from quarantine, wiped or not; a wipe that has not begun is withdrawn."""
    _ask(place, output, wait=wait, node=node, action="Release", why=reason)


@app.command()
@grouped
def fenced(
    node: Node,
    reason: NeededReason = "",
    wait: Wait = False,
    place: Place = HERE,
    output: Format = Output.TABLE,
) -> None:
    """Confirm that you have cut a silent node's power yourself, so that its pods are replaced."""
    _ask(place, output, wait=wait, node=node, action="Fenced", why=reason)


def _ask(place: Place, output: Output, *, wait: bool, **asked: Any) -> None:
    from holdfast.model.entities.provisioner import NodeAsk, Result
    from holdfast.policy.nodes.provisioner import verb_of

    ask = NodeAsk.model_validate({**asked, "by": _user()})

    async def go() -> tuple[NodeRequest, NodeOutcome | None]:
        async with session(place) as holdfast:
            provisioner = holdfast.provisioner(place.cluster)
            request = await provisioner.request(ask)
            if wait:
                # Print the number now: the request continues even if this terminal closes.
                typer.echo(f"request {request.number}, {verb_of(request.action)} {request.node}: asked", err=True)
            return request, await provisioner.ended(request.number, request.at) if wait else None

    request, outcome = asyncio.run(go())
    words = f"request {request.number}, {verb_of(request.action)} {request.node}"
    if outcome is None:
        text = f"{words}: asked; `holdfast node list` says what it waits for"
    else:
        text = f"{words}: {outcome.result}{': ' if outcome.said else ''}{outcome.said}"
    told = outcome if outcome is not None else request
    emit(told.model_dump(mode="json", by_alias=True), output, lambda: text)
    if outcome is not None and outcome.result is not Result.DONE:
        raise typer.Exit(EXIT_FAILED)


async def provisioner_status(holdfast: Holdfast, cluster: str) -> ProvisionerStatus | None:
    """Return the status of a cluster's provisioner; None if the cluster has none."""
    from holdfast.client.entities.provisioner import NoProvisioner

    try:
        return await holdfast.provisioner(cluster).status()
    except NoProvisioner:
        return None


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # In a container the user may have no name.
        return ""
