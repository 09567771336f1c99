"""Services on the real EndpointSlice controller: endpoints leave with the state, and are of one attempt (row L30)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from holdfast import names
from holdfast.activities.kube.client import Gone, Unreachable
from holdfast.local import Stack
from holdfast.worker.failpoints import Passing
from tests.e2e.crash import failpoints
from tests.e2e.crash.scene import pod
from tests.e2e.ground.site import appwrapper, open_site, until
from tests.e2e.ground.space import Handle, Space, open_space

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(400),
    pytest.mark.row("L30", level="e2e"),
    pytest.mark.asyncio(loop_scope="session"),
]
SLICE = ("discovery.k8s.io/v1", "EndpointSlice")
WEB = "web"
SERVING = {"Resuming", "Running"}
QUICK = {"failureGracePeriodDuration": "0s", "retryPausePeriodDuration": "0s"}


def served(**annotations: str) -> dict[str, Any]:
    """Two pods that are found by a Service of the same workload."""
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": WEB},
        "spec": {"selector": {"app": WEB}, "ports": [{"port": 80}]},
    }
    pods = [pod(name, labels={"app": WEB}, kwok_delete_delay="1s") for name in ("first", "second")]
    return appwrapper("train", {"template": service}, *pods, **{**QUICK, **annotations})


@dataclass
class Registry:
    """What clients of a Service were told over time: by each version of the cluster, which pods of which attempt."""

    slices: dict[str, tuple[str, frozenset[str]]] = field(default_factory=dict[str, tuple[str, frozenset[str]]])
    """Of each slice that lives: the attempt of its Service, and the uids of the pods that it lists."""
    told: list[tuple[int, frozenset[str], frozenset[str]]] = field(
        default_factory=list[tuple[int, frozenset[str], frozenset[str]]]
    )
    """From each version on: the attempts whose slices lived, and the pods that they listed."""

    def take(self, event: str, found: dict[str, Any]) -> None:
        metadata = found["metadata"]
        if event == "DELETED":
            self.slices.pop(metadata["uid"], None)
        else:
            pods = frozenset(one["targetRef"]["uid"] for one in found.get("endpoints") or () if one.get("targetRef"))
            self.slices[metadata["uid"]] = (metadata["labels"].get(names.LABEL_ATTEMPT, ""), pods)
        attempts = frozenset(attempt for attempt, _ in self.slices.values())
        listed = frozenset(uid for _, pods in self.slices.values() for uid in pods)
        self.told.append((int(metadata["resourceVersion"]), attempts, listed))

    @property
    def listed(self) -> frozenset[str]:
        return frozenset(uid for _, pods in self.slices.values() for uid in pods)


@asynccontextmanager
async def registry_of(space: Space) -> AsyncIterator[Registry]:
    """Watch the slices of a namespace from now on."""
    kept, kube = Registry(), space.site.kube
    listed = await kube.list(*SLICE, space.namespace)
    assert not listed["items"]
    version = listed["metadata"]["resourceVersion"]

    async def follow() -> None:
        nonlocal version
        while True:
            try:
                async for event in kube.watch(*SLICE, space.namespace, resource_version=version):
                    version = event["object"]["metadata"]["resourceVersion"]
                    if event["type"] in {"ADDED", "MODIFIED", "DELETED"}:
                        kept.take(event["type"], event["object"])
            except (Gone, Unreachable):
                await asyncio.sleep(0.1)

    task = asyncio.create_task(follow())
    try:
        yield kept
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def lists(space: Space, registry: Registry, attempt: int) -> None:
    """Wait until a Service's clients are sent to both pods of an attempt."""

    async def check() -> bool:
        pods = {life.uid for life in space.truth.of(attempt, "Pod") if life.died is None}
        return len(pods) == 2 and registry.listed == pods

    await until(check, 60, f"both pods of attempt {attempt} are listed")


async def held(space: Space, registry: Registry) -> None:
    """Check all that was told: of one attempt at a time, and nothing of one that serves no more."""
    await space.truth.settle()
    attempt_of = {life.uid: str(life.attempt) for life in space.truth.lives.values() if life.kind == "Pod"}
    services = [life for life in space.truth.lives.values() if life.kind == "Service"]
    assert services
    for version, attempts, pods in registry.told:
        assert len(attempts) <= 1, f"at {version} slices of attempts {sorted(attempts)} stood beside each other"
        assert {attempt_of[uid] for uid in pods} <= attempts, f"at {version} a pod of another attempt was listed"
    for status in space.truth.shown("train"):
        if status.phase not in SERVING:
            alive = [one.attempt for one in services if one.alive(status.version) and one.attempt == status.attempt]
            assert not alive, f"{status.phase} was told at {status.version} while its Service was there"


async def fails_once(space: Space, handle: Handle, registry: Registry) -> None:
    await space.reach(handle, "Running", 1)
    await lists(space, registry, 1)
    await space.fail_pod("train")
    await space.reach(handle, "Running", 2)
    await lists(space, registry, 2)
    await space.complete("train")
    assert (await space.ended(handle)).phase == "Succeeded"
    await held(space, registry)


async def test_L30_endpoints_leave_with_the_state_and_come_back_with_the_next_attempt(space: Space):
    async with registry_of(space) as registry:
        await fails_once(space, await space.submit(served()), registry)


async def test_L30_what_is_kept_of_a_failed_one_is_served_to_nobody(space: Space):
    async with registry_of(space) as registry:
        document = served(deletionOnFailureGracePeriodDuration="1h", retryLimit="0")
        handle = await space.submit(document)
        await space.reach(handle, "Running", 1)
        await lists(space, registry, 1)
        await space.fail_pod("train")
        await space.reach(handle, "Failed")

        async def empty() -> bool:
            return not registry.slices

        await until(empty, 30, "no slice is there any more")
        assert any(one["status"]["phase"] == "Running" for one in await space.pods("train")), "it is kept"
        assert not await space.site.objects("v1", "Service", space.namespace)
        await handle.signal(names.SIGNAL_RETRY, "once more")
        await space.reach(handle, "Running", 2)
        await lists(space, registry, 2)
        await handle.signal(names.SIGNAL_CANCEL, "seen enough")
        assert (await space.ended(handle)).phase == "Cancelled"
        await held(space, registry)


@pytest.mark.parametrize("point", ["http.delete.services.before:1", "http.delete.services.after:1"])
async def test_L30_a_worker_that_dies_as_they_leave_sends_nobody_to_an_old_attempt(
    stack: Stack, tmp_path: Path, point: str
):
    async with open_site(stack, tmp_path, prefix="r") as site:
        mortal = failpoints.Mortal(site, (Passing.parse(point),))

        async def life() -> None:
            async with open_space(site) as space, registry_of(space) as registry:
                await fails_once(space, await space.submit(served()), registry)

        await mortal.during(life())
        assert len(mortal.crashes) == 1, f"{point} was not passed"
