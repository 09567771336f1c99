"""The events of a script: for pods, nodes and the API server, and requests by users."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from holdfast.errors import describe
from holdfast.model import Duration, FailureClass, Model, format_duration

INIT_ERROR = "InitError"
"""The reason of a launch whose init container failed, as `kubectl get pods` shows it."""

COUNT_MAXIMUM = 1_000_000
PODS_MAXIMUM = 10_000
"""The most pods of a simulation; with more it would take hours."""


def count_or(word: str) -> BeforeValidator:
    """Return a validator for a whole number or the given word."""

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
    """Running pods fail with an exit code, or because of their node or Kubernetes."""

    component: str | None = None
    pods: Pods = 1
    exit_code: Annotated[int, Field(ge=1, le=255)] = 1
    reason: str = "Error"
    """The reason of the container, for example `OOMKilled`."""
    pod_reason: str = ""
    """The reason of the pod itself, for example `Evicted` or `NodeLost`; its own processes are then not to blame."""
    disruption: str = ""
    """The reason of its DisruptionTarget condition, for example `PreemptionByScheduler`."""
    node: str = ""
    """The node: pods on it fail first; a pod that fails on another node is reported on this one."""


class Succeed(Model):
    """Running pods succeed."""

    component: str | None = None
    pods: Pods = "all"


class NodeLost(Model):
    """A node stops responding; its pods cannot be stopped until it is back."""

    node: str
    lasts: Duration | None = Field(default=None, alias="for")
    """None: forever."""


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
    """The first three may pass, so Holdfast tolerates them for a time; the others are final."""
    lasts: Duration | None = Field(default=None, alias="for")


class Scale(Model):
    """Another client, or an autoscaler, changes the number of pods in a component's own spec."""

    component: str
    replicas: Annotated[int, Field(ge=0, le=PODS_MAXIMUM)]


class RollOut(Model):
    """Another client changes a Deployment's pod template: its pods are replaced, a quarter of them at a time."""

    component: str


class Delete(Model):
    """Another client deletes a component, or some of its pods."""

    component: str
    pods: Pods | None = None
    """None: the component itself."""


class ComponentFailed(Model):
    """A component's own controller marks it as failed."""

    component: str
    reason: str = "BackoffLimitExceeded"
    message: str = ""


class Blind(Model):
    """Holdfast cannot reach the API server; the cluster keeps running."""

    lasts: Duration = Field(alias="for")


class Stuck(Model):
    """Pods ignore their deletion until it is forced, or a finalizer holds them until it is removed."""

    component: str | None = None
    pods: Pods = 1
    finalizer: str = ""
    lasts: Duration | None = Field(default=None, alias="for")


class LaunchFails(Model):
    """Nodes cannot start new pods: an image, a volume or an init container is at fault, not the application."""

    component: str | None = None
    node: str = ""
    """The node; none: every node."""
    reason: Literal[
        "ErrImagePull", "InitError", "FailedMount", "CreateContainerConfigError", "CreateContainerError"
    ] = "ErrImagePull"
    exit_code: Annotated[int, Field(ge=1, le=255)] | None = None
    """The exit code of the init container; none: 1."""
    lasts: Duration | None = Field(default=None, alias="for")

    @model_validator(mode="after")
    def _exits(self) -> Self:
        if self.exit_code is not None and self.reason != INIT_ERROR:
            raise ValueError(f"exitCode: {self.exit_code}: expected only where reason is {INIT_ERROR}")
        return self


class NodeBroken(Model):
    """Node monitoring finds a node's hardware broken and marks the node; its pods keep running."""

    node: str
    condition: Literal[
        "HardwareFailure",
        "CperHardwareErrorFatal",
        "ReadonlyFilesystem",
        "XfsShutdown",
        "AcceleratedHardwareReady=False",
    ] = "CperHardwareErrorFatal"
    """The node condition that marks it: `type` or `type=status`."""
    lasts: Duration | None = Field(default=None, alias="for")


class ProbeFails(Model):
    """Running pods stop answering their probe, or answer with an error; new pods answer it."""

    component: str | None = None
    pods: Pods = 1
    status: Annotated[int, Field(ge=400, le=599)] | None = None
    """The status code of the answer to a GET; none: no answer in time."""
    lasts: Duration | None = Field(default=None, alias="for")


class Asked(Model):
    """A request by a user or a queue."""

    note: str = ""


class Preempt(Asked):
    """Another workload needs this workload's place."""

    within: Duration | None = None
    """How long to wait for a checkpoint at most; none: as long as the workload itself specifies."""


class Extend(Asked):
    """A user lets the workload run longer than its walltime."""

    by: Duration

    @field_validator("by")
    @classmethod
    def _is_more(cls, value: timedelta) -> timedelta:
        if not value:
            raise ValueError("0s: expected more, for example 1h")
        return value


class Requeue(Asked):
    """An operator reports that a node of the workload failed; the workload's rules decide."""

    cls: Literal[FailureClass.NODE_LOST, FailureClass.HARDWARE] = Field(default=FailureClass.NODE_LOST, alias="class")
    node: str = ""
    expected_requeue_count: Annotated[int, Field(ge=0, le=COUNT_MAXIMUM)] | None = None
    """The requeue count that the operator expects; none: the actual count."""


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
    """Return for how long an event lasts, as text."""
    return f" for {format_duration(span)}" if span is not None else ", for good"
