"""What a script may let happen: to pods, nodes and the API server, and what people ask for."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from holdfast.errors import describe
from holdfast.model import Duration, FailureClass, Model, format_duration

INIT_ERROR = "InitError"
"""Why a launch fails whose init container has failed, as `kubectl get pods` has it."""

COUNT_MAXIMUM = 1_000_000


def count_or(word: str) -> BeforeValidator:
    """Check a number that a word may stand for."""

    def check(value: Any) -> Any:
        number = isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= COUNT_MAXIMUM
        if not number and value != word:
            raise ValueError(
                f"expected a whole number from 1 to {COUNT_MAXIMUM:,}, or {word} (found {describe(value)})"
            )
        return value

    return BeforeValidator(check)


Pods = Annotated[int | Literal["all"], count_or("all")]


class Fail(Model):
    """Running pods end with an exit code, or as their node or Kubernetes says."""

    component: str | None = None
    pods: Pods = 1
    exit_code: Annotated[int, Field(ge=1, le=255)] = 1
    reason: str = "Error"
    """Of the container: `OOMKilled`."""
    pod_reason: str = ""
    """Of the pod itself: `Evicted`, `NodeLost`. Then its own processes are not to blame."""
    disruption: str = ""
    """Reason of its DisruptionTarget condition: `PreemptionByScheduler`."""
    node: str = ""
    """Where: pods on that node first; a pod that fails elsewhere is said to have been there."""


class Succeed(Model):
    """Running pods end well."""

    component: str | None = None
    pods: Pods = "all"


class NodeLost(Model):
    """A node falls silent; what runs there cannot be stopped until it is back."""

    node: str
    lasts: Duration | None = Field(default=None, alias="for")
    """None: for ever."""


class Unschedulable(Model):
    """New pods find no node."""

    component: str | None = None
    lasts: Duration | None = Field(default=None, alias="for")


class PodsRefused(Model):
    """Controllers may not create pods: a quota is used up."""

    component: str | None = None
    lasts: Duration | None = Field(default=None, alias="for")


class Refuse(Model):
    """The API server refuses to create components."""

    component: str | None = None
    reason: Literal["QuotaExceeded", "WebhookFailed", "Conflict", "Forbidden", "Invalid"] = "QuotaExceeded"
    """The first three may pass and are borne; the others are final."""
    lasts: Duration | None = Field(default=None, alias="for")


class Scale(Model):
    """Another hand, or an autoscaler, changes how many pods a component's own spec asks for."""

    component: str
    replicas: Annotated[int, Field(ge=0, le=COUNT_MAXIMUM)]


class RollOut(Model):
    """Another hand changes a Deployment's pod template: its pods are replaced, a quarter of them at a time."""

    component: str


class Delete(Model):
    """Another hand deletes a component, or pods of it."""

    component: str
    pods: Pods | None = None
    """None: the component itself."""


class ComponentFailed(Model):
    """A component's own controller calls it failed."""

    component: str
    reason: str = "BackoffLimitExceeded"
    message: str = ""


class Blind(Model):
    """Holdfast cannot reach the API server; the cluster goes on."""

    lasts: Duration = Field(alias="for")


class Stuck(Model):
    """Pods ignore their deletion: until they are forced, or, held by a finalizer, until it goes."""

    component: str | None = None
    pods: Pods = 1
    finalizer: str = ""
    lasts: Duration | None = Field(default=None, alias="for")


class LaunchFails(Model):
    """Nodes cannot start new pods: an image, a volume or an init container is at fault, not the application."""

    component: str | None = None
    node: str = ""
    """Where; none: on every node."""
    reason: Literal[
        "ErrImagePull", "InitError", "FailedMount", "CreateContainerConfigError", "CreateContainerError"
    ] = "ErrImagePull"
    exit_code: Annotated[int, Field(ge=1, le=255)] | None = None
    """Of the init container; none: 1."""
    lasts: Duration | None = Field(default=None, alias="for")

    @model_validator(mode="after")
    def _exits(self) -> Self:
        if self.exit_code is not None and self.reason != INIT_ERROR:
            raise ValueError(f"exitCode: {self.exit_code}: expected only where reason is {INIT_ERROR}")
        return self


class NodeBroken(Model):
    """Whoever watches over a node finds its hardware broken, and marks it; what runs there runs on."""

    node: str
    condition: Literal[
        "CperHardwareErrorFatal", "ReadonlyFilesystem", "XfsShutdown", "AcceleratedHardwareReady=False"
    ] = "CperHardwareErrorFatal"
    """By which it is told: `type` or `type=status`."""
    lasts: Duration | None = Field(default=None, alias="for")


class ProbeFails(Model):
    """Running pods do not answer their probe any more, or answer badly; new ones do."""

    component: str | None = None
    pods: Pods = 1
    status: Annotated[int, Field(ge=400, le=599)] | None = None
    """What a GET is answered with; none: no answer in time."""
    lasts: Duration | None = Field(default=None, alias="for")


class Asked(Model):
    """What a person or a queue asks for."""

    note: str = ""


class Preempt(Asked):
    """Another needs the workload's place."""

    within: Duration | None = None
    """How long a checkpoint is waited for at most; none: as long as the workload itself says."""


class Extend(Asked):
    """A person lets the workload run longer than its walltime."""

    by: Duration

    @field_validator("by")
    @classmethod
    def _is_more(cls, value: timedelta) -> timedelta:
        if not value:
            raise ValueError("0s: expected more, for example 1h")
        return value


class Requeue(Asked):
    """An operator says that a node of the workload failed: its rules decide."""

    cls: Literal[FailureClass.NODE_LOST, FailureClass.HARDWARE] = Field(default=FailureClass.NODE_LOST, alias="class")
    node: str = ""
    expected_requeue_count: Annotated[int, Field(ge=0, le=COUNT_MAXIMUM)] | None = None
    """How often it has been requeued as far as the operator knows; none: as often as it has been."""


Happening = (
    Fail
    | Succeed
    | NodeLost
    | NodeBroken
    | Unschedulable
    | LaunchFails
    | PodsRefused
    | Refuse
    | Scale
    | RollOut
    | Delete
    | ComponentFailed
    | ProbeFails
    | Blind
    | Stuck
    | Asked
)


def lasting(span: timedelta | None) -> str:
    """Say for how long something lasts."""
    return f" for {format_duration(span)}" if span is not None else ", for good"
