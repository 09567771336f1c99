"""The watch chooses the failures that travel by the rules that the attempt's owner carries (row D16)."""

from __future__ import annotations

import pytest

from holdfast.worker.watch.cache import Cache
from holdfast.worker.watch.seen import attempt_seen, pod_seen
from tests.activities.shapes import ATTEMPT, NOW, UID, failed, owner, terminated


@pytest.mark.row("D16", level="pure")
@pytest.mark.parametrize("late", [39, 20])
def test_D16_a_message_that_a_rule_decides_by_is_not_hidden_by_forty_others(late: int):
    """The watch reads the rules from the attempt's owner, and a snapshot holds what they decide by."""
    rules = [
        {"name": "fatal", "match": {"messagePattern": "corrupt"}, "action": {"kind": "Fail", "grace": False}},
        {"name": "let-be", "match": {"scopes": ["Member"]}, "action": {"kind": "Ignore", "grace": False}},
    ]
    plan = [{"name": "work", "apiVersion": "batch/v1", "kind": "Job", "objectName": "work-0", "expectedPods": 40}]
    its_owner = owner() | {
        "spec": {
            "workloadUid": UID,
            "workflowId": "workload/c/ns/w",
            "attempt": ATTEMPT,
            "plan": plan,
            "selection": {"rules": rules},
        }
    }
    attempt = attempt_seen("c")(its_owner)
    assert attempt is not None
    cache = Cache()
    cache.put_attempt(attempt)
    for number in range(40):
        raw = failed(f"p{number:02}", second=number)
        if number == late:
            raw["status"]["containerStatuses"] = [terminated(1, number, message="the data is corrupt")]
        pod = pod_seen(raw)
        assert pod is not None
        cache.put_pod(pod)
    seen = cache.observe(attempt, NOW, (), ())
    assert seen.failures_total == 40
    assert f"p{late:02}" in [one.subject for one in seen.failures]
