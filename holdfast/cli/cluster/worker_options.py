"""The options of `holdfast worker`, which are the fields of its settings, and its run."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Annotated, Any, Final, get_args

import typer
from pydantic.fields import FieldInfo

from holdfast.worker.runtime.settings import Settings, load

_PANELS: Final = {
    "temporal_": "Temporal",
    "compatible_with": "Temporal",
    "deployment_name": "Temporal",
    "build_id": "Temporal",
    "codec_": "Temporal",
    "kube": "Kubernetes",
    "node_": "Kubernetes",
    "provisioner_": "Machines of nodes",
    "fence": "Machines of nodes",
    "rendezvous_": "Elastic gangs",
    "data_": "Data sets",
    "evidence_": "Evidence",
    "max_": "Limits",
    "grace": "Limits",
    "success_ttl_maximum": "Limits",
    "watch": "Limits",
    "health_": "Pages and logs",
    "metrics_": "Pages and logs",
    "log_": "Pages and logs",
}
"""The panel in `--help` for a setting, by the beginning of its name."""
_SHORT: Final = {"temporal_address": "--address", "kube_context": "--context"}
"""Second option names, as in other commands."""
_TYPES: Final[tuple[type[Any], ...]] = (bool, int, float, Path)
Config = Annotated[
    Path | None,
    typer.Option(help="TOML file with settings. Default: $HOLDFAST_CONFIG, else ./holdfast.toml if there is one."),
]


def run(config: Config = None, **flags: Any) -> None:
    """Run a worker with these settings."""
    settings = load(flags, config)

    # Report a wrong option before the SDK and the Kubernetes client are loaded.
    from temporalio.worker import UnsandboxedWorkflowRunner

    from holdfast.plugin import HoldfastPlugin
    from holdfast.worker import process

    raise typer.Exit(process.run(settings, UnsandboxedWorkflowRunner(), [HoldfastPlugin()]))


def _option(name: str, field: FieldInfo) -> inspect.Parameter:
    """Return a setting as an option; if the option is not given, the environment and the file decide."""
    kinds = {field.annotation, *get_args(field.annotation)}
    kind: Any = next((each for each in _TYPES if each in kinds), str)
    panel = next((panel for start, panel in _PANELS.items() if name.startswith(start)), None)
    # If an option declares a second name, it must declare its first name too.
    declared = (f"--{name.replace('_', '-')}", _SHORT[name]) if name in _SHORT else ()
    text = " ".join((field.description or "").partition("\n\n")[0].split())
    option = typer.Option(*declared, help=text, rich_help_panel=panel)
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, option]
    )


_CONFIG = inspect.Parameter("config", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Config)
run.__dict__["__signature__"] = inspect.Signature(
    [_CONFIG, *(_option(name, field) for name, field in Settings.model_fields.items())]
)
