"""The memory of a queue that is begun anew: whom it had let in, as far as its histories say so (row D2). Pure.

Each holder is confirmed by the queue's next looks at its cluster, which count out those of which nothing is left. A
workload that is open is asked for itself what it holds, since what it told the queue while that was away is not told
again; one whose workflow was terminated cannot say so, and its pods may live.
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
        known: what an earlier run began with, if that can be read.
        news: what workloads told that run and those after it, in their order.
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
