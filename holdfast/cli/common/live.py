"""A last line on a terminal that is rewritten in place; nothing where there is no terminal."""

from __future__ import annotations

import shutil
from typing import TextIO

from holdfast.cli.common import screen


class LiveLine:
    """One line of a stream, overwritten by the next text."""

    def __init__(self, stream: TextIO, *, wanted: bool = True) -> None:
        self._stream = stream
        self.on = wanted and stream.isatty()
        """Whether anybody sees it. If not, nothing is ever written."""

    def show(self, text: str) -> None:
        """Replace the line, cut to the terminal's width."""
        if self.on:
            from holdfast.model.words import printable

            self._write(screen.cut(printable(text), shutil.get_terminal_size().columns - 1))

    def erase(self) -> None:
        """Remove the line, so that something else can be printed."""
        if self.on:
            self._write("")

    def _write(self, text: str) -> None:
        self._stream.write(f"\r\x1b[2K{text}")
        self._stream.flush()
