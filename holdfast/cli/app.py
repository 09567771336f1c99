"""The whole command line put together: which commands there are, and what an error does to the exit code."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import typer
from typer.core import TyperGroup

from holdfast.cli.cluster import codec, doctor, namespace, sweep, uninstall, worker
from holdfast.cli.common import about
from holdfast.cli.common.options import EXIT_REFUSED, exit_code_of
from holdfast.cli.entities import broker, graph, node, queue
from holdfast.cli.page import report, ui
from holdfast.cli.workloads import logs, read, simulate, steer, submit, validate, watch
from holdfast.errors import HoldfastError
from holdfast.model.words import printable


class Refusing(TyperGroup):
    """A command group that turns Holdfast's errors into one line and the exit code that ux.md gives them."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command.

        Raises:
            typer.Exit: with 1 for a failed workload, 2 for a refusal, 3 if something cannot be reached.
        """
        try:
            return super().invoke(ctx)
        except HoldfastError as error:
            typer.secho(printable(f"Error: {error}"), err=True, fg=typer.colors.RED)
            raise typer.Exit(exit_code_of(error)) from None
        except ValueError as error:
            from holdfast.worker.runtime.settings import SettingsError

            if not isinstance(error, SettingsError):
                raise
            typer.secho(printable(f"Error: {error}"), err=True, fg=typer.colors.RED)
            raise typer.Exit(EXIT_REFUSED) from None
        except KeyboardInterrupt:
            raise typer.Exit(130) from None


app = typer.Typer(
    cls=Refusing,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Keeps Kubernetes workloads going: each is one durable Temporal workflow.",
    epilog="Exit codes: 0, 1 the workload failed, 2 usage or refused, 3 Temporal or Kubernetes cannot be reached.",
)

_WORKLOADS = "Workloads"
_SETUP = "Setting up"

for group in (submit, validate, simulate, read, graph, watch, ui, report, logs, steer):
    group.add_to(app, _WORKLOADS)
app.add_typer(queue.app, name="queue", rich_help_panel=_WORKLOADS)
app.add_typer(broker.app, name="broker", rich_help_panel=_WORKLOADS)
app.add_typer(node.app, name="node", rich_help_panel=_WORKLOADS)
app.command(rich_help_panel=_SETUP)(worker.worker)
app.add_typer(namespace.app, name="namespace", rich_help_panel=_SETUP)
for group in (codec, doctor, sweep, uninstall, about):
    group.add_to(app, _SETUP)
if find_spec("holdfast.local") is not None:  # The container image has no local stack (row X15).
    from holdfast.cli.demo import basic, dev

    app.add_typer(dev.app, name="dev", rich_help_panel=_SETUP)
    basic.add_to(app, _SETUP)
