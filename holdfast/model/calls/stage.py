"""What a workload asks of its cluster's worker before an attempt: that its data sets lie ready (row L14)."""

from __future__ import annotations

from holdfast.model import Payload
from holdfast.model.calls.plan import Target
from holdfast.model.spec.mount import DataSet, Mount


class StageInput(Payload):
    """Have data sets lie complete in the cache that nodes share.

    May be repeated, and by two at once: what is there is not fetched again. A source that is not granted to the
    workload's namespace, and a worker that stages nothing, are refused (`Refused`, not retried).
    """

    target: Target
    mounts: tuple[Mount, ...]
    versions: dict[str, str] = {}
    """By mount: the digest that the workload has begun with. What lies complete under it needs no store."""


class Staged(Payload):
    """Whether all lies ready, or why not."""

    sets: tuple[DataSet, ...] = ()
    """One for each mount, where all lies ready."""
    fetched: int = 0
    """Bytes that came from the store."""
    away: str = ""
    """What cannot be used now, and how: it is tried again later."""
    problem: str = ""
    """What is wrong with a data set: no waiting mends it."""
