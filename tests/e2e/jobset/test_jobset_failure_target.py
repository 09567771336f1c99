"""A Job that is about to fail is decided on before its last pod has ended, where the JobSet asks for that (row J27)."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from holdfast.formats.jobset.document import FAIL_ON
from tests.e2e.ground.space import Space
from tests.e2e.jobset.jobset_life import INDEX, reach
from tests.e2e.nodes.test_real_node import FOREVER, containers
from tests.e2e.nodes.test_real_node import real as real

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.real_node,
    pytest.mark.timeout(600),
    pytest.mark.asyncio(loop_scope="session"),
]
NAME = "early"
SCRIPT = f"""
[ "$HOLDFAST_ATTEMPT" = 1 ] && [ "$JOB_COMPLETION_INDEX" = 0 ] && sleep 1 && exit 1
trap 'sleep 15; exit 0' TERM; {FOREVER}"""
"""In the first attempt the first pod fails. The others need fifteen seconds to end."""


def document(fail_on: str) -> dict[str, Any]:
    """Return a JobSet whose first Job fails while its second pod ends slowly."""
    pods = {"template": {"spec": containers(SCRIPT)}}
    job = {"backoffLimit": 0, "completionMode": "Indexed", "completions": 2, "parallelism": 2, **pods}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": NAME, "annotations": {FAIL_ON: fail_on}},
        "spec": {
            "failurePolicy": {"maxRestarts": 1},
            "replicatedJobs": [{"name": name, "template": {"spec": job}} for name in ("a", "b")],
        },
    }


@pytest.mark.row("J27", level="e2e")
@pytest.mark.parametrize(("fail_on", "early"), [("FailureTarget", True), ("Failed", False)])
async def test_J27_a_decision_on_failure_target_waits_for_no_pod(real: Space, fail_on: str, *, early: bool):
    handle = await real.submit(document(fail_on))
    status = await reach(real, handle, "Running", 2)
    (decided,) = [cause for cause in status.causes if cause.reason == "Resetting"]
    lives = [life.object for life in real.truth.of(1, "Pod")]
    (slow,) = [
        pod["status"]["containerStatuses"][0]["state"]["terminated"]
        for pod in lives
        if pod["metadata"]["name"].startswith(f"{NAME}-a-") and pod["metadata"]["labels"][INDEX] == "1"
    ]
    assert (decided.time < datetime.fromisoformat(slow["finishedAt"])) is early, (decided, slow)
    assert "BackoffLimitExceeded" in decided.message
    real.truth.assert_one_attempt_at_a_time(NAME)
