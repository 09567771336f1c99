"""Lives of JobSets, for the crash harness: several Jobs of one component, a start in order, a component made again."""

from __future__ import annotations

from typing import Any

from holdfast import names
from tests.e2e.ground.site import until
from tests.e2e.ground.space import Handle, Space
from tests.e2e.lives.lattice import NAME
from tests.e2e.peers.jobsets import jobset, replicated


def driven(rule: str, **spec: Any) -> dict[str, Any]:
    """Return a JobSet of a driver and two workers, which such a rule restarts once, gone as soon as it has ended."""
    jobs = [
        replicated(name, replicas=count, job={"backoffLimit": 0}) for name, count in (("driver", 1), ("workers", 2))
    ]
    for each in jobs:
        template = each["template"]["spec"]["template"]
        template["metadata"]["annotations"] = {"holdfast.dev/kwok-delete-delay": "1s"}
        template["spec"]["restartPolicy"] = "Never"
    rules = [{"action": rule, "targetReplicatedJobs": ["workers"]}, {"action": "FailJobSet"}]
    return jobset(NAME, *jobs, failurePolicy={"maxRestarts": 1, "rules": rules}, ttlSecondsAfterFinished=0, **spec)


async def _pods_of(space: Space, component: str, launch: int = 0) -> list[str]:
    """Return the running pods of a component's launch."""
    return [
        pod["metadata"]["name"]
        for pod in await space.pods(NAME)
        if pod["metadata"]["labels"].get(names.LABEL_COMPONENT) == component
        and int(pod["metadata"]["labels"].get(names.LABEL_LAUNCH, 0)) == launch
        and pod["status"].get("phase") == "Running"
    ]


async def _fails(space: Space, component: str) -> None:
    last = (await _pods_of(space, component))[-1]
    await space.site.annotate("Pod", last, space.namespace, kwok_exit_code="1", kwok_fail="0s")


async def is_restarted_by_a_rule(space: Space, handle: Handle) -> None:
    await space.reach(handle, "Running", 1)
    await _fails(space, "workers")
    await space.reach(handle, "Running", 2)
    (driver,) = await _pods_of(space, "driver")
    await space.site.annotate("Pod", driver, space.namespace, kwok_complete="0s")


async def restarts_its_workers_alone(space: Space, handle: Handle) -> None:
    await space.reach(handle, "Running", 1)
    await _fails(space, "workers")

    async def again() -> bool:
        return len(await _pods_of(space, "workers", launch=1)) == 2

    await until(again, 120, "both workers run again")
    await space.reach(handle, "Running", 1)
    await space.complete(NAME)


async def is_suspended_in_place(space: Space, handle: Handle) -> None:
    await space.reach(handle, "Running", 1)
    await handle.signal(names.SIGNAL_SUSPEND, "making room")
    await space.reach(handle, "Suspended", 1)
    await handle.signal(names.SIGNAL_RESUME, "room again")
    await is_restarted_by_a_rule(space, handle)
