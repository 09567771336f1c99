"""What Temporal's server counts as actions in one Temporal namespace: its own metric, which its cloud bills by."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from typing import Final

import aiohttp
from prometheus_client.parser import text_string_to_metric_families
from temporalio.client import Client

from holdfast.local import Stack
from holdfast.local.system.ports import LOOPBACK
from tests.e2e.ground.site import until

SORTS: Final = {
    "grpc_StartWorkflowExecution": "starts",
    "grpc_SignalWithStartWorkflowExecution": "starts",
    "command_ContinueAsNewWorkflowExecution": "starts",
    "command_ScheduleActivityTask": "activities",
    "activity_retry": "activities",
    "command_StartTimer": "timers",
    "grpc_SignalWorkflowExecution": "signals",
    "command_SignalExternalWorkflowExecution": "signals",
    "message_UpdateWorkflowExecution_Acceptance": "updates",
    "message_UpdateWorkflowExecution_Rejection": "updates",
    "command_UpsertWorkflowSearchAttributes": "columns",
    "grpc_RecordActivityTaskHeartbeat": "heartbeats",
    "grpc_QueryWorkflow": "queries",
}
UNBILLED: Final = frozenset({"command_BatchMarkers", "command_ModifyWorkflowProperties"})
"""Patches and memos: the server counts them, and the published list of billed actions has neither."""


QUIET: Final = 3.0
"""Seconds without another event after which nothing more comes."""


async def quiet(client: Client, *workflow_ids: str) -> None:
    """Wait until these workflows have no more to do; their descriptions are no actions."""
    loop = asyncio.get_running_loop()
    last, since = list[int](), loop.time()

    async def check() -> bool:
        nonlocal last, since
        described = [(await client.get_workflow_handle(each).describe()).raw_description for each in workflow_ids]
        found = [one.workflow_execution_info.history_length for one in described]
        if found != last:
            last, since = found, loop.time()
        return loop.time() - since >= QUIET

    await until(check, 60, f"nothing more happens in {workflow_ids}", pause=0.2)


async def counted(stack: Stack, namespace: str) -> Counter[str]:
    """Return the actions so far in a Temporal namespace, by their sort as in `bench.actions`.

    A server of many tests has a page of a hundred megabytes: look seldom.

    Raises:
        AssertionError: if the server counts a sort of action that this does not know.
    """
    url = f"http://{LOOPBACK}:{stack.state.ports['temporal-metrics']}/metrics"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        page = await answer.read()
    label = namespace.replace("-", "_").encode()  # As the server writes it.
    lines = re.findall(rb'^action\{[^\n]*namespace="%b"[^\n]*$' % label, page, re.MULTILINE)
    found = Counter[str]()
    for family in text_string_to_metric_families(b"\n".join([b"# TYPE action counter", *lines, b""]).decode()):
        for sample in family.samples:
            sort = sample.labels["action_type"]
            if sort not in UNBILLED:
                assert sort in SORTS, f"{sort}: neither billed nor not, by what is known here"
                found[SORTS[sort]] += int(sample.value)
    return found
