"""Changes frozen values by a copy in which the named fields differ."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel

M = TypeVar("M", bound=BaseModel)


def edit(value: M, **changes: Any) -> M:
    """Return a copy of the value with some fields changed.

    Raises:
        AttributeError: if a name is not a field, so that a misspelling cannot go unnoticed.
    """
    unknown = changes.keys() - type(value).model_fields.keys()
    if unknown:
        raise AttributeError(f"{type(value).__name__} has no field {', '.join(sorted(unknown))}")
    return value.model_copy(update=changes)
