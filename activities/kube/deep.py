"""Reads JSON of the API server however deep it is nested: a custom resource keeps up to 10,000 levels (row D11)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

DEEPEST: Final = 200
"""Levels that are read. No kind of Kubernetes' own has so many; `json` raises at about 950."""
TOO_DEEP: Final = f"nested deeper than {DEEPEST} levels: not read"
"""Stands for what is nested deeper: the API server refuses a component with it where it knows the component's kind."""
_MARKS: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"|[\[\]{}]', re.DOTALL)


def loads(text: bytes) -> Any:
    """Return the value of a JSON text, with `TOO_DEEP` in the place of what is nested too deep to be read.

    So that one object of one tenant ends neither a list nor a watch for all others.

    Raises:
        JSONDecodeError: if it is no JSON.
    """
    try:
        return json.loads(text)
    except RecursionError:
        return json.loads(b"".join(_shallow(text)))


def _shallow(text: bytes) -> Iterator[bytes]:
    depth = kept = 0
    for mark in _MARKS.finditer(text):
        if mark[0] in {b"[", b"{"}:
            if depth == DEEPEST:
                yield text[kept : mark.start()]
            depth += 1
        elif mark[0] in {b"]", b"}"}:
            depth -= 1
            if depth == DEEPEST:
                yield json.dumps(TOO_DEEP).encode()
                kept = mark.end()
    yield text[kept:]
