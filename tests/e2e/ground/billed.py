"""What Temporal's server counts as actions in one Temporal namespace: its own metric, which its cloud bills by."""

from __future__ import annotations

from collections import Counter
from typing import Final

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from holdfast.local import Stack
from holdfast.local.system.ports import LOOPBACK

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


async def counted(stack: Stack, namespace: str) -> Counter[str]:
    """Return the actions so far in a Temporal namespace, by their sort as in `bench.actions`.

    Raises:
        AssertionError: if the server counts a sort of action that this does not know.
    """
    url = f"http://{LOOPBACK}:{stack.state.ports['temporal-metrics']}/metrics"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        text = await answer.text()
    found = Counter[str]()
    label = namespace.replace("-", "_")  # As the server writes it.
    # The page is long; only these lines are parsed.
    lines = (line for line in text.splitlines() if line.startswith("action{") and f'namespace="{label}"' in line)
    for family in text_string_to_metric_families("\n".join(["# TYPE action counter", *lines, ""])):
        for sample in family.samples:
            sort = sample.labels["action_type"]
            if sort not in UNBILLED:
                assert sort in SORTS, f"{sort}: neither billed nor not, by what is known here"
                found[SORTS[sort]] += int(sample.value)
    return found
