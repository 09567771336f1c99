"""Where a source file refuses, read from its syntax, and which of those places a test has reached, by tracing."""

from __future__ import annotations

import ast
import sys
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

Place = tuple[str, int, int]
"""A file, and the first and last line of a call."""
Lines = set[tuple[str, int]]


def places(
    files: Iterable[Path], calls: Collection[str], *, without: Collection[str] = (), saying: Collection[str] = ()
) -> dict[Place, str]:
    """Return each place that refuses, with the function it is in.

    Args:
        files: Where to look.
        calls: What is called where something is refused.
        without: Functions that are left out.
        saying: Words of calls that are left out.
    """
    found: dict[Place, str] = {}
    for file in files:
        source = file.read_text(encoding="utf-8")
        for function in ast.walk(ast.parse(source)):
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) or function.name in without:
                continue
            for node in ast.walk(function):
                if isinstance(node, ast.Call) and _called(node.func) in calls:
                    if any(words in (ast.get_source_segment(source, node) or "") for words in saying):
                        continue
                    found[str(file), node.lineno, node.end_lineno or node.lineno] = function.name
    return found


def _called(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def missed(given: dict[Place, str], run: Lines) -> list[str]:
    """Return the places that were not reached, as a person finds them."""
    reached = {file: {line for other, line in run if other == file} for file in {file for file, _ in run}}
    return [
        f"{Path(file).name}:{first} in {function}"
        for (file, first, last), function in given.items()
        if not reached.get(file, set()).intersection(range(first, last + 1))
    ]


@contextmanager
def lines_run(files: Iterable[Path]) -> Iterator[Lines]:
    """Note each line of these files that this thread runs."""
    wanted, run = {str(file) for file in files}, Lines()
    real: dict[str, str] = {}

    def each(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            run.add((real[frame.f_code.co_filename], frame.f_lineno))
        return each

    def entered(frame: FrameType, _: str, __: Any) -> Any:
        name = frame.f_code.co_filename
        if name not in real:
            real[name] = str(Path(name).resolve())
        return each if real[name] in wanted else None

    before = sys.gettrace()
    sys.settrace(entered)
    try:
        yield run
    finally:
        sys.settrace(before)
