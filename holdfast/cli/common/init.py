"""`holdfast init`: print a document to begin with."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

EXAMPLES: Final = Path(__file__).parent / "examples"


class Kind(StrEnum):
    """The documents that there are, each with a file of that name."""

    JOB = "job"
    JOBSET = "jobset"
    GANG = "gang"
    POLICY = "policy"


def init(kind: Annotated[Kind, typer.Argument(help="What to begin with.", show_default=False)]) -> None:
    """Print a commented document to begin with: holdfast init job > job.yaml."""
    typer.echo((EXAMPLES / f"{kind.value}.yaml").read_text(encoding="utf-8"), nl=False)


def add_to(app: typer.Typer, panel: str) -> None:
    """Add this file's command."""
    app.command(rich_help_panel=panel)(init)
