"""Decodes why a query failed: the SDK shows the message that stands in the answer, which is an encoded failure's."""

from __future__ import annotations

from typing import Any

from temporalio.api.errordetails.v1 import QueryFailedFailure
from temporalio.client import (
    Interceptor,
    OutboundInterceptor,
    QueryWorkflowInput,
    WorkflowQueryFailedError,
)
from temporalio.converter import DataConverter
from temporalio.service import RPCError


class DecodedQueryFailures(Interceptor):
    """Makes a client raise the message that the workflow gave."""

    def __init__(self, converter: DataConverter) -> None:
        """Prepare."""
        self._converter = converter

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:
        """Stand before the SDK's own client."""
        return _Outbound(next, self._converter)


class _Outbound(OutboundInterceptor):
    def __init__(self, next: OutboundInterceptor, converter: DataConverter) -> None:
        super().__init__(next)
        self._converter = converter

    async def query_workflow(self, input: QueryWorkflowInput) -> Any:
        try:
            return await super().query_workflow(input)
        except WorkflowQueryFailedError as error:
            message = await self._message(error.__context__)
            if not message:
                raise
            raise WorkflowQueryFailedError(message) from error

    async def _message(self, error: BaseException | None) -> str:
        if not isinstance(error, RPCError):
            return ""
        for detail in error.grpc_status.details:
            found = QueryFailedFailure()
            if detail.Unpack(found) and found.HasField("failure"):
                return str(getattr(await self._converter.decode_failure(found.failure), "message", ""))
        return ""
