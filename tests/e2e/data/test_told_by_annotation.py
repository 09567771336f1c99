"""Steps that pods tell in an annotation, patched in the pods' place on fake nodes (rows P1, P2)."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from holdfast import names
from holdfast.model import Reason
from tests.e2e.ground.site import until
from tests.e2e.ground.space import Handle, Space, pod_template

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(400)]
ROW = pytest.mark.row


def training() -> dict[str, Any]:
    """Return a Job of two pods whose step is read each second, and may stand still for 30 s."""
    spec = {"parallelism": 2, "completions": 2, "backoffLimit": 0, "template": pod_template()}
    return {
        "schemaVersion": 1,
        "name": "train",
        "policy": {"timings": {"retryPausePeriod": "0s", "failureGracePeriod": "0s"}},
        "progress": {"source": "annotation", "period": "1s", "bound": "30s"},
        "components": [
            {
                "name": "main",
                "template": {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"}, "spec": spec},
            }
        ],
    }


async def tell(space: Space, pod: str, step: int) -> None:
    """Patch a pod's annotation, as its program would."""
    told = json.dumps({"step": step, "total": 1000})
    await space.patch("v1", "Pod", pod, {"metadata": {"annotations": {names.ANNOTATION_STEP: told}}})


async def stands_at(space: Space, handle: Handle, step: int) -> None:
    """Wait until the workload says at which step it is."""

    async def check() -> bool:
        return (await space.site.status(handle)).steps.startswith(f"step {step} of 1,000")

    await until(check, 90, f"it is known to be at step {step}")


@ROW("P1", level="e2e")
@ROW("P2", level="e2e")
async def test_P1_an_annotation_that_no_longer_moves_is_noticed_and_the_next_attempt_begins_anew(space: Space):
    handle = await space.submit(training())
    await space.reach(handle, "Running", 1)
    ahead, behind = sorted(pod["metadata"]["name"] for pod in await space.pods("train"))
    await tell(space, ahead, 40)
    await tell(space, behind, 39)
    await stands_at(space, handle, 40)
    await tell(space, ahead, 41)

    status = await space.reach(handle, "Running", 2, seconds=180)
    assert {each.name: each.used for each in status.budgets} == {"restart": 1}
    (cause,) = [one for one in status.causes if one.reason is Reason.RESETTING]
    stood = rf"{behind}: NoProgress on fake-\d+: step 41 of 1,000, no new step for \d+s; bound 30s \(as declared\) "
    assert re.match(stood, cause.message), f"{cause.message}; {behind} is behind"
    assert status.steps == "", "what attempt 1 told says nothing of attempt 2"

    for pod in await space.pods("train"):
        await tell(space, pod["metadata"]["name"], 7)
    await stands_at(space, handle, 7)
    await space.truth.settle()
    space.truth.assert_one_attempt_at_a_time("train")
