"""The `version` command."""

from __future__ import annotations

import platform

import typer

from holdfast.cli.common.options import Format, Output
from holdfast.cli.common.output import emit


def version(output: Format = Output.TABLE) -> None:
    """Print the versions of Holdfast, its client libraries and Python."""
    found = versions()
    emit(found, output, lambda: "\n".join(f"{name:<12} {value}" for name, value in found.items()))


def versions() -> dict[str, str]:
    """Return the versions that matter in a bug report."""
    from importlib.metadata import version as installed

    return {
        "holdfast": installed("holdfast"),
        "temporalio": installed("temporalio"),
        "kubernetes": installed("kubernetes"),
        "pydantic": installed("pydantic"),
        "python": platform.python_version(),
    }


def add_to(app: typer.Typer, panel: str) -> None:
    """Add this file's command."""
    app.command(rich_help_panel=panel)(version)
