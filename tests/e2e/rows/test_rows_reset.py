"""What resets a workload, after which wait, and how often (rows A3, A6, A7, A9), on real controllers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent

from holdfast import names
from holdfast.model import ComponentView, Failure, FailureClass, Observation, OperationKind, Scope
from tests.e2e.ground.site import appwrapper, job, until
from tests.e2e.ground.space import Handle, Space, pod

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]
ROW = pytest.mark.row
AT_ONCE = 30.0
"""Seconds: time enough on a busy machine, and surely less than the grace that is not waited for."""
RESET_EVENTS = 40
"""The history that a reset without a grace may cost (docs/decisions/0086-a-look-that-removes.md)."""
TELLS = 2
"""What the watch tells in it: that a pod failed, and that all run again."""


def failed_at(space: Space) -> datetime:
    """When a pod first failed, by the audit log."""
    return min(
        one.time
        for one in space.truth.requests()
        if (one.resource, one.subresource) == ("pods", "status") and one.body["status"].get("phase") == "Failed"
    )


def reset_at(space: Space, workload: str, attempt: int = 1) -> datetime:
    """When the worker began to delete an attempt, by the audit log."""
    return min(
        one.time
        for one in space.truth.requests()
        if (one.verb, one.resource, one.name) == ("delete", "attempts", names.attempt_name(workload, attempt))
        and one.worker
    )


@ROW("A3", level="e2e")
async def test_A3_a_failed_pod_resets_once_the_failure_grace_is_over(space: Space):
    handle = await space.submit(appwrapper("train", pod("one"), pod("two"), failureGracePeriodDuration="3s"))
    await space.reach(handle, "Running", 1)
    await space.fail_pod("train")
    status = await space.reach(handle, "Running", 2)
    assert (status.restarts, status.executions) == (1, 2)
    await space.truth.settle()
    space.truth.assert_one_attempt_at_a_time("train")
    space.truth.assert_told_truly("train")
    waited = (reset_at(space, "train") - failed_at(space)).total_seconds()
    assert 3 <= waited < 3 + AT_ONCE
    names_of_both = {life.name for life in space.truth.of(1, "Pod")}
    assert names_of_both == {"one", "two"}, "the pod that was well goes too"


@ROW("A3", level="e2e")
async def test_A3_a_job_that_heals_within_the_grace_is_left_undisturbed(space: Space):
    """A Job of several tries replaces its failed pod after ten seconds of its own."""
    handle = await space.submit(appwrapper("train", job(backoffLimit=5), failureGracePeriodDuration="120s"))
    await space.reach(handle, "Running", 1)
    lost = await space.fail_pod("train")
    await space.unhealthy(handle)

    async def healed() -> bool:
        status = await space.site.status(handle)
        return not any(one.type == "Unhealthy" and one.status for one in status.conditions)

    await until(healed, 110, "the Job has replaced its pod")
    assert lost in {each["metadata"]["name"] for each in await space.pods()}, "its failed pod is still there to see"
    await space.complete("train")
    status = await space.ended(handle)
    assert (status.phase, status.restarts, status.executions) == ("Succeeded", 0, 1)
    assert len(await space.acts(handle, OperationKind.REMOVE)) == 1, "only what removes it after its success"
    assert [one.name for one in space.truth.requests() if (one.verb, one.resource) == ("create", "jobs")] == ["train"]


@ROW("A6", level="e2e")
async def test_A6_a_deleted_job_resets_without_the_grace(space: Space):
    handle = await space.submit(appwrapper("train", job(), failureGracePeriodDuration="60s"))
    await space.reach(handle, "Running", 1)
    await space.delete("batch/v1", "Job", "train")
    deleted = datetime.now(UTC)
    status = await space.reach(handle, "Running", 2)
    assert status.restarts == 1
    assert (reset_at(space, "train") - deleted).total_seconds() < AT_ONCE
    looks = await space.acts(handle, OperationKind.OBSERVE)
    assert looks, "a live look confirms it"
    (missing,) = looks[-1].result["failures"]
    assert (missing["reason"], missing["subject"]) == ("MissingComponent", "train")
    await space.truth.settle()
    space.truth.assert_one_attempt_at_a_time("train")


@ROW("A6", level="e2e")
@pytest.mark.parametrize("pods", [2, 200])
async def test_A6_a_reset_is_one_activity_that_looks_and_removes(space: Space, pods: int):
    waits = {"failureGracePeriodDuration": "0s", "retryPausePeriodDuration": "1s"}
    unforced = {"forcefulDeletionGracePeriodDuration": "300s"}
    handle = await space.submit(appwrapper("train", job(pods=pods), **waits, **unforced))
    status = await space.reach(handle, "Running", 1, seconds=120)
    before = len(await quiet(handle))
    resets: list[tuple[int, list[str], list[str]]] = []
    for attempt in (2, 3):
        await space.fail_pod("train")
        status = await space.reach(handle, "Running", attempt, seconds=120)
        history = await quiet(handle)
        events, before = history[before:], len(history)
        told = sum(one.HasField("workflow_execution_signaled_event_attributes") for one in events)
        kinds = [one.activity_task_scheduled_event_attributes.activity_type.name for one in events]
        # On a busy machine the watch may tell more: a signal and its task have four events.
        cost = len(events) - 4 * max(0, told - TELLS)
        resets.append((cost, [kind for kind in kinds if kind], [EventType.Name(one.event_type) for one in events]))
        print(f"MEASURED {len(events)} events, {told} signals of a reset with {pods} pods: {resets[-1][1]}")
    # Such a machine may also take a task too late, or look at a Job that has failed since: seldom in each reset.
    cost, acts, spent = min(resets)
    assert acts == ["reset", "prepare", "report"]
    assert cost <= RESET_EVENTS, spent
    assert (status.restarts, [each.used for each in status.budgets]) == (2, [2])
    await space.truth.settle()
    space.truth.assert_one_attempt_at_a_time("train")
    space.truth.assert_told_truly("train")


async def quiet(handle: Handle) -> list[HistoryEvent]:
    """Return the history once its workflow has nothing under way."""
    found: list[HistoryEvent] = []

    async def rests() -> bool:
        nonlocal found
        found = list((await handle.fetch_history()).events)
        pending = (await handle.describe()).raw_description
        return not pending.pending_activities and not pending.HasField("pending_workflow_task")

    await until(rests, 30, "nothing is under way")
    return found


@ROW("A6", level="e2e")
async def test_A6_a_stale_list_kills_nothing(space: Space):
    handle = await space.submit(appwrapper("train", job()))
    status = await space.reach(handle, "Running", 1)
    owner = await space.site.kube.get(names.API_VERSION, names.ATTEMPT_KIND, "train-a1", space.namespace)
    (component,) = (each["name"] for each in owner["spec"]["plan"])
    now = datetime.now(UTC)
    stale = Observation(
        workload_uid=status.uid,
        attempt=1,
        owner_uid=owner["metadata"]["uid"],
        at=now,
        revision=10**12,
        components={component: ComponentView(found=False)},
        failures=(
            Failure(
                cls=FailureClass.MISSING,
                scope=Scope.COMPONENT,
                reason="MissingComponent",
                time=now - timedelta(seconds=1),
                component=component,
                subject="train",
                attempt=1,
            ),
        ),
        failures_total=1,
    )
    await handle.signal(names.SIGNAL_OBSERVE, stale)

    async def looked() -> bool:
        return any(act.ended for act in await space.acts(handle, OperationKind.OBSERVE))

    await until(looked, 90, "it has looked for itself")
    await space.complete("train")
    status = await space.ended(handle)
    assert (status.phase, status.restarts, status.executions) == ("Succeeded", 0, 1)
    created = [one.name for one in space.truth.requests() if (one.verb, one.resource) == ("create", "jobs")]
    assert created == ["train"]


@ROW("A7", level="e2e")
async def test_A7_a_job_that_has_failed_resets_without_the_grace(space: Space):
    handle = await space.submit(appwrapper("train", job(pods=3), failureGracePeriodDuration="60s"))
    await space.reach(handle, "Running", 1)
    await space.fail_pod("train", exit_code=137)
    status = await space.reach(handle, "Running", 2)
    assert (status.restarts, [each.used for each in status.budgets]) == (1, [1])
    assert (reset_at(space, "train") - failed_at(space)).total_seconds() < AT_ONCE
    await space.truth.settle()
    space.truth.assert_one_attempt_at_a_time("train")


@ROW("A9", level="e2e")
async def test_A9_exactly_three_resets_then_failed_and_deleted(space: Space):
    component = job(pods=1)
    component["template"]["spec"]["template"]["metadata"]["annotations"]["holdfast.dev/kwok-fail"] = "0s"
    handle = await space.submit(appwrapper("train", component))
    status = await space.ended(handle, 240)
    assert (status.phase, status.reason) == ("Failed", "RetryLimitExceeded")
    assert (status.restarts, status.executions) == (3, 4)
    assert [(each.name, each.used) for each in status.budgets] == [("restart", 3)]
    await space.truth.settle()
    assert space.truth.attempts("train") == [1, 2, 3, 4]
    space.truth.assert_one_attempt_at_a_time("train")
    space.truth.assert_told_truly("train")
    requests = space.truth.requests()
    assert [one.name for one in requests if (one.verb, one.resource) == ("create", "jobs")] == ["train"] * 4
    assert all(life.died for life in space.truth.lives.values() if life.attempt)
    shown = await space.anchor("train")
    assert shown["status"]["phase"] == "Failed", "the anchor of a failed workload stays for its readers"
    assert names.FINALIZER not in (shown["metadata"].get("finalizers") or ())
    for attempt in (2, 3, 4):
        await space.assert_paused(handle, "train", attempt, 1.0)
