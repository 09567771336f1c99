"""A submitted workload in kubectl before its first attempt: queued, suspended and refused (row E10)."""

from __future__ import annotations

import asyncio
import secrets
from typing import Any

import pytest
from temporalio.client import WorkflowFailureError

from holdfast import names
from holdfast.client.connection import Place
from holdfast.client.entities import queue as queues
from holdfast.model import Workload
from holdfast.model.entities.queue import Queue, StopPolicy
from tests.e2e.ground.site import appwrapper, until
from tests.e2e.ground.space import Space, pod

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(300),
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.row("E10", level="e2e"),
]


async def shows(space: Space, *words: str) -> None:
    """Wait until `kubectl get holdfast` prints one line with these words, or nothing if there are none."""
    printed = ""

    async def so() -> bool:
        nonlocal printed
        get = ("get", "holdfast", "--no-headers", "--ignore-not-found")
        printed = await asyncio.to_thread(space.site.stack.kubectl, "--namespace", space.namespace, *get)
        return set(words) <= set(printed.split()) if words else not printed

    await until(so, 90, lambda: f"kubectl shows {words}: {printed!r}", pause=0.2)


class Gate:
    """An admission queue that lets nothing in until it is told to."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self.name = f"q{secrets.token_hex(3)}"

    async def set(self, policy: StopPolicy) -> None:
        site = self._space.site
        queue = Queue(name=self.name, cluster=site.cluster, quota={"pods": "4"}, stop_policy=policy)
        await queues.apply(site.client, Place(site.temporal_address, site.cluster), queue)

    def read(self, component: dict[str, Any]) -> Workload:
        document = appwrapper("train", component)
        read = self._space.site.read(document, self._space.namespace)
        return read.model_copy(update={"queue": self.name, "queued": True})


async def uid(space: Space) -> str:
    return (await space.anchor("train"))["metadata"]["uid"]


async def test_E10_one_that_is_queued_is_seen_from_then_until_it_is_gone(space: Space):
    gate = Gate(space)
    await gate.set(StopPolicy.HOLD)
    handle = await space.submit(gate.read(pod("train")))
    await shows(space, "Pending", "Queued")
    early = await uid(space)
    assert not await space.pods()
    await gate.set(StopPolicy.NONE)
    await shows(space, "Running")
    assert await uid(space) == early, "its attempt belongs to the Anchor that has shown the wait"
    await handle.signal(names.SIGNAL_CANCEL, "over")
    await space.ended(handle)
    await shows(space)


async def test_E10_one_that_is_submitted_suspended_is_seen_and_its_deletion_cancels_it(space: Space):
    read = space.site.read(appwrapper("train", pod("train")), space.namespace)
    handle = await space.submit(read.model_copy(update={"suspend": True}))
    await shows(space, "Suspended")
    await space.delete(names.API_VERSION, names.ANCHOR_KIND, "train")
    status = await space.ended(handle)
    assert (status.phase, status.attempt) == ("Cancelled", 0)
    await shows(space)


async def test_E10_one_that_is_refused_once_it_is_let_in_says_so(space: Space):
    gate, component = Gate(space), pod("train")
    component["template"]["spec"]["containers"][0]["imagePullPolicy"] = "Sometimes"
    await gate.set(StopPolicy.HOLD)
    handle = await space.submit(gate.read(component))
    await shows(space, "Pending", "Queued")
    await gate.set(StopPolicy.NONE)
    with pytest.raises(WorkflowFailureError):
        await asyncio.wait_for(handle.result(), 90)
    await shows(space, "Failed", "Refused")
    anchor = await space.anchor("train")
    assert "imagePullPolicy" in anchor["status"]["message"]
    assert "finalizers" not in anchor["metadata"], "nothing keeps it, and its namespace can be deleted"
