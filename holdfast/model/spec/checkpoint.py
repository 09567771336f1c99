"""Checkpoints: how pods are asked to save their state, what came of it, where the next attempt goes on (row L32)."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, model_validator

from holdfast.model.base import Duration, Model, Time
from holdfast.model.observation import Failure, Payload
from holdfast.model.vocabulary import Reason

URI_MAXIMUM = 1024
"""Characters of what a pod names as the place of its checkpoint."""


class CheckpointProtocol(StrEnum):
    """By what way pods are asked to save their state, and answer."""

    ANNOTATION = "annotation"
    """The request is annotations on the pod, and so is the answer."""
    HTTP = "http"
    """The request is a POST to the pod's own address, and the answer is its response."""


class OnUnresponsive(StrEnum):
    """What becomes of a workload that is to make room and has not saved its state in time."""

    SUSPEND = "Suspend"
    """It is suspended as one without checkpoints is: its pods get their termination grace."""
    KILL = "Kill"
    """It is suspended, and its pods are killed at once."""


class CheckpointState(StrEnum):
    """What became of one request."""

    NONE = "None"
    """Nothing has been asked for yet."""
    REQUESTED = "Requested"
    COMPLETE = "Complete"
    """All pods that ran have saved, and name one place: an attempt may go on from there."""
    PARTIAL = "Partial"
    """Some have saved. It is never resumed from."""
    DISCARDED = "Discarded"
    """None has saved, or it was not needed any more."""


class Checkpoint(Model):
    """How a workload saves its state when it is asked to, so that its next attempt goes on from there (row L32)."""

    protocol: CheckpointProtocol
    timeout: Annotated[Duration, Field(gt=timedelta(0))] = timedelta(minutes=10)
    """How long pods have, from the request on; capped by the operator's grace period maximum. Time in which the cluster
    could not be seen does not count."""
    extension: Duration = timedelta(minutes=5)
    """How much longer they get, once, where all that have not saved yet say that they are at it; 0s: not at all."""
    on_unresponsive: OnUnresponsive = OnUnresponsive.SUSPEND
    components: tuple[str, ...] = ()
    """Whose pods are asked; empty: all that bring pods."""
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    """Of the endpoint in each pod, for the protocol http alone."""
    path: Annotated[str, Field(min_length=1, max_length=256, pattern=r"^/[!-~]*$")] = "/checkpoint"
    """Of the endpoint, likewise."""

    @model_validator(mode="after")
    def _is_reachable(self) -> Self:
        if self.protocol is CheckpointProtocol.HTTP and self.port is None:
            raise ValueError("port: missing: protocol http asks each pod at its own address and this port")
        if self.protocol is CheckpointProtocol.ANNOTATION and self.port is not None:
            raise ValueError(f"port: {self.port}: expected none, since protocol annotation asks no endpoint")
        return self


class Answers(Payload):
    """How the pods that are asked stood when they were last looked at."""

    at: Time
    """When it was told."""
    running: int = 0
    """Those that had not ended, done or not."""
    done: int = 0
    """Those that have saved."""
    working: int = 0
    """Those that say they are at it."""
    silent: int = 0
    """Those that have said nothing."""
    failed: int = 0
    """Those that say they cannot, or that ended badly."""
    finished: int = 0
    """Those that have succeeded: nothing of theirs is to be saved."""
    uri: str = ""
    """The place they name, if they agree."""
    disagree: bool = False
    """Whether those that have saved name different places."""
    left: tuple[str, ...] = ()
    """What is said of those that have not saved, at most 4 of them."""


class CheckpointRequest(Payload):
    """One request to save, and what came of it."""

    number: int
    """In the workload's life; by it pods tell a request from the one before."""
    attempt: int
    state: CheckpointState = CheckpointState.REQUESTED
    reason: Reason
    """Preempted, SuspendRequested or CheckpointRequested."""
    at: Time
    running: int = 0
    """How many pods ran, of those that are asked."""
    finished: int = 0
    """How many had succeeded by then."""
    extended_at: Time | None = None
    """When they got their extension."""
    answers: Answers | None = None
    conflict: Annotated[Failure | None, Field(exclude_if=lambda value: value is None)] = None
    """The end of the walltime, where it came while pods were saving: they have their termination grace (row L19)."""
    ended_at: Time | None = None
    answered: bool = False
    """Whether the suspension that stands has waited for it, and need wait for no other."""
    uri: str = ""
    why: str = ""
    """What it came to, in words."""


class Saved(Payload):
    """The last complete checkpoint: where the next attempt goes on."""

    uri: str
    number: int
    attempt: int
    """The attempt that made it."""
    at: Time
