"""Workloads brought to the middle of a phase and held there, by what holds them there in real clusters too."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from holdfast import names
from holdfast.activities.kube.client import NotFound
from holdfast.model import OperationKind
from tests.e2e.ground.site import appwrapper, job, until
from tests.e2e.ground.space import FOREIGN_FINALIZER, PENDING, STUBBORN, Handle, Space, pod
from tests.quotas import limited

PHASES = ("preparing", "creating", "starting", "running", "unhealthy", "removing", "forcing", "pausing")


async def _nothing() -> None:
    return


@dataclass
class Held:
    """A workload in the middle of a phase; `release` takes away what holds it there."""

    name: str
    handle: Handle
    restarts: int = 0
    release: Callable[[], Awaitable[None]] = field(default=_nothing)


async def hold(space: Space, phase: str, name: str) -> Held:
    """Bring a new workload into the middle of a phase."""
    match phase:
        case "preparing":
            return await _preparing(space, name)
        case "creating":
            return await _creating(space, name)
        case "starting":
            handle = await space.submit(appwrapper(name, job(name, labels=PENDING), warmupGracePeriodDuration="300s"))
            await space.reach(handle, "Resuming", 1)
            await _pods(space, name, "Pending")
            return Held(name, handle)
        case "running":
            handle = await space.submit(appwrapper(name, job(name)))
            await space.reach(handle, "Running", 1)
            return Held(name, handle)
        case "unhealthy":
            handle = await space.submit(appwrapper(name, pod(name), failureGracePeriodDuration="300s"))
            await space.reach(handle, "Running", 1)
            await space.fail_pod(name)
            await space.unhealthy(handle)
            return Held(name, handle)
        case "removing":
            # A busy machine may be late with what follows: then it finds the pause, and still the same attempt.
            waits = {"forcefulDeletionGracePeriodDuration": "8s", "retryPausePeriodDuration": "120s"}
            handle = await _resetting(space, name, **waits)
            await _stage(space, handle, "taking a live look, then deleting attempt 1")
            await _deleting(space, name)
            return Held(name, handle, restarts=1)
        case "forcing":
            return await _forcing(space, name)
        case "pausing":
            handle = await space.submit(
                appwrapper(name, pod(name), failureGracePeriodDuration="0s", retryPausePeriodDuration="300s")
            )
            await space.reach(handle, "Running", 1)
            await space.fail_pod(name)
            await _stage(space, handle, "pausing before the next attempt")
            return Held(name, handle, restarts=1)
        case "suspended":
            handle = await space.submit(appwrapper(name, job(name)))
            await space.reach(handle, "Running", 1)
            await handle.signal(names.SIGNAL_SUSPEND, "for now")
            await space.reach(handle, "Suspended")
            return Held(name, handle)
        case "succeeded":
            handle = await space.submit(appwrapper(name, job(name, complete="0s"), successTTLDuration="1h"))
            await space.reach(handle, "Succeeded")
            return Held(name, handle)
        case _:
            raise ValueError(phase)


async def _preparing(space: Space, name: str) -> Held:
    """What holds the preparation is an owner of the same name that somebody's finalizer does not let go."""
    owner = names.attempt_name(name, 1)
    labels = {names.LABEL_WORKLOAD_UID: "another", names.LABEL_SHARD: "0"}
    await space.make(
        {
            "apiVersion": names.API_VERSION,
            "kind": names.ATTEMPT_KIND,
            "metadata": {"name": owner, "labels": labels, "finalizers": [FOREIGN_FINALIZER]},
            "spec": {"workloadUid": "another", "workflowId": "another", "attempt": 1, "plan": []},
        }
    )
    await space.delete(names.API_VERSION, names.ATTEMPT_KIND, owner)
    handle = await space.submit(appwrapper(name, job(name)))
    await _stage(space, handle, "checking rights and creating 1 component of attempt 1")

    async def waits() -> bool:
        description = await handle.describe()
        pending = [one for one in description.raw_description.pending_activities if one.heartbeat_details.payloads]
        return any(b"waiting for the old attempt" in one.heartbeat_details.payloads[0].data for one in pending)

    await until(waits, 60, "the preparation waits for the old owner")

    async def release() -> None:
        await space.finalize(names.API_VERSION, names.ATTEMPT_KIND, owner)

    return Held(name, handle, release=release)


async def _creating(space: Space, name: str) -> Held:
    """What holds the creation is a quota: the first component is there, the second is not admitted."""
    await limited(space.site.kube, space.namespace, {"count/jobs.batch": "0"}, name="none")
    handle = await space.submit(appwrapper(name, pod(f"{name}-first"), job(name), admissionGracePeriodDuration="300s"))
    await _stage(space, handle, "checking rights and creating the 2 components of attempt 1")
    await _pods(space, name, "Running", least=1)

    async def release() -> None:
        with contextlib.suppress(NotFound):  # Two may be held by it, and either may be the first to take it away.
            await space.delete("v1", "ResourceQuota", "none")

    return Held(name, handle, release=release)


async def _resetting(space: Space, name: str, **annotations: str) -> Handle:
    components = [pod(name), pod(f"{name}-stubborn", labels=STUBBORN)]
    handle = await space.submit(appwrapper(name, *components, failureGracePeriodDuration="0s", **annotations))
    await space.reach(handle, "Running", 1)
    await space.site.annotate("Pod", name, space.namespace, kwok_fail="0s")
    await space.reach(handle, "Resetting", 1)
    return handle


async def _forcing(space: Space, name: str) -> Held:
    """What holds a forced deletion is a foreign finalizer."""
    components = [pod(name), pod(f"{name}-held", finalizers=[FOREIGN_FINALIZER])]
    handle = await space.submit(
        appwrapper(name, *components, failureGracePeriodDuration="0s", forcefulDeletionGracePeriodDuration="1s")
    )
    await space.reach(handle, "Running", 1)
    await space.site.annotate("Pod", name, space.namespace, kwok_fail="0s")

    async def forcing() -> bool:
        return any(await space.acts(handle, OperationKind.FORCE_REMOVE))

    await until(forcing, 60, "it is being forced out")

    async def release() -> None:
        with contextlib.suppress(NotFound):
            await space.finalize("v1", "Pod", f"{name}-held")

    return Held(name, handle, restarts=1, release=release)


async def _stage(space: Space, handle: Handle, words: str) -> None:
    async def check() -> bool:
        return (await space.explain(handle)).now.startswith(words)

    await until(check, 60, f"{handle.id}: {words}")


async def _deleting(space: Space, name: str) -> None:
    """Wait until a reset has begun to delete: one that has only looked is uncharged if it is broken off."""
    owner = names.attempt_name(name, 1)

    async def check() -> bool:
        found = await space.site.kube.find(names.API_VERSION, names.ATTEMPT_KIND, owner, space.namespace)
        return found is None or "deletionTimestamp" in found["metadata"]

    await until(check, 60, f"{owner} is being deleted")


async def _pods(space: Space, name: str, phase: str, least: int = 2) -> None:
    async def check() -> bool:
        found = [each for each in await space.pods(name) if each["status"].get("phase") == phase]
        return len(found) >= least

    await until(check, 60, f"{least} pods of {name} are {phase}")
