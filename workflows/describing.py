"""Writes a workflow's current details when somebody asks for them; Temporal's UI asks by a query of the SDK's own.

Written in each task, they took an eighth of the time that a workload's tasks took.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from temporalio import workflow
from temporalio.api.sdk.v1 import WorkflowMetadata
from temporalio.worker import (
    HandleQueryInput,
    Interceptor,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
)

DETAILS: Final = "current_details"
"""Name of the workflow method that returns them, as Markdown."""


class _Inbound(WorkflowInboundInterceptor):
    async def handle_query(self, input: HandleQueryInput) -> Any:
        answer = await super().handle_query(input)
        if isinstance(answer, WorkflowMetadata):
            details: Callable[[], str] | None = getattr(workflow.instance(), DETAILS, None)
            if details is not None:
                answer.current_details = details()
        return answer


class Describing(Interceptor):
    """Gives all workflows of a worker their current details."""

    def workflow_interceptor_class(self, input: WorkflowInterceptorClassInput) -> type[WorkflowInboundInterceptor]:
        """Return the interceptor that runs before each workflow's handlers."""
        return _Inbound
