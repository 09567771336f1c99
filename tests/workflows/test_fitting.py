"""Signals and updates that nobody can read, as they are soon sent by hand: none of them stops a workload."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from temporalio.client import Client, WorkflowHandle, WorkflowUpdateFailedError
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from holdfast import names
from holdfast.model import Phase, Reason, Status
from holdfast.plugin import HoldfastPlugin
from holdfast.workflows.decoding import Unfit, fitted
from holdfast.workflows.workload import WorkloadWorkflow
from tests.e2e.ground.site import until
from tests.policy.lives.life import workload
from tests.workflows.entities.test_queue import CLUSTER, env
from tests.workflows.workload.test_workload import replays

__all__ = ["env"]
SIGNALS = sorted(WorkloadWorkflow.__temporal_workflow_definition.signals)  # type: ignore[attr-defined]
UPDATES = sorted(WorkloadWorkflow.__temporal_workflow_definition.updates)  # type: ignore[attr-defined]
GIVEN: list[list[Any]] = [[], [{"reason": "x"}], ["a", "b", "c"], [None], [17], ["x", "y"], [[]]]
"""What a person may send."""


@pytest_asyncio.fixture(loop_scope="module")
async def suspended(env: WorkflowEnvironment) -> AsyncIterator[WorkflowHandle[Any, Status]]:
    client = await Client.connect(
        env.client.service_client.config.target_host, plugins=[HoldfastPlugin(roles=["workflows"])]
    )
    spec = workload(suspend=True).model_copy(update={"cluster": CLUSTER})
    async with Worker(client, task_queue=names.QUEUE_WORKFLOWS):
        yield await env.client.start_workflow(
            names.WORKLOAD_WORKFLOW,
            spec.model_dump(mode="json"),
            id=spec.workflow_id,
            task_queue=names.QUEUE_WORKFLOWS,
            result_type=Status,
        )


@pytest.mark.temporal
@pytest.mark.timeout(300)
@pytest.mark.asyncio(loop_scope="module")
async def test_no_signal_or_update_that_cannot_be_read_stops_a_workload(suspended: WorkflowHandle[Any, Status]):
    harmless = {names.SIGNAL_CANCEL, names.SIGNAL_RESUME, names.SIGNAL_RETRY}
    count = 0
    for name in SIGNALS:
        for given in GIVEN:
            if name in harmless and len(given) == 0:
                continue  # That is understood: it would go on.
            if name in harmless and given == ["x"]:
                continue
            await suspended.signal(name, args=given)
            count += 1
    for name in UPDATES:
        for given in GIVEN[:4]:
            with pytest.raises(WorkflowUpdateFailedError):
                await asyncio.wait_for(suspended.execute_update(name, args=given), 90)
    status = await suspended.query(names.QUERY_STATUS, result_type=Status)
    assert status.phase is Phase.SUSPENDED
    told = [cause.message for cause in status.causes if cause.reason is Reason.SIGNAL_NOT_UNDERSTOOD]
    assert "signal observe was dropped: 0 values were given: expected observation" in told
    assert "signal preempt was dropped: reason: Input should be a valid string" in told
    assert "signal suspend was dropped: 3 values were given: expected reason, uid" in told
    uid = (await suspended.describe()).run_id  # It was submitted without one.
    assert f"signal suspend was dropped: it is meant for the workload of uid y, and this is {uid}" in told
    assert count > 60
    await suspended.signal(names.SIGNAL_CANCEL, "enough")

    async def obeys() -> bool:
        # No worker of its cluster runs, which would take its Anchor away.
        phase = (await suspended.query(names.QUERY_STATUS, result_type=Status)).phase
        return phase in {Phase.TERMINATING, Phase.CANCELLED}

    await until(obeys, 60, "it still does what it is told")
    await replays(suspended)


def test_what_fits_is_handed_on_as_its_handler_has_it() -> None:
    def preempt(self: Any, reason: str = "", within: float | None = None) -> None: ...

    assert fitted(preempt, ["x", 3.0]) == ["x", 3.0]
    assert fitted(preempt, ["x"]) == ["x"]
    assert fitted(preempt, []) == []
    with pytest.raises(Unfit, match="3 values were given: expected reason, within"):
        fitted(preempt, ["x", 3.0, 1])
    with pytest.raises(Unfit, match="reason: Input should be a valid string"):
        fitted(preempt, [{"reason": "x"}])
