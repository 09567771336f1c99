"""The ledger of a life with a failure and a suspension, beside what the containers and the audit log say (row P5)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
import pytest_asyncio

from holdfast import names
from tests.e2e.ground.held import open_real
from tests.e2e.ground.site import Site, appwrapper
from tests.e2e.ground.space import Space
from tests.e2e.ground.terminal import command
from tests.e2e.nodes.test_real_node import FOREVER, containers
from tests.e2e.witness.goodput import LATE

pytestmark = [pytest.mark.e2e, pytest.mark.real_node, pytest.mark.asyncio(loop_scope="session")]
EARLY = 4.0
"""Seconds by which a bucket may begin earlier than the witness says. News may come late: see `goodput.LATE`."""
MAIN = f"""trap 'sleep 2; exit 0' TERM
case $HOLDFAST_ATTEMPT in
1) sleep 10; exit 7;;
2) {FOREVER};;
3) sleep 8;;
esac"""
SIDE = f"trap 'sleep 2; exit 0' TERM; if [ $HOLDFAST_ATTEMPT = 3 ]; then sleep 8; else {FOREVER}; fi"


@pytest_asyncio.fixture(loop_scope="session")
async def real(shared_site: Site) -> AsyncIterator[Space]:
    """A namespace of pods that the kubelet can run."""
    async with open_real(shared_site) as space:
        yield space


def pod(name: str, script: str) -> dict[str, Any]:
    return {"template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": containers(script)}}


class Witness:
    """When the life of a workload took each step, by its containers and by the API server's audit log."""

    def __init__(self, space: Space, workload: str) -> None:
        self._space = space
        self._workload = workload
        self._requests = space.truth.requests()

    def created(self, attempt: int) -> datetime:
        return self._space.created("attempts", names.attempt_name(self._workload, attempt))

    def finished(self, attempt: int) -> datetime:
        """Return when the first container of an attempt finished, by its own time."""
        pods = (life.object["status"] for life in self._space.truth.of(attempt, "Pod"))
        return min(
            datetime.fromisoformat(one["containerStatuses"][0]["state"]["terminated"]["finishedAt"]) for one in pods
        )

    def told(self, attempt: int, phase: str) -> datetime:
        """Return when the API server was told that the last pod of an attempt is in a phase: a kubelet may be busy."""
        since, told = self.created(attempt), dict[str, datetime]()
        for one in self._requests:
            reached = one.body.get("status", {}).get("phase") == phase
            if (one.resource, one.subresource) == ("pods", "status") and reached and one.time > since:
                told.setdefault(one.name, one.time)
        return max(told[life.name] for life in self._space.truth.of(attempt, "Pod"))

    def removed(self, attempt: int) -> datetime:
        """Return when the worker first deleted something of an attempt."""
        return min(one.time for one in self._deletions(attempt) if one.worker)

    def gone(self, attempt: int) -> datetime:
        """Return when the last pod of an attempt was deleted for good, by its kubelet or the garbage collector."""
        return max(one.time for one in self._deletions(attempt) if one.resource == "pods")

    def _deletions(self, attempt: int) -> list[Any]:
        since = self.created(attempt)
        following = [self.created(one) for one in self._space.truth.attempts(self._workload) if one > attempt]
        until = min(following, default=datetime.max.replace(tzinfo=UTC))
        return [one for one in self._requests if one.verb.startswith("delete") and since < one.time < until]


@pytest.mark.row("P5", level="e2e")
async def test_P5_each_bucket_is_what_the_containers_and_the_audit_log_say(real: Space):
    document = appwrapper(
        "train",
        pod("main", MAIN),
        pod("side", SIDE),
        failureGracePeriodDuration="4s",
        retryPausePeriodDuration="3s",
        forcefulDeletionGracePeriodDuration="60s",
    )
    handle = await real.submit(document)
    await real.reach(handle, "Running", 2)
    await handle.signal(names.SIGNAL_SUSPEND, "making room")
    await real.reach(handle, "Suspended")
    await handle.signal(names.SIGNAL_RESUME)
    status = await real.ended(handle)
    assert (status.phase, status.attempt, status.restarts) == ("Succeeded", 3, 1)
    await real.truth.settle()
    ledger = json.loads(await command(real.site, "goodput", f"{real.namespace}/train", "-o", "json"))
    assert sum(ledger["milliseconds"].values()) == ledger["age"]
    seen = Witness(real, "train")
    steps = [
        ("queued", (await handle.describe()).start_time),
        ("starting", seen.created(1)),
        ("lost", seen.told(1, "Running")),
        ("detecting", seen.finished(1)),
        ("removing", seen.removed(1)),
        ("pausing", seen.gone(1)),
        ("starting", seen.created(2)),
        ("lost", seen.told(2, "Running")),
        ("removing", seen.removed(2)),
        ("suspended", seen.gone(2)),
        ("starting", seen.created(3)),
        ("productive", seen.told(3, "Running")),
        ("removing", seen.told(3, "Succeeded")),
    ]
    spans = ledger["spans"]
    assert [one["bucket"] for one in spans] == [bucket for bucket, _ in steps]
    counted = [*(datetime.fromisoformat(one["begin"]) for one in spans), datetime.fromisoformat(ledger["until"])]
    witnessed = [*(at for _, at in steps), seen.gone(3)]
    late = [(one - other).total_seconds() for one, other in zip(counted, witnessed, strict=True)]
    assert late[3] == 0, "the failure counts from the container's own time on, whenever the news of it came"
    assert all(-EARLY <= one <= LATE.total_seconds() for one in late), f"{late} s after {steps}"
    paid = {(one["cause"], one["node"]) for one in ledger["charges"] if one["bucket"] in {"detecting", "pausing"}}
    assert paid == {("App", "real")}
    assert {one["cause"] for one in ledger["spans"] if one["bucket"] == "suspended"} == {"SuspendRequested"}
    together = json.loads(await command(real.site, "goodput", "--node", "real", "-n", real.namespace, "-o", "json"))
    assert [one["name"] for one in together["workloads"]] == ["train"]
    assert together["milliseconds"]["pausing"] == ledger["milliseconds"]["pausing"]
