"""The memory of a restarted queue: the workloads that it had admitted, as far as its histories show (row D2). Pure.

The queue's next looks at its cluster confirm each holder, and remove those of which nothing is left. The queue asks
each open workload what it holds, since a workload does not repeat messages that it sent while the queue was away. A
workload whose workflow was terminated cannot answer, and its pods may live.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.model.entities.queue import Queue, QueueItem, QueueNews, QueueState, Standing
from holdfast.policy.entities import queue as policy
from holdfast.policy.values.edit import edit


def rebuilt(queue: Queue, known: QueueState | None, news: Iterable[QueueNews]) -> QueueState:
    """Return the memory of a queue that has not seen its cluster yet.

    Args:
        queue: its document.
        known: the memory with which an earlier run began, if it can be read.
        news: the messages of workloads to that run and those after it, in their order.
    """
    holders = (
        {uid: edit(item, cycle=0) for uid, item in known.items.items() if item.admitted} if known is not None else {}
    )
    for message in news:
        if message.standing is Standing.HOLDS:
            before = holders.get(message.uid)
            since = message.submitted_at or (before.since if before is not None else None)
            if since is not None:
                holders[message.uid] = QueueItem(
                    workload=message.workload,
                    turn=message.turn,
                    admitted=True,
                    demand=message.demand,
                    priority=message.priority,
                    since=since,
                )
        else:
            holders.pop(message.uid, None)
    return edit(policy.begun(queue), items=holders, doubted=dict.fromkeys(holders, policy.SETTLING))
