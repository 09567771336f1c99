"""A workload's request to its cluster's worker before an attempt: to make its data sets ready (row L14)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from holdfast.model import Payload
from holdfast.model.calls.plan import Target
from holdfast.model.life.data import DataSet
from holdfast.model.spec.mount import Mount


class StageInput(Payload):
    """Fetch data sets until they are complete in the cache that nodes share.

    It may be repeated, and may run twice at once: existing data is not fetched again. A source that is not granted to
    the workload's namespace, a namespace where nothing may begin, and a worker that stages nothing, are refused
    (`Refused`, not retried).
    """

    target: Target
    mounts: tuple[Mount, ...]
    versions: dict[str, str] = {}
    """By mount: the digest with which the workload began. Data that is complete under it needs no store."""
    waits: Annotated[bool, Field(exclude_if=lambda value: value)] = True
    """Whether it waits where nothing may begin yet, so that this is no reason to refuse."""


class Staged(Payload):
    """Whether all data sets are ready, or why not."""

    sets: tuple[DataSet, ...] = ()
    """One for each mount, if all are ready."""
    fetched: int = 0
    """Bytes that came from the store."""
    away: str = ""
    """The mount whose source cannot be used now, and the error, or why nothing may begin; it is tried again later."""
    closed: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Whether nothing may begin yet, and no source was asked."""
    problem: str = ""
    """The fault of a data set; waiting does not fix it."""
