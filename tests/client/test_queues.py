"""The queue of a submission: which is there, and which takes no more (row L9)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from temporalio.client import WorkflowExecutionStatus

from holdfast import names
from holdfast.client.connection import Place
from holdfast.client.entities.queue import Directory
from holdfast.errors import InvalidWorkload
from tests.client.conftest import a_workload

pytestmark = pytest.mark.row("L9", level="pure")


class Temporal:
    """Temporal with one queue that runs."""

    def __init__(self) -> None:
        self.closing = False

    def get_workflow_handle(self, workflow_id: str) -> Any:
        assert workflow_id == names.queue_id("dev", "gpus")

        async def memo() -> dict[str, Any]:
            return {names.MEMO_CLOSING: True} if self.closing else {}

        async def describe() -> Any:
            return SimpleNamespace(status=WorkflowExecutionStatus.RUNNING, memo=memo)

        return SimpleNamespace(describe=describe)


async def test_L9_a_queue_that_is_being_deleted_takes_no_workload_until_it_is_applied_again() -> None:
    temporal, workload = Temporal(), a_workload(queue="gpus")
    temporal.closing = True
    directory = Directory(cast(Any, temporal), Place("here", "default"))
    for one in (workload, workload.model_copy(update={"queued": True})):
        with pytest.raises(InvalidWorkload, match=r"queue: it is being deleted.*`holdfast queue apply FILE`.*'gpus'"):
            await directory.placed(one)
    temporal.closing = False
    assert (await directory.placed(workload)).queued, "a refusal is not cached"
