"""`holdfast dev`: the local stack from the command line."""

from __future__ import annotations

import shlex
import sys
import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from holdfast.cli.demo.setup import FIRST_NAMESPACE

if TYPE_CHECKING:
    from holdfast.local import Stack, StackError

app = typer.Typer(help="A real Temporal and a real Kubernetes on this machine.", no_args_is_help=True)

UNREACHABLE = 3
"""Exit code when the stack, or a part of it, cannot be reached."""

Name = Annotated[str, typer.Option("--name", help="Name of the stack; several can run side by side.")]
Folder = Annotated[
    Path | None, typer.Option("--dir", help="Folder of the stack. Default: ~/.local/state/holdfast/stacks/NAME.")
]


class Beside(StrEnum):
    """What may run beside the stack's own parts."""

    KUEUE = "kueue"


class ProgressLines:
    """Prints progress. Lines about one step overwrite each other on a terminal; elsewhere, most are left out."""

    QUIET_SECONDS = 30.0
    """The shortest time between two progress lines of the same step, if lines cannot be overwritten."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty()
        self._open = False
        self._step = ""
        self._said = ""
        self._when = 0.0

    def __call__(self, line: str) -> None:
        """Show one line."""
        step = line.partition("]")[0] if line.startswith("[") else ""
        same, now = bool(step) and step == self._step, time.monotonic()
        if self._live:
            if self._open:
                sys.stderr.write("\r\x1b[K" if same else "\n")
            sys.stderr.write(line if step else f"{line}\n")
            self._open = bool(step)
        elif not (same and line.startswith(self._said) and now - self._when < self.QUIET_SECONDS):
            sys.stderr.write(f"{line}\n")
            self._when = now
            self._said = line if not (same and line.startswith(self._said)) else self._said
        self._step = step
        sys.stderr.flush()

    def end(self) -> None:
        """Finish a line that could still have been overwritten."""
        if self._open:
            sys.stderr.write("\n")
            self._open = False


@app.command()
def up(
    name: Name = "dev",
    directory: Folder = None,
    nodes: Annotated[
        int | None, typer.Option(min=0, help="Fake nodes, 256 CPUs and 1,000 pods each. First: 8.")
    ] = None,
    real_node: Annotated[
        bool | None,
        typer.Option("--real-node/--no-real-node", help="Also a real kubelet with containerd. Needs root, on Linux."),
    ] = None,
    ha: Annotated[
        bool | None,
        typer.Option("--ha/--no-ha", help="Two Temporal servers on a PostgreSQL: either may be killed. On Linux."),
    ] = None,
    beside: Annotated[
        list[Beside] | None, typer.Option("--with", help="Also Kueue, which decides who runs. Needs root, on Linux.")
    ] = None,
    kubeconfig: Annotated[
        Path | None, typer.Option(help="Use this cluster instead of an own one. Default: $KUBECONFIG, if it is set.")
    ] = None,
    temporal_address: Annotated[
        str | None, typer.Option(help="Use this Temporal instead of an own one. Default: $TEMPORAL_ADDRESS, if set.")
    ] = None,
    dynamic_config: Annotated[
        list[str] | None, typer.Option(help="Temporal dynamic config, KEY=JSON. May be given several times.")
    ] = None,
    plaintext: Annotated[
        bool, typer.Option("--plaintext", help="Encrypt nothing of what Temporal stores, for tools without its keys.")
    ] = False,
    apply: Annotated[
        bool | None,
        typer.Option("--apply/--no-apply", help="Apply CRDs and RBAC. Default: on an own cluster only."),
    ] = None,
) -> None:
    """Start the stack, or the parts of it that do not run. Missing programs are downloaded or built first, once."""
    from holdfast.local import Stack, StackError, given_by_environment

    config: dict[str, str] | None = None
    if dynamic_config is not None:
        config = {}
        for item in dynamic_config:
            key, equals, value = item.partition("=")
            if not equals:
                raise typer.BadParameter(f"{item!r} is not KEY=JSON", param_hint="--dynamic-config")
            config[key] = value
    given_cluster, given_temporal = given_by_environment()
    progress = ProgressLines()
    try:
        stack = Stack.up(
            name,
            directory,
            nodes=nodes,
            real_node=real_node,
            ha=ha,
            kueue=True if beside else None,
            dynamic_config=config,
            encrypted=not plaintext,
            kubeconfig=kubeconfig or given_cluster,
            temporal_address=temporal_address or given_temporal,
            apply=apply,
            progress=progress,
        )
    except StackError as error:
        progress.end()
        _fail(error)
    if not (kubeconfig or given_cluster):
        progress(f"namespace {FIRST_NAMESPACE}: enabled, so that a first try meets no friction")
        _enable(stack)
    progress.end()
    typer.echo(f"Stack {stack.name} is up.")
    typer.echo(f"  Kubernetes   {stack.kubeconfig}")
    typer.echo(f"  Temporal     {stack.temporal_address}")
    if stack.temporal_ui:
        typer.echo(f"  Temporal UI  {stack.temporal_ui}")
    chosen = "" if name == "dev" else f" --name {shlex.quote(name)}"
    chosen += f" --dir {shlex.quote(str(directory))}" if directory else ""
    typer.echo(f'For this shell: eval "$(holdfast dev env{chosen})"')


def _enable(stack: Stack) -> None:
    """Let workloads run in the first namespace."""
    import asyncio

    from holdfast.activities.kube.client import Kube
    from holdfast.worker.cleanup.namespace import enable

    async def go() -> None:
        async with await Kube.connect(str(stack.kubeconfig)) as kube:
            await enable(kube, FIRST_NAMESPACE)

    asyncio.run(go())


@app.command()
def down(
    name: Name = "dev",
    directory: Folder = None,
    purge: Annotated[bool, typer.Option("--purge", help="Remove its data too.")] = False,
) -> None:
    """Stop what this stack started, and nothing else. Its data stays, unless --purge is given."""
    from holdfast.local import NotRunningError, Stack, StackError

    try:
        Stack.load(name, directory).down(purge=purge, progress=lambda line: typer.echo(line, err=True))
    except NotRunningError as error:
        typer.echo(f"Nothing to stop: {error.what}")
    except StackError as error:
        _fail(error)


@app.command()
def status(
    name: Name = "dev",
    directory: Folder = None,
    output: Annotated[str, typer.Option("--output", "-o", help="table, json or yaml.")] = "table",
) -> None:
    """Show each part: its process, its address, whether it is healthy. Exit code 3 if one is not."""
    from holdfast.local import Stack, StackError

    if output not in ("table", "json", "yaml"):
        raise typer.BadParameter(f"{output!r} is none of table, json, yaml", param_hint="--output")
    try:
        stack = Stack.load(name, directory)
    except StackError as error:
        _fail(error)
    parts = stack.status()
    if output == "table":
        from rich.console import Console
        from rich.table import Table

        table = Table("part", "pid", "address", "health", box=None, pad_edge=False)
        for part in parts:
            health = "[green]healthy" if part.healthy else f"[red]{part.note}"
            table.add_row(part.name, str(part.pid or "-"), part.address, health)
        Console().print(table)
        for key, value in stack.environment.items():
            typer.echo(f"{key}={value}")
        if stack.temporal_ui:
            typer.echo(f"Temporal UI: {stack.temporal_ui}")
    else:
        import json

        import yaml

        document = {
            "name": stack.name,
            "directory": str(stack.directory),
            "environment": stack.environment,
            "temporalUI": stack.temporal_ui,
            "parts": [
                {
                    "name": part.name,
                    "pid": part.pid,
                    "address": part.address,
                    "running": part.running,
                    "healthy": part.healthy,
                    "note": part.note,
                }
                for part in parts
            ],
        }
        typer.echo(json.dumps(document, indent=2) if output == "json" else yaml.safe_dump(document, sort_keys=False))
    if not all(part.healthy for part in parts):
        raise typer.Exit(UNREACHABLE)


@app.command()
def env(name: Name = "dev", directory: Folder = None) -> None:
    """Print shell exports for the stack, with its kubectl and temporal on PATH: eval "$(holdfast dev env)"."""
    from holdfast.local import SEVERAL_ADDRESSES, Stack, StackError

    try:
        stack = Stack.load(name, directory)
    except StackError as error:
        _fail(error)
    for key, value in stack.environment.items():
        typer.echo(f"export {key}={shlex.quote(value)}")
    if SEVERAL_ADDRESSES not in stack.environment:
        typer.echo(f"unset {SEVERAL_ADDRESSES}")  # It takes precedence over the other, and may be of another stack.
    typer.echo(f'export PATH={shlex.quote(str(stack.commands))}:"$PATH"')


def _fail(error: StackError) -> NoReturn:
    typer.echo(f"Error: {error}", err=True)
    raise typer.Exit(UNREACHABLE)


if __name__ == "__main__":
    app()
