"""A configuration that arrives together with a request to end: what came later counts (rows L9, L11). Pure.

The workflows are driven by activations as the SDK's core gives them, so that both arrive in one task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio import workflow
from temporalio.api.common.v1 import Payloads
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.common import MetricMeter, Priority, TypedSearchAttributes
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.converter import DefaultFailureConverter
from temporalio.worker import UnsandboxedWorkflowRunner, WorkflowInstance, WorkflowInstanceDetails

from holdfast import names
from holdfast.model.entities.broker import Broker, Weighed
from holdfast.model.entities.document import EntityDocument
from holdfast.model.entities.queue import Queue
from holdfast.workflows.entities.broker import CheckpointBroker
from holdfast.workflows.entities.queue import QueueWorkflow

NOW = datetime(2026, 1, 31, 2, 15, tzinfo=UTC)
CONVERTER = pydantic_data_converter.payload_converter
BROKER, QUEUE = Broker(cluster="dev"), Queue(name="gpus", cluster="dev", quota={"pods": "2"})
KINDS = pytest.mark.parametrize(
    ("kind", "document"),
    [
        pytest.param(CheckpointBroker, BROKER, id="broker", marks=pytest.mark.row("L11", level="pure")),
        pytest.param(QueueWorkflow, QUEUE, id="queue", marks=pytest.mark.row("L9", level="pure")),
    ],
)


class Life:
    """One workflow without a server; it has begun, and its first activity runs for ever."""

    def __init__(self, kind: type[Any], document: EntityDocument, *, patches: bool) -> None:
        self.document = document
        info = workflow.Info(
            attempt=1,
            continued_run_id=None,
            cron_schedule=None,
            execution_timeout=None,
            first_execution_run_id="run",
            headers={},
            namespace="default",
            original_execution_run_id="run",
            parent=None,
            root=None,
            priority=Priority.default,
            raw_memo={},
            retry_policy=None,
            run_id="run",
            run_timeout=None,
            search_attributes={},
            start_time=NOW,
            task_queue="q",
            task_timeout=timedelta(seconds=10),
            typed_search_attributes=TypedSearchAttributes.empty,
            workflow_id=document.workflow_id,
            workflow_start_time=NOW,
            workflow_type=document.workflow,
        )
        details = WorkflowInstanceDetails(
            payload_converter_factory=lambda: CONVERTER,
            failure_converter_class=DefaultFailureConverter,
            interceptor_classes=[],
            defn=workflow._Definition.must_from_class(kind),
            info=info,
            randomness_seed=0,
            extern_functions={"__temporal_get_metric_meter": lambda: MetricMeter.noop},
            disable_eager_activity_execution=True,
            worker_level_failure_exception_types=[],
            patch_activation_callback=lambda _: patches,
            last_completion_result=Payloads(),
            last_failure=None,
        )

        async def made() -> WorkflowInstance:
            return UnsandboxedWorkflowRunner().create_instance(details)

        self.instance = asyncio.run(made())
        first = self.task()
        begun = first.jobs.add().initialize_workflow
        begun.workflow_type, begun.workflow_id = document.workflow, document.workflow_id
        begun.arguments.extend(CONVERTER.to_payloads([self.document.model_dump(mode="json")]))
        assert [one for one in self.done(first) if one != "set_patch_marker"] == ["schedule_activity"]

    @staticmethod
    def task() -> WorkflowActivation:
        given = WorkflowActivation(run_id="run")
        given.timestamp.FromDatetime(NOW)
        return given

    def cancel(self, task: WorkflowActivation) -> None:
        told = task.jobs.add().signal_workflow
        told.signal_name = names.SIGNAL_CANCEL
        told.input.extend(CONVERTER.to_payloads(["not wanted"]))

    def configure(self, task: WorkflowActivation) -> None:
        asked = task.jobs.add().do_update
        asked.id = asked.protocol_instance_id = "u"
        asked.name, asked.run_validator = names.UPDATE_CONFIGURE, True
        asked.input.extend(CONVERTER.to_payloads([self.document.model_dump(mode="json")]))

    def looked(self, task: WorkflowActivation) -> None:
        """Have a broker's cycle be over, after which alone it ends; a queue ends before it has looked."""
        if isinstance(self.document, Broker):
            ended = task.jobs.add().resolve_activity
            ended.seq = 1
            ended.result.completed.result.CopyFrom(CONVERTER.to_payload(Weighed()))

    def done(self, task: WorkflowActivation) -> list[str]:
        """Return the kinds of commands that a task comes to."""
        completion = self.instance.activate(task)
        assert completion.HasField("successful"), completion.failed
        return [one.WhichOneof("variant") or "" for one in completion.successful.commands]


ENDS = "complete_workflow_execution"


@KINDS
@pytest.mark.parametrize(
    ("asked", "patches", "ends"),
    [
        pytest.param((Life.cancel, Life.configure), True, False, id="configured-last-goes-on"),
        pytest.param((Life.configure, Life.cancel), True, True, id="told-to-end-last-ends"),
        pytest.param((Life.cancel, Life.configure), False, True, id="without-the-patch-ends-as-it-did"),
    ],
)
def test_what_was_asked_for_last_counts(
    kind: type[Any],
    document: EntityDocument,
    asked: tuple[Callable[[Life, WorkflowActivation], None], ...],
    patches: bool,
    ends: bool,
) -> None:
    life = Life(kind, document, patches=patches)
    task = life.task()
    for ask in asked:
        ask(life, task)
    life.looked(task)
    assert (ENDS in life.done(task)) is ends


@pytest.mark.row("L11", level="pure")
def test_a_broker_that_is_configured_in_its_last_cycle_goes_on() -> None:
    """Its cycle takes minutes: the request to end came in an earlier task."""
    life = Life(CheckpointBroker, BROKER, patches=True)
    task = life.task()
    life.cancel(task)
    assert life.done(task) == []
    task = life.task()
    life.configure(task)
    assert ENDS not in life.done(task)
    task = life.task()
    life.looked(task)
    done = life.done(task)
    assert ENDS not in done
    assert "schedule_activity" in done, "all are weighed again at once"
