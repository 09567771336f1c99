"""Checkpoints: how pods are asked to save their state, the result, and where the next attempt resumes (row L32)."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, model_validator

from holdfast.model.base import Duration, Model, Time
from holdfast.model.observation import Failure, Payload
from holdfast.model.vocabulary import Reason

URI_MAXIMUM = 1024
"""Maximum length, in characters, of the checkpoint URI that a pod names."""


class CheckpointProtocol(StrEnum):
    """How pods are asked to save their state, and how they answer."""

    ANNOTATION = "annotation"
    """The request is annotations on the pod, and so is the answer."""
    HTTP = "http"
    """The request is a POST to the pod's own address, and the answer is its response."""


class OnUnresponsive(StrEnum):
    """What happens to a workload that must make room and has not saved its state in time."""

    SUSPEND = "Suspend"
    """It is suspended like a workload without checkpoints: its pods get their termination grace."""
    KILL = "Kill"
    """It is suspended, and its pods are killed at once."""


class CheckpointState(StrEnum):
    """The state of one request."""

    NONE = "None"
    """No request has been made yet."""
    REQUESTED = "Requested"
    COMPLETE = "Complete"
    """All pods that ran have saved, and name the same place: an attempt may resume from there."""
    PARTIAL = "Partial"
    """Some pods have saved. No attempt resumes from it."""
    DISCARDED = "Discarded"
    """No pod has saved, or the checkpoint was no longer needed."""


class Checkpoint(Model):
    """How a workload saves its state on request, so that its next attempt resumes from there (row L32)."""

    protocol: CheckpointProtocol
    """How its pods are asked to save their state."""
    timeout: Annotated[Duration, Field(gt=timedelta(0))] = timedelta(minutes=10)
    """How long pods have, from the request on; capped by the operator's grace period maximum. Time in which the worker
    could not see the cluster does not count."""
    extension: Duration = timedelta(minutes=5)
    """How much longer pods get, once, if all that have not saved yet report that they are saving; 0s: no extension."""
    on_unresponsive: OnUnresponsive = OnUnresponsive.SUSPEND
    """What happens if pods do not answer in time."""
    components: tuple[str, ...] = ()
    """Components whose pods are asked; empty: all components with pods."""
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    """Port of the endpoint in each pod; only for protocol http."""
    path: Annotated[str, Field(min_length=1, max_length=256, pattern=r"^/[!-~]*$")] = "/checkpoint"
    """Path of the endpoint; only for protocol http."""

    @model_validator(mode="after")
    def _is_reachable(self) -> Self:
        if self.protocol is CheckpointProtocol.HTTP and self.port is None:
            raise ValueError("port: missing: protocol http asks each pod at its own address and this port")
        if self.protocol is CheckpointProtocol.ANNOTATION and self.port is not None:
            raise ValueError(f"port: {self.port}: expected none, since protocol annotation asks no endpoint")
        return self


class Answers(Payload):
    """The answers of the asked pods, as last observed."""

    at: Time
    """When the answers were reported."""
    running: int = 0
    """Pods that had not ended, whether they have saved or not."""
    done: int = 0
    """Pods that have saved."""
    working: int = 0
    """Pods that report that they are saving."""
    silent: int = 0
    """Pods that have not answered."""
    failed: int = 0
    """Pods that report that they cannot save, or that failed."""
    finished: int = 0
    """Pods that have succeeded: they have nothing to save."""
    gone: Annotated[int, Field(exclude_if=lambda value: not value)] = 0
    """Pods that were asked, and are gone without having saved, whatever runs in their place."""
    uri: str = ""
    """The place that the saved pods name, if they agree."""
    disagree: bool = False
    """Whether the saved pods name different places."""
    left: tuple[str, ...] = ()
    """Messages about the pods that have not saved, at most 4 of them."""


class CheckpointRequest(Payload):
    """One request to save, and its result."""

    number: int
    """Counted over the workload's life."""
    attempt: int
    state: CheckpointState = CheckpointState.REQUESTED
    reason: Reason
    """Preempted, SuspendRequested or CheckpointRequested."""
    at: Time
    running: int = 0
    """How many of the asked pods ran."""
    finished: int = 0
    """How many of the asked pods had succeeded by then."""
    members: Annotated[int, Field(exclude_if=lambda value: not value)] = 0
    """The most members of a round, if it is a gang with spares: pods beyond them wait for a place, run none of its
    programs, and cannot answer. 0: all pods answer."""
    extended_at: Time | None = None
    """When the pods got their extension."""
    answers: Answers | None = None
    conflict: Annotated[Failure | None, Field(exclude_if=lambda value: value is None)] = None
    """The walltime failure, if it came while pods were saving: they get their termination grace (row L19)."""
    ended_at: Time | None = None
    answered: bool = False
    """Whether the current suspension has waited for this request, and need not wait for another."""
    uri: str = ""
    why: str = ""
    """The result, in words."""

    @property
    def sent(self) -> int:
        """The number that pods are given: it does not go back with a memory that is restored or reset (row D45)."""
        return int(self.at.timestamp()) + self.number

    @property
    def savers(self) -> int:
        """How many pods are expected to save."""
        return min(self.running, self.members) if self.members else self.running


class Saved(Payload):
    """The last complete checkpoint: where the next attempt resumes."""

    uri: str
    number: int
    attempt: int
    """The attempt that made it."""
    at: Time
    step: Annotated[int | None, Field(exclude_if=lambda value: value is None)] = None
    """The step that its pods had told before; None if its steps are not followed (row P4)."""
