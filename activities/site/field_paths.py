"""Finds a component's fields in the document its author wrote, so that a refusal names a field that is there."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.errors import Problem
from holdfast.formats import place
from holdfast.model.calls.cluster import PrepareInput, RehearseInput

_LIST = "List"


def written(given: PrepareInput | RehearseInput, index: int, path: str) -> str:
    """Return a path of one component (`template.kind`) as one of the document: `spec.components[0].template.kind`.

    Each document format has its own paths. Plain manifests have no common root: there it is `Job train: kind`.
    """
    if given.target.source_kind != _LIST:
        return place(given.target.source_kind, [one.copies for one in given.plan], index, path)
    one = given.plan[index]
    title = f"{one.kind} {one.object_name}"
    inner = path.removeprefix("template").removeprefix(".")
    return f"{title}: {inner}" if inner else title


def rewritten(given: PrepareInput | RehearseInput, index: int, problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Return problems of one component with their paths as in the document."""
    return tuple(Problem(written(given, index, one.path), one.message, one.value, one.allowed) for one in problems)
