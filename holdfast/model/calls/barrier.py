"""The call that brings the pods of an attempt to their barrier, and lifts it (row J24)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from holdfast.model import Payload, Report
from holdfast.model.calls.plan import DataVolume, PlannedComponent, Target


class BarrierInput(Payload):
    """Bring all pods of an attempt to an in-place restart attempt, and let their programs start once all are there.

    A pod is there once the kubelet reports that its agent has started and waits, and that no program of it runs. Every
    change names the uid and the version of the pod as read. A pod that was asked to reach a later attempt stays as it
    is: a late call changes nothing.
    """

    target: Target
    attempt: int
    owner_uid: str
    plan: tuple[PlannedComponent, ...]
    """The components that were made, and are not complete."""
    in_place: int
    """The in-place restart attempt, at least 0."""
    grace: Annotated[float | None, Field(exclude_if=lambda value: value is None)] = None
    """Seconds for all pods to get there, without the time in which the API server did not answer. None: the programs
    start for the first time, and the call waits for pods that do not exist yet, for ever."""
    resume_from: Annotated[str | None, Field(exclude_if=lambda value: value is None)] = None
    """As in `MakeInput`."""
    data: Annotated[tuple[DataVolume, ...], Field(exclude_if=lambda value: not value)] = ()
    """As in `MakeInput`."""
    report: Report
    """The status applied first."""


class Lifted(Payload):
    """Whether the programs of all pods were allowed to start, or why not."""

    done: bool
    refused: str = ""
    """Why the pods cannot restart in place, so that the attempt must be recreated; or why they may not start at all."""
    renews: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Whether a new attempt may start where this one was refused, or its preparation says why not."""
