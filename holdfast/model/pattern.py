"""Patterns on messages: RE2, so that no pattern or message from outside can block a worker.

Unanchored, as in the published JobSet API (row J16).
"""

from __future__ import annotations

import functools
from typing import Any, Protocol, cast

import re2  # pyright: ignore[reportMissingTypeStubs] - it has none


class Pattern(Protocol):
    """A compiled pattern."""

    def search(self, text: str) -> object | None:
        """Return a match anywhere in the text, or None."""
        ...


@functools.lru_cache(maxsize=1024)
def compiled(pattern: str) -> Pattern:
    """Return the compiled pattern.

    Raises:
        ValueError: if it is not a valid pattern, with the reason. Back references and look-around are not part of RE2.
    """
    library = cast("Any", re2)
    options = library.Options()
    options.log_errors = False
    try:
        return cast("Pattern", library.compile(pattern, options))
    except library.error as error:
        reason = error.args[0] if error.args else error
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise ValueError(f"{pattern!r} is no regular expression of RE2: {text}") from None
