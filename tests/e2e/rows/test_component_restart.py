"""One component restarted alone at a rule's word (row U7), on real controllers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import yaml

from holdfast import names
from holdfast.model import OperationKind
from tests.e2e.ground.site import job, until
from tests.e2e.ground.space import Handle, Space, pod
from tests.e2e.lives.streams import everything, let_pods

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600), pytest.mark.asyncio(loop_scope="session")]
ROW = pytest.mark.row
BUDGETS = [{"name": "restart", "limit": 3}, {"name": "member", "limit": 1, "scope": "Member"}]
TIMINGS = {"failureGracePeriod": "2s", "admissionGracePeriod": "60s", "warmupGracePeriod": "120s"}


def document(*components: dict[str, Any], unit: str = "Component", charge: str = "restart", **timings: str) -> str:
    """Return our own document, whose rule restarts single components."""
    return yaml.safe_dump(
        {
            "apiVersion": names.API_VERSION,
            "kind": "Workload",
            "metadata": {"name": "train"},
            "spec": {
                "components": [{"name": one["template"]["metadata"]["name"], **one} for one in components],
                "policy": {
                    "timings": {**TIMINGS, "retryPausePeriod": "1s", "successTtl": "2s", **timings},
                    "rules": [
                        {
                            "name": "alone",
                            "match": {"scopes": ["Member", "Component"]},
                            "action": {"unit": unit, "charge": charge},
                        }
                    ],
                    "budgets": BUDGETS,
                },
            },
        }
    )


def of(found: dict[tuple[str, str], tuple[str, str]], *names_: str) -> dict[tuple[str, str], str]:
    return {key: uid for key, (uid, _) in found.items() if any(key[1].startswith(name) for name in names_)}


async def fail(space: Space, component: str) -> None:
    """Make one pod of a component fail."""
    labels = f"{names.LABEL_COMPONENT}={component}"
    pods = await space.site.objects("v1", "Pod", space.namespace, labels)
    name = next(one["metadata"]["name"] for one in pods if one["status"].get("phase") == "Running")
    await space.site.annotate("Pod", name, space.namespace, kwok_exit_code="137", kwok_fail="0s")


async def launched(space: Space, handle: Handle, component: str, launch: int) -> None:
    """Wait until all pods of this launch of a component run, and the workload with them."""
    labels = f"{names.LABEL_COMPONENT}={component},{names.LABEL_LAUNCH}={launch}"

    async def runs() -> bool:
        pods = await space.site.objects("v1", "Pod", space.namespace, labels)
        status = await space.site.status(handle)
        return bool(pods) and (status.phase, status.reason) == ("Running", "SufficientPodsReady")

    await until(runs, 120, f"launch {launch} of {component} runs")


@ROW("U7", level="e2e")
async def test_U7_only_the_job_that_failed_is_made_again(space: Space):
    handle = await space.submit(document(job("learner", 2), job("actor", 3), pod("lone")))
    await space.reach(handle, "Running", 1)
    before = await everything(space)
    await fail(space, "learner")
    await launched(space, handle, "learner", 1)
    after = await everything(space)
    assert of(after, "actor", "lone", "train-a1") == of(before, "actor", "lone", "train-a1"), "the others are untouched"
    assert not of(after, "learner").items() & of(before, "learner").items()
    status = await space.site.status(handle)
    assert (status.attempt, status.executions, status.restarts) == (1, 1, 1)
    assert [(one.name, one.used) for one in status.budgets] == [("restart", 1), ("member", 0)]
    (why,) = [one.message for one in status.causes if one.reason == "Replacing"]
    assert why.startswith("Job learner: learner-")
    assert "exited 137" in why
    assert "(rule alone)" in why
    acts = [act.name for act in await space.acts(handle)]
    assert (acts.count(OperationKind.REPLACE), acts.count(OperationKind.REMOVE)) == (1, 0)
    await space.truth.settle()
    space.truth.assert_told_truly("train")

    await space.complete("train")
    status = await space.ended(handle)
    assert (status.phase, status.executions, status.restarts) == ("Succeeded", 1, 1)


@ROW("U7", level="e2e")
async def test_U7_a_members_own_budget_used_up_fails_the_workload(space: Space):
    handle = await space.submit(
        document(pod("one"), pod("two"), unit="Member", charge="member", failureGracePeriod="20s")
    )
    await space.reach(handle, "Running", 1)
    await fail(space, "one")
    await launched(space, handle, "one", 1)
    await fail(space, "two")
    await launched(space, handle, "two", 1)
    assert (await space.site.status(handle)).restarts == 2
    await fail(space, "one")

    async def said() -> bool:
        return "its member budget is used up (1 of 1)" in str((await space.explain(handle)).next)

    await until(said, 60, "explain says what is to come")
    status = await space.ended(handle)
    assert (status.phase, status.reason, status.restarts) == ("Failed", "RetryLimitExceeded", 2)
    assert status.failure is not None
    assert status.failure.component == "one"


@ROW("U7", level="e2e")
async def test_U7_a_component_made_again_has_its_warm_up_anew(space: Space):
    """With no failure grace at all, a pod that does not run would restart the workload, had it not warmed up anew."""
    handle = await space.submit(document(pod("slow"), pod("other"), failureGracePeriod="0s"))
    await space.reach(handle, "Running", 1)
    await let_pods(space, 1)
    before = await everything(space)
    await fail(space, "slow")

    async def waits() -> bool:
        return "slow" not in {one["metadata"]["name"] for one in await space.pods()}

    await until(waits, 60, "it is gone, and may not come back yet")
    await asyncio.sleep(6)
    await space.delete("v1", "ResourceQuota", "pods")
    await launched(space, handle, "slow", 1)
    status = await space.site.status(handle)
    assert (status.attempt, status.restarts, status.budgets[0].used) == (1, 1, 1)
    assert of(await everything(space), "other") == of(before, "other")
