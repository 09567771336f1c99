"""Counts a cluster's workloads by phase for the metrics: a bounded number of questions, however many there are."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

import structlog
from temporalio.client import Client

from holdfast import names
from holdfast.model import Phase, Reason
from holdfast.worker.runtime.metrics import Metrics

EVERY: Final = 60.0
"""Seconds between two counts."""
REASONS: Final = (Reason.BLOCKED, Reason.QUEUED, Reason.STAGING, Reason.HELD)
"""Why a workload is Pending: each has its own number. The others count under no reason."""

Log: Any = structlog.stdlib.get_logger("holdfast.watch")


class Census:
    """The count of one cluster's workloads. Temporal groups by no attribute of ours, so each phase is a question."""

    def __init__(self, client: Client, cluster: str, metrics: Metrics) -> None:
        """Prepare, without counting anything yet."""
        self._client, self._cluster, self._metrics = client, cluster, metrics
        self._failed = False

    async def run(self) -> None:
        """Count until cancelled; then the numbers go, since another worker counts from now on.

        The next try may have begun here already: then they are its numbers.
        """
        self._metrics.counted_by = self
        try:
            while True:
                await self._try()
                await asyncio.sleep(EVERY)
        finally:
            if self._metrics.counted_by is self:
                self._metrics.workloads.clear()
                self._metrics.counted.set(0)

    async def count(self) -> None:
        """Count once.

        Raises:
            RPCError: if Temporal does not answer, or has no such search attributes.
        """
        found: dict[tuple[str, str], int] = {(phase.value, ""): await self._asked(phase) for phase in Phase}
        for reason in REASONS:
            found[Phase.PENDING.value, reason.value] = await self._asked(Phase.PENDING, reason)
        named = sum(found[Phase.PENDING.value, reason.value] for reason in REASONS)
        # Between two questions a workload may have moved on.
        found[Phase.PENDING.value, ""] = max(0, found[Phase.PENDING.value, ""] - named)
        for (phase, reason), count in found.items():
            self._metrics.workloads.labels(self._cluster, phase, reason).set(count)
        self._metrics.counted.set(time.time())

    async def _try(self) -> None:
        try:
            await self.count()
            self._failed = False
        except Exception as error:  # The watch goes on, whatever becomes of its metrics.
            # A number that is not known is not shown: an old one would be believed.
            self._metrics.workloads.clear()
            if not self._failed:
                Log.warning("workloads were not counted: tried again", why=str(error) or type(error).__name__)
            self._failed = True

    async def _asked(self, phase: Phase, reason: Reason | None = None) -> int:
        query = (
            f"WorkflowType = '{names.WORKLOAD_WORKFLOW}' AND ExecutionStatus = 'Running' "
            f"AND {names.SA_CLUSTER} = '{self._cluster}' AND {names.SA_PHASE} = '{phase.value}'"
        )
        if reason is not None:
            query += f" AND {names.SA_REASON} = '{reason.value}'"
        return (await self._client.count_workflows(query)).count
