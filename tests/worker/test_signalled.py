"""Being told to stop, once and twice; and the gate of listed namespaces."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput

from holdfast import names
from holdfast.model import OperationKind, Phase, Reason, Report
from holdfast.model.calls.cluster import ReportInput, Target
from holdfast.plugin import with_passthrough
from holdfast.worker.process import EXIT_AT_ONCE, Process
from holdfast.worker.roles import NamespacesAllowed
from holdfast.worker.runtime.settings import Settings


async def test_the_first_signal_drains_and_the_second_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    exits: list[int] = []
    monkeypatch.setattr(os, "_exit", exits.append)
    process = Process(Settings(cluster="c"), with_passthrough(None))
    process._signalled(signal.SIGTERM)
    assert process.health.draining
    assert exits == []
    process._signalled(signal.SIGINT)
    assert exits == [EXIT_AT_ONCE]


class _Done(ActivityInboundInterceptor):
    def __init__(self) -> None:
        pass

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        return "done"


@pytest.mark.parametrize(
    ("activity", "namespace", "allowed"),
    [
        (OperationKind.PREPARE, "listed", True),
        (OperationKind.PREPARE, "other", False),
        (OperationKind.CREATE, "other", False),
        (OperationKind.REMOVE, "other", True),
        (OperationKind.OBSERVE, "other", True),
    ],
)
async def test_nothing_begins_outside_the_listed_namespaces(activity: str, namespace: str, allowed: bool) -> None:
    target = Target(cluster="c", namespace=namespace, name="w", workload_uid="u", workflow_id="w", shard=0, run_as="r")
    given = ReportInput(target=target, report=Report(sequence=1, phase=Phase.PENDING, reason=Reason.QUEUED))
    gate = NamespacesAllowed(["listed"]).intercept_activity(_Done())
    environment = ActivityEnvironment()
    environment.info = environment.default_info()
    from dataclasses import replace

    environment.info = replace(environment.info, activity_type=activity)

    async def run() -> Any:
        return await gate.execute_activity(ExecuteActivityInput(fn=run, args=[given], executor=None, headers={}))

    if allowed:
        assert await environment.run(run) == "done"
    else:
        with pytest.raises(ApplicationError, match="expected one of listed") as refusal:
            await environment.run(run)
        assert refusal.value.type == names.ERROR_REFUSED
        assert refusal.value.non_retryable
