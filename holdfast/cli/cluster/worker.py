"""`holdfast worker`: runs a worker process in the foreground. Its options are the fields of its settings."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Annotated, Any, Final, get_args

import typer
from pydantic.fields import FieldInfo

from holdfast.worker.runtime.settings import Settings, load

_PANELS: Final = {
    "temporal_": "Temporal",
    "deployment_name": "Temporal",
    "build_id": "Temporal",
    "kube": "Kubernetes",
    "node_": "Kubernetes",
    "provisioner_": "Machines of nodes",
    "fence": "Machines of nodes",
    "rendezvous_": "Elastic gangs",
    "data_": "Data sets",
    "max_": "Limits",
    "grace": "Limits",
    "success_ttl_maximum": "Limits",
    "watch": "Limits",
    "health_": "Pages and logs",
    "metrics_": "Pages and logs",
    "log_": "Pages and logs",
}
"""By the beginning of a setting's name: where `--help` shows it."""
_SHORT: Final = {"temporal_address": "--address", "kube_context": "--context"}
"""Second names, which other commands have too."""
_TYPES: Final[tuple[type[Any], ...]] = (bool, int, float, Path)
Config = Annotated[
    Path | None,
    typer.Option(help="TOML file with settings. Default: $HOLDFAST_CONFIG, else ./holdfast.toml if there is one."),
]


def worker(config: Config = None, **flags: Any) -> None:
    """Run a worker: it decides (workflows), acts (cluster), waits (wait), sees (watch) and lets in (admission).

    Every option may also be given as HOLDFAST_<OPTION> or as a line of the TOML file; options win over the
    environment, which wins over the file. SIGTERM drains and ends with 0; a second signal ends at once.
    """
    settings = load(flags, config)

    # A wrong option is told before the SDK and the Kubernetes client are loaded.
    from temporalio.worker import UnsandboxedWorkflowRunner

    from holdfast.plugin import HoldfastPlugin
    from holdfast.worker.process import run

    raise typer.Exit(run(settings, UnsandboxedWorkflowRunner(), [HoldfastPlugin()]))


def _option(name: str, field: FieldInfo) -> inspect.Parameter:
    """Return a setting as an option: not given, it is left to the environment and the file."""
    kinds = {field.annotation, *get_args(field.annotation)}
    kind: Any = next((each for each in _TYPES if each in kinds), str)
    panel = next((panel for start, panel in _PANELS.items() if name.startswith(start)), None)
    # Where it has a second name, its first must be named too.
    declared = (f"--{name.replace('_', '-')}", _SHORT[name]) if name in _SHORT else ()
    text = " ".join((field.description or "").partition("\n\n")[0].split())
    option = typer.Option(*declared, help=text, rich_help_panel=panel)
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, option]
    )


_CONFIG = inspect.Parameter("config", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Config)
worker.__dict__["__signature__"] = inspect.Signature(
    [_CONFIG, *(_option(name, field) for name, field in Settings.model_fields.items())]
)
