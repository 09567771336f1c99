"""Models that many workloads have alike are kept once: what is read from the same JSON is the same object."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

_MOST: Final = 256
"""Models kept; when there are more, all are forgotten, and read anew."""
_LONGEST: Final = 32 * 1024
"""Characters of JSON that are kept: what is longer is rare, and may be refused later."""


class Shared:
    """A wrap validator that reads the same JSON once, and returns that object again.

    Models are frozen, so sharing changes no behaviour; the JSON that `same` returns must not be changed. A policy takes
    28 KiB: with one for each workload, a worker that watches thousands would keep thousands that are equal.
    """

    def __init__(self) -> None:
        """Start with none."""
        self._known: dict[str, tuple[Any, Any]] = {}

    def __call__(self, value: Any, handler: Callable[[Any], Any]) -> Any:
        """Return the model that `handler` reads from this JSON object; anything else is left to it.

        Raises:
            Exception: as `handler` does; nothing is kept of what it refuses.
        """
        text = _text(value)
        if not text:
            return handler(value)
        kept = self._kept(text, value)
        if kept is not None:
            return kept[1]
        found = handler(value)
        if len(self._known) >= _MOST:
            self._known.clear()
        self._known[text] = (value, found)
        return found

    def same(self, value: Any) -> Any:
        """Return equal JSON that has been read before, so that this can be forgotten; this itself if there is none."""
        kept = self._kept(_text(value), value)
        return value if kept is None else kept[0]

    def _kept(self, text: str, value: Any) -> tuple[Any, Any] | None:
        kept = self._known.get(text)
        # Keys that are no texts look like texts in JSON.
        return kept if kept is not None and kept[0] == value else None


def _text(value: Any) -> str:
    try:
        text = json.dumps(value) if isinstance(value, dict) else ""
    except (TypeError, ValueError, RecursionError):
        return ""
    return text if len(text) <= _LONGEST else ""
