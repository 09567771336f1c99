"""After a failed activation, a workflow instance answers only with that failure until it is evicted (row D1)."""

from __future__ import annotations

import copy
from collections.abc import Callable

from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.worker import WorkflowInstance, WorkflowInstanceDetails, WorkflowRunner

Activate = Callable[[WorkflowActivation], WorkflowActivationCompletion]


class FailingOnce(WorkflowRunner):
    """Runs workflows so that one that has failed an activation fails all others, until it is dropped.

    The SDK's core drops such a workflow, but may put a query to it before. What the workflow would have done had it not
    failed would then be done beside the answer. Core takes no such answer, and waits for another for as long as the
    worker lives: nobody would carry out that workflow's tasks any more.
    """

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        """Create an instance that fails once and for all."""
        instance = super().create_instance(det)  # type: ignore[safe-super] of the class that it stands before
        instance.activate = failing_once(instance.activate)  # type: ignore[method-assign]
        return instance


def with_failing_once(runner: WorkflowRunner) -> WorkflowRunner:
    """Return the same runner with that rule; it stays of its class, with all that it holds."""
    if isinstance(runner, FailingOnce):
        return runner
    own = type(runner)
    ruled = copy.copy(runner)
    object.__setattr__(ruled, "__class__", type(f"FailingOnce{own.__name__}", (FailingOnce, own), {}))
    return ruled


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
