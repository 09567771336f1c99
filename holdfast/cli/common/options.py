"""Options that many commands share: which workload, which Temporal, how to print; and the exit codes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple, TypeVar

import typer

from holdfast.errors import HoldfastError, NotReachable, WorkloadFailed

if TYPE_CHECKING:
    from holdfast.client import Holdfast, Run

T = TypeVar("T")

EXIT_FAILED: Final = 1
EXIT_REFUSED: Final = 2
EXIT_UNREACHABLE: Final = 3


class Output(StrEnum):
    """How a read is printed."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


Name = Annotated[str, typer.Argument(help="The workload: NAME, or NAMESPACE/NAME.", metavar="NAME")]
Namespace = Annotated[
    str | None, typer.Option("--namespace", "-n", help="Kubernetes namespace. Default: default.", show_default=False)
]
Cluster = Annotated[
    str | None, typer.Option("--cluster", help="The cluster. Default: $HOLDFAST_CLUSTER.", show_default=False)
]
Address = Annotated[
    str | None,
    typer.Option("--address", help="Temporal, host:port. Default: $TEMPORAL_ADDRESS.", show_default=False),
]
TemporalNamespace = Annotated[
    str | None,
    typer.Option("--temporal-namespace", help="Default: $TEMPORAL_NAMESPACE, or default.", show_default=False),
]
Format = Annotated[Output, typer.Option("--output", "-o", help="How to print it.")]


class Chosen(NamedTuple):
    """The workload that was named."""

    namespace: str
    name: str


def chosen(name: str, namespace: str | None) -> Chosen:
    """Read NAME or NAMESPACE/NAME, with or without --namespace.

    Raises:
        typer.BadParameter: if the two contradict each other, or there are more parts.
    """
    parts = name.split("/")
    if len(parts) > 2 or not all(parts):
        raise typer.BadParameter(f"{name!r}: expected NAME or NAMESPACE/NAME", param_hint="NAME")
    if len(parts) == 1:
        return Chosen(namespace or "default", name)
    if namespace not in {None, parts[0]}:
        raise typer.BadParameter(f"{name!r} is in another namespace than --namespace {namespace}", param_hint="NAME")
    return Chosen(parts[0], parts[1])


def session(
    address: str | None, temporal_namespace: str | None, cluster: str | None
) -> AbstractAsyncContextManager[Holdfast]:
    """Return a session with Temporal, to be entered."""
    from holdfast.client import Holdfast

    return Holdfast.connect(address, temporal_namespace, cluster)


def asked(
    named: Chosen,
    address: str | None,
    temporal_namespace: str | None,
    cluster: str | None,
    ask: Callable[[Run], Awaitable[T]],
    then: str = "",
) -> T:
    """Return what is answered when something is asked of one workload.

    Args:
        named: the workload.
        address: of Temporal.
        temporal_namespace: in it.
        cluster: where the workload is.
        ask: what is asked of it.
        then: what happens once a worker answers, which is said where none does; empty where the answer says so itself.
    """
    from holdfast.cli.common.silence import attended

    async def go() -> T:
        async with session(address, temporal_namespace, cluster) as holdfast:
            run = await holdfast.get(named.name, named.namespace)
            return await (attended(run, ask(run), then) if then else ask(run))

    return asyncio.run(go())


def exit_code_of(error: HoldfastError) -> int:
    """Return the exit code an error has."""
    if isinstance(error, WorkloadFailed):
        return EXIT_FAILED
    if isinstance(error, NotReachable):
        return EXIT_UNREACHABLE
    return EXIT_REFUSED
