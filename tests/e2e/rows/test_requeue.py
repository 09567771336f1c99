"""Lattice's requeue policies on real servers: what comes back to its queue, how often, and what waits for a person."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from holdfast import formats, names
from holdfast.errors import InvalidWorkload
from holdfast.local import Stack
from holdfast.model import OperationKind
from holdfast.policy.values.events import RequeueRequest
from holdfast.worker.failpoints import ENV_FAILPOINT
from tests.e2e.ground.site import open_site, until
from tests.e2e.ground.space import Space, open_space
from tests.e2e.lives.lattice import NAME, allocation, audited, loses_its_node, running, stays

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]
ROW = pytest.mark.row


async def app_fails(space: Space) -> str:
    return await space.fail_pod(NAME, 3)


@ROW("L17", level="e2e")
@ROW("L21", level="e2e")
@ROW("L22", level="e2e")
@pytest.mark.parametrize(
    ("policy", "befalls", "reason"),
    [
        ("interactive", app_fails, "FoundFailedPods"),
        ("interactive", loses_its_node, "NodeLost"),
        ("batch", app_fails, "FoundFailedPods"),
    ],
    ids=["never-app", "never-node", "on-node-failure-app"],
)
async def test_L17_L21_L22_what_its_policy_does_not_bring_back_has_failed(
    space: Space, policy: str, befalls: Any, reason: str
):
    handle = await space.submit(allocation(policy, pods=2))
    await space.reach(handle, "Running", 1)
    await befalls(space)
    status = await space.ended(handle)
    assert (status.phase, status.reason, status.requeues, status.executions) == ("Failed", reason, 0, 1)
    assert "rule" in status.message
    assert await space.site.gone(space.namespace), "its nodes are released"


@ROW("L22", level="e2e")
@ROW("L26", level="e2e")
@ROW("L27", level="e2e")
async def test_L22_L26_L27_a_lost_node_brings_it_back_to_its_queue_and_a_later_cycle_admits_it(space: Space):
    (workload,) = formats.read(allocation("batch", pods=2), cluster=space.site.cluster, namespace=space.namespace)
    submitted = datetime(2026, 1, 2, tzinfo=UTC)
    handle = await space.submit(workload.model_copy(update={"submitted_at": submitted}))
    await space.reach(handle, "Running", 1)
    lost = await loses_its_node(space)
    status = await space.reach(handle, "Running", 2)
    assert (status.requeues, status.restarts, status.submitted_at) == (1, 1, submitted)
    assert {each.name: each.used for each in status.budgets} == {"restart": 1, "launch": 0}
    (why,) = [cause.message for cause in status.causes if cause.reason == "Requeued"]
    assert lost in why
    assert "(rule node-lost)" in why
    reports = [act.given["reportGone"] for act in await space.acts(handle, OperationKind.REMOVE)]
    assert [(each["phase"], each["reason"]) for each in reports] == [("Pending", "Queued")]
    assert [each["status"] for each in reports[0]["conditions"] if each["type"] == "QuotaReserved"] == [False]
    assert "requeued in cycle 0, admitted in cycle 1 at the earliest" in reports[0]["message"]
    await space.assert_paused(handle, NAME, 2, 1.0)
    await space.complete(NAME)
    assert (await space.ended(handle)).phase == "Succeeded"
    await space.truth.settle()
    space.truth.assert_one_attempt_at_a_time(NAME)
    space.truth.assert_told_truly(NAME)


@ROW("L17", level="e2e")
@ROW("L23", level="e2e")
@ROW("L24", level="e2e")
async def test_L23_L24_an_application_that_fails_is_requeued_as_often_as_it_may_and_then_has_failed(space: Space):
    handle = await space.submit(allocation("service", retryLimit="1"))
    await space.reach(handle, "Running", 1)
    await app_fails(space)
    await space.reach(handle, "Running", 2)
    await loses_its_node(space)
    status = await space.ended(handle)
    assert (status.phase, status.reason, status.requeues) == ("Failed", "MaxRequeueExceeded", 1)
    with pytest.raises(InvalidWorkload, match="expected at most 100"):
        await space.submit(allocation("service", retryLimit="101"))


@ROW("L25", level="e2e")
async def test_L25_two_who_ask_at_once_with_the_same_count_requeue_it_once(space: Space):
    handle = await space.submit(allocation("batch"))
    await space.reach(handle, "Running", 1)
    request = RequeueRequest(expected_requeue_count=0, node="node-7", message="told by a monitor")
    document = request.model_dump(mode="json", by_alias=True)
    await handle.signal(names.SIGNAL_REQUEUE, document)
    await handle.signal(names.SIGNAL_REQUEUE, document)
    await space.reach(handle, "Running", 2)
    await handle.signal(names.SIGNAL_REQUEUE, document)
    await space.complete(NAME)
    status = await space.ended(handle)
    assert (status.phase, status.requeues, status.executions) == ("Succeeded", 1, 2)


@ROW("L33", level="e2e")
async def test_L33_a_gang_runs_only_when_all_of_it_runs_and_late_news_changes_nothing(space: Space):
    handle = await space.submit(allocation("batch", pods=2, warmupGracePeriod="5m"))
    first = await space.reach(handle, "Running", 1)
    assert len(await running(space)) == 2, "when it said so, all of it ran"
    late = {
        "workloadUid": first.uid,
        "attempt": 1,
        "ownerUid": "",
        "at": "2026-01-01T00:00:00Z",
        "revision": 1,
        "components": {},
    }
    await handle.signal(names.SIGNAL_OBSERVE, late)
    await loses_its_node(space)
    await space.reach(handle, "Running", 2)
    await handle.signal(names.SIGNAL_OBSERVE, late)
    await space.complete(NAME)
    status = await space.ended(handle)
    assert (status.phase, status.executions, status.requeues) == ("Succeeded", 2, 1)
    phases = [cause.phase for cause in status.causes if cause.attempt == 2]
    assert "Resetting" not in phases


@ROW("L7", level="e2e")
@pytest.mark.parametrize("word", [names.SIGNAL_RETRY, names.SIGNAL_CANCEL])
async def test_L7_sensitive_work_waits_for_a_person(space: Space, word: str):
    handle = await space.submit(allocation("service", sensitive="true"))
    await space.reach(handle, "Running", 1)
    lost = await loses_its_node(space)
    status = await space.reach(handle, "Pending")
    assert (status.reason, status.requeues) == ("Held", 0)
    assert "sensitive" in status.message
    explanation = await space.explain(handle)
    assert "(rule node-lost)" in explanation.why or "(default rule)" in explanation.why
    assert "retry" in explanation.unblock
    await stays(space, 3, lost)
    await handle.signal(word, "looked into it")
    if word == names.SIGNAL_RETRY:
        status = await space.reach(handle, "Running", 2)
        assert {each.name: each.used for each in status.budgets}["restart"] == 0
        await space.complete(NAME)
    assert (await space.ended(handle)).phase == ("Succeeded" if word == names.SIGNAL_RETRY else "Cancelled")
    await space.truth.settle()
    space.truth.assert_one_attempt_at_a_time(NAME)


@ROW("L36", level="e2e")
@pytest.mark.parametrize("point", ["activity.report.after:1", "activity.create.before:1"])
async def test_L36_the_audit_is_committed_before_the_create_whatever_dies_between(
    stack: Stack, tmp_path: Path, point: str
):
    async with open_site(stack, tmp_path, prefix="l") as site:
        worker = site.launch(kubeconfig=None, **{ENV_FAILPOINT: point})
        async with open_space(site) as space:
            handle = await space.submit(allocation("batch", sensitive="true"))
            await until(lambda: _dead(worker), 60, f"the worker dies at {point}")
            assert await space.pods() == [], "nothing of it runs yet"
            assert await audited(space) == ["audit entry 1 create"]
            site.launch()
            await space.reach(handle, "Running", 1)
            await space.complete(NAME)
            status = await space.ended(handle)
            assert (status.phase, status.executions) == ("Succeeded", 1)
            acts = await space.acts(handle)
            kinds = [act.name for act in acts]
            first = kinds.index(OperationKind.CREATE)
            assert kinds[first - 1] == OperationKind.REPORT
            assert acts[first - 1].ended is not None
            told = [
                each["message"] for each in acts[first - 1].given["report"]["events"] if each["reason"] == "Audited"
            ]
            assert [each.split(":")[0] for each in told] == ["audit entry 1 create"]
            assert (await audited(space))[-1] == "audit entry 1 remove"
            await space.truth.settle()
            space.truth.assert_one_attempt_at_a_time(NAME)


async def _dead(worker: Any) -> bool:
    return worker.process.poll() is not None
