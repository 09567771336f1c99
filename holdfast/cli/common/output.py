"""Print results on the terminal: JSON and YAML as they are on the wire, tables for people."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import typer

from holdfast.cli.common import screen
from holdfast.cli.common.options import Output

if TYPE_CHECKING:
    from pydantic import BaseModel


def emit(value: Any, output: Output, text: Callable[[], str]) -> None:
    """Print a JSON-serializable value, or the text for people."""
    if output is Output.TABLE:
        with screen.wide(screen.columns()):
            laid_out = text()
        say(laid_out)
    else:
        typer.echo(dumped(value, output).rstrip("\n"))


def say(text: str, *, err: bool = False) -> None:
    """Print a text that may hold what others have said; no part of it moves the cursor (row X14).

    On a terminal, long lines go on below their words, and phases have a colour (row E8).
    """
    from holdfast.model.words import printable

    text = printable(text)
    if not err:
        with screen.wide(screen.columns()):
            text = screen.folded(text)
        text = screen.painted(text) if screen.has_colour() else text
    typer.echo(text, err=err)


def document(answer: BaseModel) -> Any:
    """Return an answer as plain JSON for programs, although Temporal stores a large one compressed (D7)."""
    from holdfast.model.packed import unpacked

    return unpacked(answer.model_dump(mode="json", by_alias=True))


def dumped(value: Any, output: Output) -> str:
    """Return the value as JSON or YAML."""
    if output is Output.YAML:
        from holdfast.formats.text import dump

        return dump(value)
    import json

    return json.dumps(value, indent=2, ensure_ascii=False)
