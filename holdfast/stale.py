"""Repeat a query that came between an event and the workflow task that takes it in (see `workflows/clock.py`)."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any, Final

from temporalio.client import Interceptor, OutboundInterceptor, QueryWorkflowInput, WorkflowQueryFailedError

from holdfast import names

PATIENCE: Final = timedelta(seconds=3)
"""How long a query is repeated. Normally, the task is done within milliseconds."""
_PAUSE: Final = 0.1
"""Seconds between two tries."""


class AsksAgain(Interceptor):
    """A client's interceptor: a workflow that says `names.STALE` is asked again, for up to `PATIENCE`."""

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:
        """Wrap the calls of a client."""
        return _Asking(next)


class _Asking(OutboundInterceptor):
    async def query_workflow(self, input: QueryWorkflowInput) -> Any:
        """Return the answer.

        Raises:
            WorkflowQueryFailedError: if the query fails for another reason, or for this one until the end.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + PATIENCE.total_seconds()
        while True:
            try:
                return await super().query_workflow(input)
            except WorkflowQueryFailedError as error:
                if names.STALE not in str(error) or loop.time() >= until:
                    raise
            await asyncio.sleep(_PAUSE)
