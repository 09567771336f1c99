"""The first user story with real containers: exit codes and SIGTERM are the operating system's own (row J8)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.ground.space import Space
from tests.e2e.jobset.jobset_life import counted, ended, reach, reasons, story, told
from tests.e2e.nodes.test_real_node import ended as containers_ended
from tests.e2e.nodes.test_real_node import real as real

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.real_node,
    pytest.mark.timeout(900),
    pytest.mark.asyncio(loop_scope="session"),
]
ROW = pytest.mark.row
JOB = "fail-jobset-example-buggy-job-0"
MAINTENANCE = "sh -c 'kill -TERM $$$$'; exit $?"
"""Ends as a process does whose work was ended by SIGTERM; of two dollar signs Kubernetes makes one."""


def on_the_real_node(script: str) -> dict[str, Any]:
    """Return the first story with an image that is on the node, and with what its container runs."""
    document = story("fail-jobset")
    (job,) = document["spec"]["replicatedJobs"]
    spec = job["template"]["spec"]["template"]["spec"]
    spec["nodeSelector"] = {"holdfast.dev/node": "real"}
    spec["tolerations"] = [{"key": "holdfast.dev/real", "operator": "Exists"}]
    (container,) = spec["containers"]
    container.update(image="holdfast.local/busybox:1", imagePullPolicy="Never", command=["sh"], args=["-c", script])
    return document


def codes(space: Space, attempts: int) -> list[int]:
    """Return how the container of each attempt exited, as the kubelet said."""
    return [each["exitCode"] for attempt in range(1, attempts + 1) for each in containers_ended(space, attempt)]


@ROW("J8", level="e2e")
async def test_J8_story_1_real_containers_restart_after_SIGTERM_and_fail_the_set_on_an_error(real: Space):
    document = on_the_real_node(f'sleep 1; [ "$HOLDFAST_ATTEMPT" -gt 2 ] && exit 1; {MAINTENANCE}')
    handle = await real.submit(document)
    await reach(real, handle, "Failed", 3)
    found = await told(real, handle, document)
    assert ended(found) == (
        "FailJobSetFailurePolicyAction",
        f"applying FailJobSet failure policy action (first failed job: {JOB})",
    )
    assert counted(found) == (2, 2)
    assert await reasons(real, 4) == [["BackoffLimitExceeded"], ["BackoffLimitExceeded"], ["PodFailurePolicy"], []]
    assert codes(real, 3) == [143, 143, 1]
    real.truth.assert_one_attempt_at_a_time("fail-jobset-example")


@ROW("J8", level="e2e")
async def test_J8_story_1_real_containers_restart_up_to_the_maximum(real: Space):
    """The story's maximum of 10 is 2 here."""
    document = on_the_real_node(f"sleep 1; {MAINTENANCE}")
    document["spec"]["failurePolicy"]["maxRestarts"] = 2
    handle = await real.submit(document)
    await reach(real, handle, "Failed", 3)
    found = await told(real, handle, document)
    assert ended(found)[0] == "ReachedMaxRestarts"
    assert counted(found) == (2, 2)
    assert await reasons(real, 4) == [["BackoffLimitExceeded"]] * 3 + [[]]
    assert codes(real, 3) == [143] * 3
