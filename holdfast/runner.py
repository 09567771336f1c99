"""The sandbox that workflows run in: one that has failed does nothing more until it is dropped (row D1)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.worker import WorkflowInstance, WorkflowInstanceDetails
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

Activate = Callable[[WorkflowActivation], WorkflowActivationCompletion]


class FailingOnce(SandboxedWorkflowRunner):
    """A sandbox in which a workflow that has failed an activation fails all others, until it is dropped.

    The SDK's core drops such a workflow, but may put a query to it before. What the workflow would have done had it not
    failed would then be done beside the answer. Core takes no such answer, and waits for another for as long as the
    worker lives: nobody would carry out that workflow's tasks any more.
    """

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        """Create an instance that fails once and for all."""
        instance = super().create_instance(det)
        instance.activate = failing_once(instance.activate)  # type: ignore[method-assign]
        return instance


def with_failing_once(runner: SandboxedWorkflowRunner) -> SandboxedWorkflowRunner:
    """Return the same sandbox with that rule; one of a class of its own stays of that class."""
    if isinstance(runner, FailingOnce):
        return runner
    own = type(runner)
    ruled = type(f"FailingOnce{own.__name__}", (FailingOnce, own), {})
    return ruled(**{one.name: getattr(runner, one.name) for one in dataclasses.fields(runner) if one.init})


def failing_once(activate: Activate) -> Activate:
    """Return an `activate` that answers with its first failure for ever; only that it is dropped is let through."""
    failures: list[WorkflowActivationCompletion] = []

    def activated(given: WorkflowActivation) -> WorkflowActivationCompletion:
        if failures and not any(job.HasField("remove_from_cache") for job in given.jobs):
            return _copy(failures[0])
        completion = activate(given)
        if completion.HasField("failed"):
            failures.append(_copy(completion))
        return completion

    return activated


def _copy(completion: WorkflowActivationCompletion) -> WorkflowActivationCompletion:
    copied = WorkflowActivationCompletion()
    copied.CopyFrom(completion)
    return copied
