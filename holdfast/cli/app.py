"""The whole command line put together: which commands there are, and what an error does to the exit code."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from holdfast import __version__
from holdfast.cli.cluster import about, archive, codec, doctor, namespace, sweep, uninstall, worker
from holdfast.cli.common import init
from holdfast.cli.common.options import EXIT_REFUSED, exit_code_of
from holdfast.cli.entities import broker, graph, node, queue
from holdfast.cli.page import report, ui
from holdfast.cli.submission import apply
from holdfast.cli.workloads import (
    goodput,
    listing,
    logs,
    read,
    selected,
    simulate,
    steer,
    submit,
    validate,
    watch,
)
from holdfast.errors import HoldfastError, one_line


class Refusing(TyperGroup):
    """A command group that turns Holdfast's errors into one line and the exit code that ux.md gives them."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take --verbose behind the command too, where people add it after an error; heed NO_COLOR.

        Raises:
            typer.BadParameter: if an argument, or a variable that stands for one, is not UTF-8 text.
        """
        if not ctx.resilient_parsing:
            _check_text(args)
        if os.environ.get("NO_COLOR"):
            ctx.color = False
        end = args.index("--") if "--" in args else len(args)
        if "--verbose" in args[:end]:
            args = ["--verbose", *(one for one in args[:end] if one != "--verbose"), *args[end:]]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command.

        Raises:
            typer.Exit: with 1 for a failed workload, 2 for a refusal, 3 if something cannot be reached, 4 for a
                timeout.
        """
        try:
            return super().invoke(ctx)
        except HoldfastError as error:
            _refuse(error, exit_code_of(error), ctx.params["verbose"])
        except ValueError as error:
            from pydantic import ValidationError

            from holdfast.worker.runtime.settings import SettingsError

            if isinstance(error, ValidationError):
                refused = HoldfastError(f"{error.title}: {one_line(error)}")
                refused.__cause__ = error
                _refuse(refused, EXIT_REFUSED, ctx.params["verbose"])
            if not isinstance(error, SettingsError):
                raise
            _refuse(error, EXIT_REFUSED, ctx.params["verbose"])
        except KeyboardInterrupt:
            raise typer.Exit(130) from None


def _check_text(args: list[str]) -> None:
    """Refuse bytes that are not UTF-8, which no server takes; only a file may have such a name."""
    variables = [(name, value) for name, value in os.environ.items() if name.startswith(("TEMPORAL_", "HOLDFAST_"))]
    for option, value in [*zip(["", *args], args, strict=False), *variables]:
        if not any("\udc80" <= character <= "\udcff" for character in value):
            continue
        assigned = value.startswith("--") and "=" in value
        name, text = value.split("=", 1) if assigned else (option, value)
        if os.path.lexists(text) or (name in {"-o", "--output"} and os.path.isdir(os.path.dirname(text) or ".")):
            continue
        shown = os.fsencode(text).decode("utf-8", "backslashreplace")
        hint = name if name.startswith(("-", "TEMPORAL_", "HOLDFAST_")) else None
        raise typer.BadParameter(f"'{shown}' is not UTF-8 text", param_hint=hint)


def _refuse(error: Exception, code: int, verbose: bool) -> NoReturn:
    """Print an error, and with --verbose the errors behind it, whose words are their libraries' own."""
    from holdfast.model.words import printable

    typer.secho(printable(f"Error: {error}"), err=True, fg=typer.colors.RED)
    cause = error.__cause__ if verbose else None
    while cause is not None:
        typer.secho(printable(f"caused by {type(cause).__name__}: {cause}"), err=True)
        cause = cause.__cause__
    raise typer.Exit(code) from None


app = typer.Typer(
    cls=Refusing,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Keeps Kubernetes workloads going: each is one durable Temporal workflow.",
    epilog="Exit codes: 0 done; 1 the workload failed; 2 wrong usage, or refused; 3 Temporal or Kubernetes cannot be "
    "reached; 4 not done within --timeout.\n\n"
    "For users of kubectl: get is list or status, describe is explain, delete is cancel.",
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"holdfast {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_version)
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Print what is behind an error, too.")] = False,
) -> None:
    pass


_WORKLOADS = "Workloads"
_SETUP = "Setting up"

for group in (
    *(submit, apply, init, validate, simulate, listing, read, goodput, graph),
    *(watch, ui, report, logs, selected, steer),
):
    group.add_to(app, _WORKLOADS)
app.add_typer(queue.app, name="queue", rich_help_panel=_WORKLOADS)
app.add_typer(broker.app, name="broker", rich_help_panel=_WORKLOADS)
app.add_typer(node.app, name="node", rich_help_panel=_WORKLOADS)
worker.add_to(app, _SETUP)
app.add_typer(namespace.app, name="namespace", rich_help_panel=_SETUP)
for group in (codec, doctor, sweep, archive, uninstall, about):
    group.add_to(app, _SETUP)
if find_spec("holdfast.local") is not None:  # The container image has no local stack (row X15).
    from holdfast.cli.demo import basic, dev

    app.add_typer(dev.app, name="dev", rich_help_panel=_SETUP)
    basic.add_to(app, _SETUP)
