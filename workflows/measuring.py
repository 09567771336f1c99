"""Measures the histories of all workflows, as each run ends: the server ends a run whose history is too long."""

from __future__ import annotations

from typing import Any

from temporalio import workflow
from temporalio.exceptions import FailureError
from temporalio.worker import (
    ExecuteWorkflowInput,
    Interceptor,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
)

with workflow.unsafe.imports_passed_through():
    from holdfast import names


class Histories(Interceptor):
    """Records how long each run's history became; replay records nothing."""

    def workflow_interceptor_class(self, input: WorkflowInterceptorClassInput) -> type[WorkflowInboundInterceptor]:
        """Return what stands around each workflow."""
        return _Measured


class _Measured(WorkflowInboundInterceptor):
    async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:
        # Nothing else is caught: a workflow that leaves the worker's cache is cancelled too, and has not ended.
        try:
            result = await super().execute_workflow(input)
        except (workflow.ContinueAsNewError, FailureError):
            _record()
            raise
        _record()
        return result


def _record() -> None:
    info, meter = workflow.info(), workflow.metric_meter()
    events, size = info.get_current_history_length(), info.get_current_history_size()
    meter.create_histogram(names.METRIC_HISTORY_EVENTS, "Events in the history of a run that has ended.").record(events)
    meter.create_histogram(names.METRIC_HISTORY_BYTES, "Bytes of the history of a run that has ended.").record(size)
