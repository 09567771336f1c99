"""Other hands scale a Deployment: what is expected follows its own spec, within what was declared (row D14)."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.model import Status
from tests.e2e.ground.site import appwrapper, until
from tests.e2e.ground.space import Handle, Space, pod_template

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]


def deployment(replicas: int) -> dict[str, Any]:
    template = pod_template(labels={"app": "serve"})
    del template["spec"]["restartPolicy"]
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": "serve"}}, "template": template}
    return {"template": {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "serve"}, "spec": spec}}


async def scaled(space: Space, handle: Handle, replicas: int, phase: str, expected: int) -> Status:
    """Scale as `kubectl scale` does, and wait until the workload says that it knows."""
    await space.patch("apps/v1", "Deployment", "serve", {"spec": {"replicas": replicas}})
    last: list[Status] = []

    async def knows() -> bool:
        last[:] = [await space.site.status(handle)]
        pods = last[0].pods
        return (last[0].phase, pods.expected) == (phase, expected) and pods.running >= expected

    await until(knows, 90, lambda: f"scaled to {replicas} it is {phase} with {expected}; last: {last}")
    return last[0]


@pytest.mark.row("D14", level="e2e")
async def test_D14_scaled_down_to_0_and_beyond_what_it_declared_a_deployment_is_never_reset(space: Space) -> None:
    handle = await space.submit(appwrapper("serve", deployment(3), warmupGracePeriodDuration="60s"))
    await space.reach(handle, "Running", 1)
    status = await scaled(space, handle, 0, "Pending", 0)
    assert status.reason == "Held"
    (quota,) = [one for one in status.conditions if one.type == "QuotaReserved"]
    assert quota.status, "whoever scaled it down may scale it up again"
    assert "Deployment serve is scaled to 0" in (await space.explain(handle)).why
    status = await scaled(space, handle, 5, "Running", 3)
    (quota,) = [one for one in status.conditions if one.type == "QuotaReserved"]
    assert "asks for 5 pods, 2 more than the declared 3" in quota.message
    await scaled(space, handle, 2, "Running", 2)
    status = await space.site.status(handle)
    assert (status.attempt, status.restarts, status.executions) == (1, 0, 1)
