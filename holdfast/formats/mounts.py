"""Data sets as text, from an annotation or `--set mounts=...`: the same list as in Holdfast's own document."""

from __future__ import annotations

import textwrap
from typing import Any

from pydantic import TypeAdapter, ValidationError

from holdfast.errors import InvalidWorkload, Problem, problems_of
from holdfast.formats.text import documents
from holdfast.model.spec.mount import Mount

_MOUNTS: TypeAdapter[tuple[Mount, ...]] = TypeAdapter(tuple[Mount, ...])
_EXPECTED = "expected a list such as [{name: corpus, source: s3://datasets/corpus, path: /data/corpus}]"


def read_mounts(text: str, path: str) -> tuple[Mount, ...] | Problem:
    """Read data sets from YAML or JSON; on error return the first problem, with its path."""
    try:
        (found,) = documents(f"mounts:\n{textwrap.indent(text, '  ')}\n")
    except (InvalidWorkload, ValueError):
        return Problem(path, _EXPECTED, text)
    given: Any = found.content["mounts"]
    if not isinstance(given, list) or not given:
        return Problem(path, _EXPECTED, text)
    try:
        return _MOUNTS.validate_python(given)
    except ValidationError as error:
        return problems_of(error, Mount, path)[0]
