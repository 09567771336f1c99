"""How results reach the terminal: JSON and YAML as they are on the wire, tables for people."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import typer

from holdfast.cli.common.options import Output

if TYPE_CHECKING:
    from pydantic import BaseModel


def emit(value: Any, output: Output, text: Callable[[], str]) -> None:
    """Print a JSON-able value, or the text a person reads."""
    if output is Output.TABLE:
        typer.echo(text())
    else:
        typer.echo(dumped(value, output).rstrip("\n"))


def document(answer: BaseModel) -> Any:
    """Return an answer as a program reads it: plain JSON, although Temporal is given a large one compressed (D7)."""
    from holdfast.model.packed import unpacked

    return unpacked(answer.model_dump(mode="json", by_alias=True))


def dumped(value: Any, output: Output) -> str:
    """Return the value as JSON or YAML."""
    if output is Output.YAML:
        import yaml

        return yaml.safe_dump(value, sort_keys=False, allow_unicode=True)
    import json

    return json.dumps(value, indent=2, ensure_ascii=False)
