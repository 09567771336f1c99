"""Questions to the person at the terminal; a script is never asked, and so never hangs."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def interactive() -> bool:
    """Whether somebody reads the question and can answer it."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def confirmed(question: str) -> bool:
    """Ask on standard error, and return whether the answer is yes; the default is no."""
    # `typer.confirm` writes a space to standard output, where programs read.
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in {"y", "yes"}
