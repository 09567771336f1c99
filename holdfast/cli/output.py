"""How results reach the terminal: JSON and YAML as they are on the wire, tables for people."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer

from holdfast.cli.options import Output


def emit(document: Any, output: Output, text: Callable[[], str]) -> None:
    """Print a JSON-able document, or the text a person reads."""
    if output is Output.TABLE:
        typer.echo(text())
    else:
        typer.echo(dumped(document, output).rstrip("\n"))


def dumped(document: Any, output: Output) -> str:
    """Return the document as JSON or YAML."""
    if output is Output.YAML:
        import yaml

        return yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
    import json

    return json.dumps(document, indent=2, ensure_ascii=False)
