"""Finds who polls a task queue, and since when nobody does: Temporal lists a poller for minutes after its last poll."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.client import Client

from holdfast import names
from holdfast.model import format_duration

SILENCE: Final = timedelta(seconds=70)
"""A live worker polls at least once a minute, because Temporal holds a poll open that long. Ten more seconds allow for
a slow connection: a worker that has not polled for longer is gone."""
FORGOTTEN: Final = timedelta(minutes=5)
"""How long Temporal remembers a poller."""
WORKFLOW: Final = TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW
ACTIVITY: Final = TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY


@dataclass(frozen=True, slots=True)
class Polled:
    """Who polls one task queue, at one moment."""

    queue: str
    polling: int = 0
    """How many have polled within `SILENCE`."""
    last: datetime | None = None
    """The latest poll by any worker; None if Temporal remembers none."""
    identity: str = ""
    """Who polled last."""

    @property
    def served(self) -> bool:
        """Whether a worker is there."""
        return self.polling > 0

    def sentence(self, now: datetime) -> str:
        """Say who polls it, or since when nobody does: `last poll 95s ago, at 02:13:10 UTC`."""
        if self.last is None:
            return f"no poll of the task queue {self.queue} in the last {format_duration(FORGOTTEN)}"
        ago = format_duration(timedelta(seconds=max(0, round((now - self.last).total_seconds()))))
        if self.served:
            return f"{self.polling} polling the task queue {self.queue}, last {ago} ago"
        return f"last poll of the task queue {self.queue} {ago} ago, at {self.last:%H:%M:%S} UTC"


def how_to_serve(role: str, cluster: str = "") -> str:
    """Return what to do if no worker of a role polls: where workers are processes, and where a cluster runs them."""
    command = f"holdfast worker --roles {role}" + (f" --cluster {cluster}" if cluster else "")
    return f"start one: `{command}`; if workers run in a cluster, see `kubectl get pods -n {names.WORKER_NAMESPACE}`"


async def polled(client: Client, queue: str, kind: TaskQueueType.ValueType = WORKFLOW) -> Polled:
    """Ask Temporal who polls a task queue. It does not ask the workers: see `Run.silence` for a real answer.

    Raises:
        RPCError: if Temporal does not answer, or refuses.
    """
    from temporalio.api.taskqueue.v1 import TaskQueue
    from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest

    request = DescribeTaskQueueRequest(
        namespace=client.namespace, task_queue=TaskQueue(name=queue), task_queue_type=kind
    )
    answer = await client.workflow_service.describe_task_queue(request)
    return judged(queue, answer.pollers, datetime.now(UTC))


def judged(queue: str, pollers: Iterable[Any], now: datetime) -> Polled:
    """Interpret Temporal's list of pollers. Pure."""
    found = [(one.last_access_time.ToDatetime(tzinfo=UTC), str(one.identity)) for one in pollers]
    last, identity = max(found, default=(None, ""))
    return Polled(queue, sum(now - at <= SILENCE for at, _ in found), last, identity)
