"""The commands that prepare a namespace for workloads, and close it again."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import typer

from holdfast import names
from holdfast.cli.cluster.uninstall import Workloads, remove
from holdfast.cli.common.options import HERE, Context, Installation, Kubeconfig, Output, Place, grouped
from holdfast.cli.common.output import dumped
from holdfast.errors import HoldfastError, NotReachable

app = typer.Typer(help="Prepare Kubernetes namespaces for workloads, and close them.", no_args_is_help=True)


@app.callback()
def namespace() -> None:
    """Prepare Kubernetes namespaces for workloads, and close them."""


def _check(name: str) -> None:
    if not names.DNS_LABEL.match(name):
        raise HoldfastError(f"{name!r}: expected a DNS label, at most 63 characters of [-a-z0-9]")


@app.command()
def enable(
    name: Annotated[str, typer.Argument(help="The namespace; it is made if it is not there.", metavar="NAMESPACE")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the objects for this cluster, and change nothing.")
    ] = False,
    service_account: Annotated[
        str, typer.Option("--service-account", help="As which components are created.")
    ] = names.RUN_AS_DEFAULT,
    api_group: Annotated[
        list[str] | None,
        typer.Option("--api-group", help="A further API group its workloads use, for example jobset.x-k8s.io."),
    ] = None,
    secrets: Annotated[
        bool, typer.Option("--secrets", help="Let its workloads bring Secrets; the account may read all of them.")
    ] = False,
    evidence: Annotated[
        bool,
        typer.Option(
            "--evidence", help="Let a worker with a store keep logs of pods that failed; logs may hold secrets."
        ),
    ] = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Let workloads run in a namespace: apply its label, service account, role and bindings. May be repeated.

    You need the right to grant these yourself; the worker has no such rights.
    """
    from holdfast.model.words import counted
    from holdfast.worker.cleanup.namespace import enable as enable_namespace
    from holdfast.worker.cleanup.namespace import manifests

    groups = tuple(api_group or ())
    if {"", "*"} & set(groups):
        raise HoldfastError("--api-group: expected the name of a group, for example jobset.x-k8s.io")

    async def go() -> list[dict[str, Any]]:
        from holdfast.cli.common.kubernetes import reached

        async with reached(kubeconfig, context) as kube:
            return await enable_namespace(
                kube,
                name,
                dry_run,
                service_account=service_account,
                extra_groups=groups,
                secrets=secrets,
                logs=evidence,
            )

    _check(name)
    try:
        made = asyncio.run(go())
    except NotReachable as error:
        if not dry_run:
            raise
        typer.echo(f"{error}\nThese are the rights for any cluster. Kubernetes 1.36 and later need fewer.", err=True)
        made = manifests(name, service_account, groups, secrets, logs=evidence)
    if dry_run:
        typer.echo("---\n".join(dumped(document, Output.YAML) for document in made).rstrip("\n"))
        return
    typer.echo(
        f"namespace {name} is enabled: {counted(len(made), 'object')} applied, "
        f"components are created as {service_account}"
    )


@app.command()
@grouped
def disable(
    name: Annotated[str, typer.Argument(help="The namespace.", metavar="NAMESPACE")],
    workloads: Annotated[
        Workloads | None,
        typer.Option(
            "--workloads",
            help="remove: each is cancelled, and all of it removed, with its custom resource. leave: its pods run on; "
            "a restart is refused.",
            show_default=False,
        ),
    ] = None,
    timeout: Annotated[str, typer.Option("--timeout", help="How long removing all workloads may last.")] = "10m",
    place: Place = HERE,
    installation: Installation = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Let nothing new begin in a namespace, and take away the rights that `enable` has granted there.

    If interrupted, run it again to continue.
    """
    from holdfast.cli.cluster.sweep import grounded, time_limit

    limit = time_limit(timeout)
    _check(name)

    async def go() -> None:
        from holdfast.activities.site.permission_cache import FRESH
        from holdfast.worker.cleanup.disable import close, revoke
        from holdfast.worker.cleanup.flow import admits
        from holdfast.worker.cleanup.workloads import open_workflows, standing

        async with grounded(place, installation, kubeconfig, context) as ground:
            kube, cluster = ground.site.kube, ground.site.cluster
            if await kube.find("v1", "Namespace", name) is None and not (
                await open_workflows(ground.client, cluster, name) or await admits(kube, name)
            ):
                raise HoldfastError(f"there is no namespace {name} on cluster {cluster}, and nothing is left of one")
            if workloads is None and (
                await open_workflows(ground.client, cluster, name)
                or any(one.lives for one in await standing(ground, name))
            ):
                raise HoldfastError("what becomes of its workloads? --workloads remove, or --workloads leave")
            await close(kube, name)
            typer.echo(f"nothing more is permitted; what was permitted in the last {FRESH:.0f} s may still begin")
            await asyncio.sleep(FRESH)
            if workloads is Workloads.REMOVE:
                await remove(ground, name, because=f"namespace {name} is disabled", limit=limit)
            await revoke(kube, name, accounts=workloads is not Workloads.LEAVE, say=typer.echo)
            typer.echo(f"namespace {name} is disabled: nothing begins there")

    asyncio.run(go())
