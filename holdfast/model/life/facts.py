"""Facts that both the memory and the status of a workload hold. A read loads these without the memory (row E13)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from holdfast.model.base import Time
from holdfast.model.observation import Payload
from holdfast.model.vocabulary import Phase, Reason
from holdfast.model.words import counted


class Cause(Payload):
    """An event that decided something, kept for users who ask why."""

    time: Time
    attempt: int
    phase: Phase
    reason: Reason
    message: str


class Claims(Payload):
    """Claims that still existed once an attempt was gone: the next one mounts them (row D25)."""

    names: tuple[str, ...] = ()
    """The first 16 by name."""
    total: int = 0

    def sentence(self) -> str:
        """Name them: `2 PersistentVolumeClaims (data-web-0, data-web-1)`."""
        more = f" and {self.total - len(self.names)} more" if self.total > len(self.names) else ""
        return f"{counted(self.total, 'PersistentVolumeClaim')} ({', '.join(self.names)}{more})"


class ExcludedNode(Payload):
    """A node that a workload avoids, why, and for how long (rows A17, U9)."""

    name: str
    since: Time
    until: Time
    why: str = ""
    required: bool = False
    """Whether it is not chosen even if no other node has room."""
    marked: bool = False
    """Whether it is avoided because an observer of nodes reported it, and not because of the workload's failures."""
    budget: Annotated[str, Field(exclude_if=lambda value: not value)] = ""
    """The budget that was charged since it could not start a pod: no other node releases it until that is renewed."""


class Barrier(Payload):
    """The barrier at which the pods of an attempt wait until all of them are there (row J24)."""

    attempt: int
    """The in-place restart attempt: how often the workload was restarted when its pods were last asked to begin."""
    since: Annotated[Time | None, Field(exclude_if=lambda value: value is None)] = None
    """Since when its pods are brought to the barrier; None once it is lifted."""
    until: Annotated[Time | None, Field(exclude_if=lambda value: value is None)] = None
    """When the attempt is recreated, if its pods are not at the barrier by then; None unless it restarts in place."""
    again: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Whether it was lifted before, and pods that were made again since wait at it."""

    @property
    def is_lifted(self) -> bool:
        """Whether all its pods were at the barrier, and their programs were allowed to start."""
        return self.since is None
