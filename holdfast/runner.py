"""Makes a workflow instance with a failed activation return only that failure until it is evicted (row D1)."""

from __future__ import annotations

import copy
from collections.abc import Callable

from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.worker import WorkflowInstance, WorkflowInstanceDetails, WorkflowRunner

Activate = Callable[[WorkflowActivation], WorkflowActivationCompletion]


class FailingOnce(WorkflowRunner):
    """Runs workflows so that after one failed activation all further ones fail, until the workflow is evicted.

    The SDK's core evicts such a workflow, but may send it a query first. Its completion would also contain the
    commands that the workflow would have sent without the failure. Core rejects that, and waits for another completion
    for as long as the worker lives: no worker would run that workflow's tasks any more.
    """

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        """Create an instance whose first failure is final."""
        instance = super().create_instance(det)  # type: ignore[safe-super] of the class that it stands before
        instance.activate = failing_once(instance.activate)  # type: ignore[method-assign]
        return instance


def with_failing_once(runner: WorkflowRunner) -> WorkflowRunner:
    """Return a copy of the runner with that rule, in a subclass of its own class and with all its attributes."""
    if isinstance(runner, FailingOnce):
        return runner
    own = type(runner)
    ruled = copy.copy(runner)
    object.__setattr__(ruled, "__class__", type(f"FailingOnce{own.__name__}", (FailingOnce, own), {}))
    return ruled


def failing_once(activate: Activate) -> Activate:
    """Return an `activate` that repeats its first failure forever; it passes on only the eviction."""
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
