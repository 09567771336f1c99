"""What fits a terminal: its width, folded lines and tables, and colour, which is put on last (row E8).

In a pipe nothing is folded and nothing is coloured, so that programs read whole lines.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

NARROWEST: Final = 60
WIDEST: Final = 200
SENTENCE: Final = 100
"""The longest line, in characters, of a cause, of what is done now, and of what comes next, as far as clauses allow."""

_INDENT: Final = 32
"""Where the text of a line may begin, at most, if its next lines are to begin below it."""
_LEAST: Final = 10
"""The narrowest that a column is folded to."""
_GAP: Final = re.compile(r" {2,}(?=\S)")
_CHUNK: Final = re.compile(r" +|[^ ]+")
_COMMAND: Final = re.compile(r"`[^`\n]*`")
_NO_BREAK: Final = "\u00a0"
_GREEN, _YELLOW, _RED, _BLUE, _GREY = 32, 33, 31, 34, 90
_COLOURS: Final[dict[str, int]] = {
    **dict.fromkeys(("Running", "Succeeded", "ok"), _GREEN),
    **dict.fromkeys(("Failed", "NOT OK"), _RED),
    **dict.fromkeys(("Pending", "Starting", "Resuming"), _BLUE),
    **dict.fromkeys(("Suspended", "Cancelled"), _GREY),
    **dict.fromkeys(
        ("Finishing", "Checkpointing", "Resetting", "Suspending", "Terminating", "stale", "warning"), _YELLOW
    ),
}
_WORD: Final = re.compile(rf"(?m)(?:^|(?<=  )|(?<=PHASE ))({'|'.join(_COLOURS)})(?=  |$| \()")
"""A phase or a verdict that stands alone, as a cell does: words inside a sentence keep the colour of the sentence."""
_NEAR: Final = re.compile(r"\(in \d+s\)")
"""A deadline within a minute."""

_width: ContextVar[int | None] = ContextVar("width", default=None)


@contextmanager
def wide(columns: int | None) -> Generator[None]:
    """Lay out what is printed inside for so many columns; None: without folding."""
    before = _width.set(columns)
    try:
        yield
    finally:
        _width.reset(before)


def columns() -> int | None:
    """Return the width of the terminal, between 60 and 200; None in a pipe."""
    if not sys.stdout.isatty():
        return None
    return min(max(shutil.get_terminal_size().columns, NARROWEST), WIDEST)


def width() -> int | None:
    """Return the columns that what is printed now is laid out for; None: as many as it takes."""
    return _width.get()


def has_colour() -> bool:
    """Whether standard output is a terminal that shows colours, and the user has not set NO_COLOR."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def painted(text: str) -> str:
    """Return a text with colours: phases, verdicts and deadlines within a minute."""
    text = _WORD.sub(lambda found: f"\x1b[{_COLOURS[found[1]]}m{found[1]}\x1b[0m", text)
    return _NEAR.sub(lambda found: f"\x1b[1;{_YELLOW}m{found[0]}\x1b[0m", text)


def cells(text: str) -> int:
    """Return how many columns a text takes: a wide character takes two, a combining one none."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def cut(text: str, width: int) -> str:
    """Return as much of a text as so many columns hold."""
    if cells(text) <= width:
        return text
    if text.isascii():
        return text[:width]
    from rich.cells import set_cell_size

    return set_cell_size(text, width)


def folded(text: str) -> str:
    """Return a text whose long lines go on below the words after their label."""
    width = _width.get()
    if width is None:
        return text
    return "\n".join(_folded(line, width) if cells(line) > width else line for line in text.splitlines())


def _folded(line: str, width: int) -> str:
    start = max((gap.end() for gap in _GAP.finditer(line) if cells(line[: gap.end()]) <= _INDENT), default=0)
    indent = cells(line[:start])
    # A command is never broken, so that it can be copied: a long one has a line of its own, from the first column on.
    text = _COMMAND.sub(lambda found: found[0].replace(" ", _NO_BREAK), line[start:])
    whole = all(cells(found) <= width - indent for found in _COMMAND.findall(line))
    first, *others = _wrapped(text, width - indent, whole=whole)
    lines = [line[:start] + first, *(" " * indent + each for each in others)]
    lines = [each.strip() if cells(each) > width and _NO_BREAK in each else each for each in lines]
    return "\n".join(lines).replace(_NO_BREAK, " ")


def _wrapped(text: str, width: int, *, whole: bool) -> list[str]:
    """Fold a text between words; where `whole`, a word that is wider than a line is broken, as one without spaces is.

    `textwrap` does so by characters.
    """
    lines, line = list[str](), ""
    for chunk in _CHUNK.findall(text):
        if cells(line + chunk) <= width:
            line += chunk
        elif chunk.isspace():
            lines.append(line)
            line = ""
        elif whole and cells(chunk) > width:
            from rich.cells import chop_cells

            *full, line = chop_cells(line + chunk, width)
            lines += full
        else:
            lines += [line] if line else []
            line = chunk
    return [each.rstrip(" ") for each in (*lines, line) if each.strip(" ")] or [""]


def packed(clauses: Sequence[str], between: str) -> str:
    """Join clauses into as few lines as there are, each of at most 100 characters if its clauses are that short.

    At the end of a line only a semicolon stays.
    """
    lines: list[str] = []
    for clause in clauses:
        if lines and len(lines[-1]) + len(between) + len(clause) <= SENTENCE:
            lines[-1] += between + clause
        else:
            if lines and between == "; ":
                lines[-1] += ";"
            lines.append(clause)
    return "\n".join(lines)


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Lay out columns with two spaces between them.

    Where the terminal is narrower, cells fold between words; where that is not enough, each row becomes a few lines.
    """
    columns = list(zip(heads, *rows, strict=True))
    widths = [max(map(cells, column)) for column in columns]
    width, gaps = _width.get(), 2 * (len(widths) - 1)
    if width is None or sum(widths) + gaps <= width:
        return "\n".join(
            "  ".join(cell + " " * (width - cells(cell)) for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in (heads, *rows)
        )
    # No name is cut, and no cell folds into more than about three lines.
    words = [max((cells(word) for cell in column for word in cell.split()), default=0) for column in columns]
    least = [
        max(cells(head), min(_LEAST, each), each // 3, word)
        for head, each, word in zip(heads, widths, words, strict=True)
    ]
    if sum(least) + gaps <= width:
        while sum(widths) + gaps > width:
            widest = max(range(len(widths)), key=lambda each: widths[each] - least[each])
            widths[widest] -= 1
        return _grid(heads, rows, widths, width)
    return "\n".join(_record(heads, row, width) for row in rows)


def _grid(heads: Sequence[str], rows: Sequence[Sequence[str]], widths: Sequence[int], width: int) -> str:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="")
    for head, each in zip(heads, widths, strict=True):
        grid.add_column(Text(head), overflow="fold", width=each)
    for row in rows:
        grid.add_row(*map(Text, row))
    out = io.StringIO()
    Console(file=out, width=width, no_color=True, highlight=False).print(grid)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def _record(heads: Sequence[str], row: Sequence[str], width: int) -> str:
    """Return a row as lines: its cells, each after its head; a mark has none, and stands before the cell after it."""
    parts, mark = list[str](), ""
    for head, cell in zip(heads, row, strict=True):
        if not head:
            mark = cell
        elif cell:
            parts.append(" ".join(filter(None, (head, mark, cell))))
            mark = ""
    lines = parts[:1]
    for part in parts[1:]:
        if cells(lines[-1]) + 2 + cells(part) <= width:
            lines[-1] += f"  {part}"
        else:
            lines.append(f"  {part}")
    return "\n".join(lines)
