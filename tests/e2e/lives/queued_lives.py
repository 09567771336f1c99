"""Lives of workloads that an admission queue lets in, for the crash harness (rows L9, L26, L27)."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from holdfast.client.connection import Place
from holdfast.client.entities import queue as queues
from holdfast.model import Workload
from holdfast.model.entities.queue import Queue, QueueStatus
from tests.e2e.ground.site import until
from tests.e2e.ground.space import Handle, Space
from tests.e2e.lives import lattice_lives as lattice

_OF: dict[str, queues.QueueRun] = {}
"""The queue of each workload, by its workflow's id: a queue has one workload here, and a life one queue."""


async def queued(space: Space, document: dict[str, Any] | str, quota: Mapping[str, str]) -> Workload:
    """Make a queue, and return a published document as a workload that it is to let in."""
    site, name = space.site, f"q{secrets.token_hex(3)}"
    made = Queue(name=name, cluster=site.cluster, quota=dict(quota))
    run = await queues.apply(site.client, Place(site.temporal_address, site.cluster), made)
    workload = site.read(document, space.namespace).model_copy(update={"queue": name, "queued": True})
    _OF[workload.workflow_id] = run
    return workload


async def comes_back_and_lets_go(space: Space, handle: Handle) -> None:
    """Be let in, lose its node, be let in again in a later cycle, complete, and leave the queue empty."""
    await lattice.loses_its_node(space, handle)
    found: list[QueueStatus] = []

    async def is_empty() -> bool:
        found[:] = [await _OF[handle.id].status()]
        return (found[0].admitted, found[0].waiting, found[0].used.get("pods")) == (0, 0, "0")

    await until(is_empty, 120, lambda: f"its queue is empty: {found}", pause=0.3)
    assert found[0].cycle >= 2, "it was let in twice, in one cycle each"
