"""Options that many commands share: the workload, the Temporal, the output format; and the exit codes."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import StrEnum
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, TypeVar, get_type_hints

import typer

from holdfast import names
from holdfast.cli.common import complete, kubectl
from holdfast.errors import EndedFirst, HoldfastError, NotReachable, WorkloadFailed

if TYPE_CHECKING:
    from holdfast.client import Holdfast, Run

T = TypeVar("T")

EXIT_FAILED: Final = 1
EXIT_REFUSED: Final = 2
EXIT_UNREACHABLE: Final = 3
EXIT_TIMEOUT: Final = 4


class NotInTime(HoldfastError):
    """What a command waits for was not there within `--timeout`."""


def seconds(timeout: str | None, option: str) -> float | None:
    """Return a duration that an option gives, in seconds; None if it is not given.

    Raises:
        typer.BadParameter: if it is not a duration.
    """
    if timeout is None:
        return None
    from holdfast.model import parse_duration

    try:
        return parse_duration(timeout).total_seconds()
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


class Output(StrEnum):
    """The output format of a command."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


class Columns(StrEnum):
    """The output format of a command that has more to show."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"

    @property
    def output(self) -> Output:
        """The format without the question of how much."""
        return Output.TABLE if self is Columns.WIDE else Output(self.value)


Name = Annotated[
    str,
    typer.Argument(help="The workload: NAME, or NAMESPACE/NAME.", metavar="NAME", autocompletion=complete.workloads),
]
Namespace = Annotated[
    str | None,
    typer.Option(
        "--namespace",
        "-n",
        help="Kubernetes namespace. Default: default; of `kubectl holdfast`: that of its context.",
        show_default=False,
        autocompletion=complete.namespaces,
    ),
]
AllNamespaces = Annotated[
    bool,
    typer.Option("--all-namespaces", "-A", help="Of all namespaces; the default, except of `kubectl holdfast`."),
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
Installation = Annotated[
    str | None,
    typer.Option(
        "--installation",
        help="Whose objects. Default: $HOLDFAST_INSTALLATION, or that of the worker that watches the cluster.",
        show_default=False,
    ),
]
Kubeconfig = Annotated[
    str | None, typer.Option("--kubeconfig", help="Of the cluster. Default: $KUBECONFIG.", show_default=False)
]
Context = Annotated[str | None, typer.Option("--context", help="Of the kubeconfig.", show_default=False)]
Timeout = Annotated[
    str | None,
    typer.Option("--timeout", help="With --wait: give up after so long, for example 5m.", show_default=False),
]
WideFormat = Annotated[Columns, typer.Option("--output", "-o", help="How to print it; wide: all of it.")]
Format = Annotated[Output, typer.Option("--output", "-o", help="How to print it.")]


@dataclass(frozen=True, slots=True)
class Place:
    """Identifies the cluster and the Temporal that a command uses."""

    cluster: Cluster = None
    address: Address = None
    temporal_namespace: TemporalNamespace = None

    def required(self) -> str:
        """Return the cluster.

        Raises:
            typer.BadParameter: if none is named.
        """
        kubectl.connect(self.cluster, self.address)
        cluster = self.cluster or os.environ.get("HOLDFAST_CLUSTER")
        if not cluster:
            raise typer.BadParameter("which cluster? Set HOLDFAST_CLUSTER, or give --cluster", param_hint="--cluster")
        return cluster


HERE: Final = Place()


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command that expands each dataclass parameter into one option for each of its fields."""
    signature = inspect.signature(command, eval_str=True)
    groups: dict[str, Any] = {
        one.name: one.annotation for one in signature.parameters.values() if is_dataclass(one.annotation)
    }

    @wraps(command)
    def call(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{one.name: given.pop(one.name) for one in fields(group)})
        command(**given)

    options: list[inspect.Parameter] = []
    for one in signature.parameters.values():
        if one.name not in groups:
            options.append(one.replace(kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        hints = get_type_hints(groups[one.name], include_extras=True)
        options += [
            inspect.Parameter(
                each.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=each.default if each.default is not MISSING else inspect.Parameter.empty,
                annotation=hints[each.name],
            )
            for each in fields(groups[one.name])
        ]
    call.__dict__["__signature__"] = signature.replace(parameters=options)
    call.__annotations__ = {one.name: one.annotation for one in options}
    return call


class Chosen(NamedTuple):
    """The workload that the user named."""

    namespace: str
    name: str


def chosen(name: str, namespace: str | None) -> Chosen:
    """Read NAME, NAMESPACE/NAME or NAMESPACE/KIND/NAME, with or without --namespace.

    Raises:
        typer.BadParameter: if the two contradict each other, or there are more parts.
    """
    parts = name.split("/")
    kinds = {"appwrapper", *names.KINDS_IN_IDS}
    if len(parts) > 3 or not all(parts) or (len(parts) == 3 and parts[1] not in kinds):
        raise typer.BadParameter(f"{name!r}: expected NAME, NAMESPACE/NAME or NAMESPACE/KIND/NAME", param_hint="NAME")
    if len(parts) == 1:
        return Chosen(namespace or kubectl.namespace() or "default", name)
    if namespace not in {None, parts[0]}:
        raise typer.BadParameter(f"{name!r} is in another namespace than --namespace {namespace}", param_hint="NAME")
    return Chosen(parts[0], "/".join(parts[1:]))


def session(place: Place) -> AbstractAsyncContextManager[Holdfast]:
    """Return a context manager for a session with Temporal."""
    from holdfast.client import Holdfast

    kubectl.connect(place.cluster, place.address)
    return Holdfast.connect(place.address, place.temporal_namespace, place.cluster)


def with_run(named: Chosen, place: Place, ask: Callable[[Run], Awaitable[T]], then: str = "") -> T:
    """Call a function with the run of one workload, and return its result.

    Args:
        named: the workload.
        place: the cluster and the Temporal.
        ask: the function.
        then: what happens once a worker answers, printed if none does; empty if the result itself says so.
    """
    from holdfast.cli.common.silence import attended

    async def go() -> T:
        async with session(place) as holdfast:
            run = await holdfast.get(named.name, named.namespace)
            return await (attended(run, ask(run), then) if then else ask(run))

    return asyncio.run(go())


def exit_code_of(error: HoldfastError) -> int:
    """Return the exit code for an error."""
    if isinstance(error, WorkloadFailed) or (isinstance(error, EndedFirst) and error.failed):
        return EXIT_FAILED
    if isinstance(error, NotInTime):
        return EXIT_TIMEOUT
    if isinstance(error, NotReachable):
        return EXIT_UNREACHABLE
    return EXIT_REFUSED
