"""What Temporal says of pollers, and what `doctor` makes of it: a worker that was killed is not one that polls."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from temporalio.api.taskqueue.v1 import PollerInfo
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest, DescribeTaskQueueResponse

from holdfast import names
from holdfast.cli.cluster import checks


def temporal_that_remembers(*ages: float) -> Any:
    """A client whose Temporal remembers polls of so many seconds ago, in the messages of Temporal's own API."""
    pollers = []
    for age in ages:
        poller = PollerInfo(identity=f"4711-{age:g}@node")
        poller.last_access_time.FromDatetime(datetime.now(UTC).replace(tzinfo=None) - timedelta(seconds=age))
        pollers.append(poller)

    async def describe_task_queue(request: DescribeTaskQueueRequest) -> DescribeTaskQueueResponse:
        assert request.task_queue.name == names.QUEUE_WORKFLOWS
        return DescribeTaskQueueResponse(pollers=pollers)

    return SimpleNamespace(
        namespace="default", workflow_service=SimpleNamespace(describe_task_queue=describe_task_queue)
    )


async def looked_at(*ages: float) -> checks.Check:
    found = await checks._pollers(temporal_that_remembers(*ages), None)  # pyright: ignore[reportPrivateUsage]
    (check,) = [one for one in found if one.name == "worker: workflows"]
    return check


@pytest.mark.row("D33", level="pure")
@pytest.mark.parametrize("ages", [(95.0,), (280.0, 95.0)], ids=["one", "two"])
async def test_D33_a_worker_that_was_killed_is_not_one_that_polls(ages: tuple[float, ...]) -> None:
    check = await looked_at(*ages)
    assert not check.good
    assert "1m35s ago" in check.found
    assert "no failure is acted on" in check.found, "it says what is not served meanwhile"
    assert check.remedy == (
        "start one: `holdfast worker --roles workflows`; if workers run in a cluster, see "
        "`kubectl get pods -n holdfast-system`"
    )


@pytest.mark.row("D33", level="pure")
async def test_D33_a_worker_that_polls_is_counted_and_dead_ones_are_not() -> None:
    # A poll that waits for work is up to a minute old.
    check = await looked_at(61.0, 3.0, 95.0)
    assert check.good
    assert "2 polling" in check.found
    assert "last 3s ago" in check.found


@pytest.mark.row("D33", level="pure")
async def test_D33_where_nobody_has_ever_polled_that_is_said() -> None:
    check = await looked_at()
    assert not check.good
    assert "no poll of the task queue" in check.found
