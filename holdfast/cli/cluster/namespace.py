"""The command that prepares a namespace for workloads."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from holdfast import names
from holdfast.cli.common.options import Output
from holdfast.cli.common.output import dumped
from holdfast.errors import HoldfastError

app = typer.Typer(help="Prepare Kubernetes namespaces for workloads.", no_args_is_help=True)


@app.callback()
def namespace() -> None:
    """Prepare Kubernetes namespaces for workloads."""


@app.command()
def enable(
    name: Annotated[str, typer.Argument(help="The namespace; it is made if it is not there.", metavar="NAMESPACE")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the objects, and change nothing.")] = False,
    service_account: Annotated[
        str, typer.Option("--service-account", help="As which components are created.")
    ] = names.RUN_AS_DEFAULT,
    api_group: Annotated[
        list[str] | None,
        typer.Option("--api-group", help="A further API group its workloads use, for example jobset.x-k8s.io."),
    ] = None,
    kubeconfig: Annotated[
        str | None, typer.Option("--kubeconfig", help="Default: $KUBECONFIG.", show_default=False)
    ] = None,
    context: Annotated[str | None, typer.Option("--context", help="Of the kubeconfig.", show_default=False)] = None,
) -> None:
    """Let workloads run in a namespace: apply its label, service account, role and bindings. May be repeated.

    You need the right to grant these yourself; the worker has no such rights.
    """
    from holdfast.worker.cleanup.namespace import enable as enable_namespace
    from holdfast.worker.cleanup.namespace import manifests

    groups = tuple(api_group or ())
    if dry_run:
        documents = manifests(name, service_account, groups)
        typer.echo("---\n".join(dumped(document, Output.YAML) for document in documents).rstrip("\n"))
        return

    async def go() -> int:
        from holdfast.cli.common.kubernetes import reached

        async with reached(kubeconfig, context) as kube:
            return len(await enable_namespace(kube, name, service_account=service_account, extra_groups=groups))

    if not names.DNS_LABEL.match(name):
        raise HoldfastError(f"{name!r}: expected a DNS label, at most 63 characters of [-a-z0-9]")
    count = asyncio.run(go())
    typer.echo(f"namespace {name} is enabled: {count} objects applied, components are created as {service_account}")
