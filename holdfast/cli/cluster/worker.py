"""`holdfast worker`: run a worker process in the foreground. Its options are read from its settings once it is used."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperCommand


class _Command(TyperCommand):
    """Adds the options when the command is used, since listing commands must not load all settings."""

    def make_context(self, *args: Any, **extra: Any) -> Any:
        """Parse the arguments."""
        from holdfast.cli.cluster.worker_options import run

        app = typer.Typer(add_completion=False)
        app.command()(run)
        real = typer.main.get_command(app)
        self.params, self.callback = real.params, real.callback
        return super().make_context(*args, **extra)


def worker() -> None:
    """Run a worker, which decides (workflows), acts (cluster), waits (wait), watches (watch) and admits (admission).

    Every option may also be given as HOLDFAST_<OPTION> or as a line of the TOML file. Options win over the
    environment, which wins over the file. On SIGTERM it drains and exits with 0; a second signal ends it at once.
    """


def add_to(app: typer.Typer, panel: str) -> None:
    """Add this file's command."""
    app.command(cls=_Command, rich_help_panel=panel)(worker)
