"""An admission queue's request to its cluster's worker: signature and payloads of the look (row L9)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

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
    asks_begun: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Whether it also asks which others have begun; releases before 0.3 do not know of that."""


class SeenQueue(PackedPayload):
    """The result of `LookQueueInput`."""

    kueue: bool
    """Whether Kueue decides in the whole cluster: it serves Kueue's queues, and it is not known in which namespaces."""
    kueue_namespaces: Annotated[tuple[str, ...], Field(exclude_if=lambda value: not value)] = ()
    """The namespaces in which Kueue decides: those with a LocalQueue (row F19)."""
    workloads: tuple[str, ...]
    """The ids of the open workflows that this queue admits."""
    gone: tuple[str, ...]
    """The uids of holders of which nothing is left."""
    begun: Annotated[tuple[str, ...], Field(exclude_if=lambda value: not value)] = ()
    """The uids of open workloads that are no holders, and are neither Pending nor Suspended."""
