"""The data sets that a workload reads, as they were staged for its life (row L14)."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import Field, field_validator

from holdfast.model.base import Time
from holdfast.model.observation import Payload

_DIGEST = re.compile(r"[0-9a-f]{64}")


def check_digest(value: str) -> str:
    """Return a data set's digest, checked.

    Raises:
        ValueError: if it is not a digest.
    """
    if not _DIGEST.fullmatch(value):
        raise ValueError(f"{value!r}: expected the 64 hexadecimal digits of a data set's digest")
    return value


class DataSet(Payload):
    """The version of a data set that a workload reads, as it was staged."""

    mount: str
    digest: str
    """The name of the folder that holds the files: exactly 64 hexadecimal digits."""
    files: int
    bytes: int

    @field_validator("digest")
    @classmethod
    def _is_digest(cls, value: str) -> str:
        return check_digest(value)


class Staging(Payload):
    """The state of the data sets that a workload reads, in its workflow's memory (row L14)."""

    staged: int = 0
    """The attempt for which all data sets are staged; 0: none yet."""
    sets: tuple[DataSet, ...] = ()
    """Their versions, fixed when all were first staged, for the workload's whole life."""
    tries: Annotated[int, Field(exclude_if=lambda value: not value)] = 0
    """How often in a row the store was unavailable, with nothing fetched in between."""
    away_since: Annotated[Time | None, Field(exclude_if=lambda value: value is None)] = None
    until: Annotated[Time | None, Field(exclude_if=lambda value: value is None)] = None
    """When staging is tried again."""
    why: Annotated[str, Field(exclude_if=lambda value: not value)] = ""
    """What was unavailable, and the error."""
    problem: Annotated[str, Field(exclude_if=lambda value: not value)] = ""
    """What is wrong with a data set, or with the request for it: waiting does not fix it."""
    refused: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Whether the problem is that the workload may not read it, or that this installation stages nothing."""
    late: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Whether the problem is that nothing might begin until the submission timeout was over (row S10)."""
