"""What an admission queue asks its cluster's worker: signature and payloads of the look (row L9)."""

from __future__ import annotations

from holdfast.model import Payload
from holdfast.model.packed import PackedPayload


class QueueHolder(Payload):
    """A workload that a queue has let in."""

    workload: str
    """Its workflow's id."""
    uid: str


class LookQueueInput(PackedPayload):
    """Look who is there: of the workloads that a queue has let in, and of all that are to be let in by it.

    A workload whose workflow was terminated by hand never says that it holds nothing any more. It is counted out once
    its workflow is closed, and neither a pod nor an attempt of it is in the cluster, by quorum reads.
    """

    cluster: str
    queue: str
    holders: tuple[QueueHolder, ...]


class SeenQueue(PackedPayload):
    """What came of it."""

    kueue: bool
    """Whether the cluster serves Kueue's queues."""
    workloads: tuple[str, ...]
    """Ids of the workflows that are open and to be let in by this queue."""
    gone: tuple[str, ...]
    """Uids of holders of which nothing is left."""
