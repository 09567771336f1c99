"""An admission queue's request to its cluster's worker: signature and payloads of the look (row L9)."""

from __future__ import annotations

from holdfast.model import Payload
from holdfast.model.packed import PackedPayload


class QueueHolder(Payload):
    """A workload that a queue has admitted."""

    workload: str
    """Its workflow's id."""
    uid: str


class LookQueueInput(PackedPayload):
    """Find out which workloads exist, among those that a queue has admitted and those that wait for its admission.

    A workload whose workflow was terminated by hand never reports that it has released its quota. It is removed once
    its workflow is closed, and quorum reads show neither a pod nor an attempt of it in the cluster.
    """

    cluster: str
    queue: str
    holders: tuple[QueueHolder, ...]


class SeenQueue(PackedPayload):
    """The result of `LookQueueInput`."""

    kueue: bool
    """Whether the cluster serves Kueue's queues."""
    workloads: tuple[str, ...]
    """The ids of the open workflows that this queue admits."""
    gone: tuple[str, ...]
    """The uids of holders of which nothing is left."""
