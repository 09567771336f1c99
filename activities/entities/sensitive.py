"""Whether workloads are sensitive, from their own status: no object in the cluster shows it (rows L4, L15)."""

from __future__ import annotations

import asyncio
from collections.abc import Set
from datetime import timedelta
from typing import Final

from temporalio.client import Client, WorkflowQueryFailedError, WorkflowQueryRejectedError
from temporalio.common import QueryRejectCondition
from temporalio.service import RPCError, RPCStatusCode

from holdfast import names
from holdfast.model import Status

_AT_ONCE: Final = 8
_DEADLINE: Final = timedelta(seconds=10)


async def any_sensitive(client: Client, workloads: Set[str]) -> bool:
    """Whether any of some workloads is sensitive. One without an answer counts as such; one that has ended does not."""
    slots = asyncio.Semaphore(_AT_ONCE)

    async def ask(workload: str) -> bool:
        async with slots:
            return await _is_sensitive(client, workload)

    return any(await asyncio.gather(*(ask(one) for one in sorted(workloads))))


async def _is_sensitive(client: Client, workload: str) -> bool:
    handle = client.get_workflow_handle(workload)
    try:
        told = await handle.query(
            names.QUERY_STATUS,
            result_type=Status,
            reject_condition=QueryRejectCondition.NOT_OPEN,
            rpc_timeout=_DEADLINE,
        )
    except WorkflowQueryRejectedError:
        return False
    except WorkflowQueryFailedError:
        return True
    except RPCError as error:
        return error.status is not RPCStatusCode.NOT_FOUND
    return told.sensitive
