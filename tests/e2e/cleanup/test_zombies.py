"""Pods that do not go when deleted: finished ones, ones on a dead node, ones that a finalizer holds (row U2)."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress

import pytest
from temporalio.client import WorkflowUpdateFailedError

from holdfast import names
from holdfast.activities.kube.client import Conflict, service_account_user
from holdfast.model import OperationKind, Phase, Reason
from holdfast.policy.verdicts.strip import StripRequest
from tests.e2e.ground.site import appwrapper, job, until
from tests.e2e.ground.space import FOREIGN_FINALIZER, STUBBORN, Handle, Space, pod

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]
ROW = pytest.mark.row
WAITS = {"failureGracePeriodDuration": "0s", "forcefulDeletionGracePeriodDuration": "8s"}


async def finish(space: Space, name: str) -> None:
    """Have a pod that is being deleted be told finished, as by a kubelet that dies before it lets the pod go."""
    while True:
        found = await space.site.kube.get("v1", "Pod", name, space.namespace)
        metadata = found["metadata"]
        statuses = [
            {**one, "ready": False, "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}
            for one in found["status"]["containerStatuses"]
        ]
        with suppress(Conflict):  # Its Job's controller lets go of it meanwhile.
            await space.site.kube.patch(
                "v1",
                "Pod",
                name,
                space.namespace,
                uid=metadata["uid"],
                resource_version=metadata["resourceVersion"],
                subresource="status",
                patch={"status": {"phase": "Succeeded", "containerStatuses": statuses}},
            )
            return


async def dying(space: Space, *pods: str) -> None:
    async def check() -> bool:
        found = {each["metadata"]["name"]: each["metadata"] for each in await space.pods()}
        return all("deletionTimestamp" in found[name] for name in pods)

    await until(check, 60, f"{', '.join(pods)} are being deleted")


@ROW("U2", level="e2e")
async def test_U2_finished_pods_that_block_the_foreground_deletion_are_forced(space: Space):
    waits = WAITS | {"forcefulDeletionGracePeriodDuration": "20s"}  # In which they are seen to have finished.
    handle = await space.submit(appwrapper("train", job(pods=2, labels=STUBBORN), **waits))
    await space.reach(handle, "Running", 1)
    pods = sorted(each["metadata"]["name"] for each in await space.pods())
    await handle.signal(names.SIGNAL_SUSPEND, "maintenance")
    await dying(space, *pods)
    for name in pods:
        await finish(space, name)
    left = await space.pods()
    assert {each["status"]["phase"] for each in left} == {"Succeeded"}, "they have finished, and are there"
    await space.reach(handle, "Suspended")
    await space.truth.settle()
    assert all(life.died for life in space.truth.of(1)), "nothing is left"
    graceful, forced = await space.acts(handle, OperationKind.REMOVE, OperationKind.FORCE_REMOVE)
    assert (graceful.name, graceful.result["gone"]) == (OperationKind.REMOVE, False)
    assert (forced.name, forced.result["gone"]) == (OperationKind.FORCE_REMOVE, True)
    deleted = [
        one for one in space.truth.requests() if (one.verb, one.resource, one.worker) == ("delete", "pods", True)
    ]
    assert {one.name for one in deleted} == set(pods)
    assert all(one.time >= forced.scheduled for one in deleted), "not before the grace ended"


@ROW("U2", level="e2e")
async def test_U2_on_a_node_that_does_not_answer_they_are_forced_and_the_risk_is_said(space: Space):
    node = f"dead-{space.namespace}"
    taints = [{"key": "holdfast.dev/test", "value": node, "effect": "NoSchedule"}]
    document = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}, "spec": {"taints": taints}}
    made = await space.site.kube.create(document)
    try:
        lost = pod("lost")
        lost["template"]["spec"] |= {"nodeName": node, "nodeSelector": {}}
        waits = {**WAITS, "forcefulDeletionGracePeriodDuration": "30s"}
        handle = await space.submit(appwrapper("train", pod("kept"), lost, warmupGracePeriodDuration="1h", **waits))

        async def there() -> bool:
            return {each["metadata"]["name"] for each in await space.pods()} == {"kept", "lost"}

        await until(there, 60, "both pods are there")
        await space.reach(handle, "Resuming", 1)
        await handle.signal(names.SIGNAL_CANCEL, "enough")
        status = await space.ended(handle)
    finally:
        await space.site.kube.delete("v1", "Node", node, uid=made["metadata"]["uid"])
    assert status.phase is Phase.CANCELLED
    risk = f"Pod lost (node {node} does not answer: its processes may still run)"
    (forced,) = [each.message for each in status.causes if each.reason is Reason.DELETION_FORCED]
    assert risk in forced
    await space.truth.settle()
    space.truth.assert_told_truly("train")
    forced_out = {
        one.name for one in space.truth.requests() if (one.verb, one.resource, one.worker) == ("delete", "pods", True)
    }
    assert forced_out == {"lost"}, "what ends by itself is not forced"


async def blocked(space: Space) -> Handle:
    """Return a workload whose reset a foreign finalizer on one of its pods blocks, once that is told."""
    waits = {**WAITS, "forcefulDeletionGracePeriodDuration": "2s"}
    handle = await space.submit(appwrapper("train", job(), pod("lone", finalizers=[FOREIGN_FINALIZER]), **waits))
    await space.reach(handle, "Running", 1)
    worker = next(each["metadata"]["name"] for each in await space.pods() if each["metadata"]["name"] != "lone")
    await space.site.annotate("Pod", worker, space.namespace, kwok_exit_code="1", kwok_fail="0s")

    async def named() -> bool:
        told = await space.explain(handle)
        return f"Pod lone (finalizer {FOREIGN_FINALIZER})" in told.now and FOREIGN_FINALIZER in told.unblock

    await until(named, 60, "explain names the finalizer, and what would unblock it")
    return handle


def stripped(space: Space) -> set[tuple[str, str]]:
    """Return who has patched which pod's metadata, by the audit log."""
    return {
        (one.user, one.name)
        for one in space.truth.requests()
        if one.resource == "pods" and not one.subresource and one.verb in {"patch", "update"} and one.worker
    }


@ROW("U2", level="e2e")
async def test_U2_a_finalizer_blocks_a_reset_and_nothing_takes_it_off_unasked(space: Space):
    handle = await blocked(space)

    async def forced() -> bool:
        made = await space.acts(handle, OperationKind.FORCE_REMOVE)
        return any(one.result is not None for one in made)

    await until(forced, 90, "a whole forced round has passed")
    lone = await space.site.kube.get("v1", "Pod", "lone", space.namespace)
    assert lone["metadata"]["finalizers"] == [FOREIGN_FINALIZER]
    assert [each["metadata"]["name"] for each in await space.pods()] == ["lone"], "the rest is forced out"
    status = await space.site.status(handle)
    assert (status.phase, status.attempt, status.executions) == (Phase.RESETTING, 1, 1), "no second attempt beside it"
    assert status.causes[-1].reason is Reason.DELETION_FORCED
    assert f"Pod lone (finalizer {FOREIGN_FINALIZER})" in status.causes[-1].message
    assert not stripped(space)
    await space.finalize("v1", "Pod", "lone")
    # The new attempt's own pod has the finalizer too, and lives with it.
    await space.reach(handle, "Running", 2)
    await space.truth.settle()
    space.truth.assert_one_attempt_at_a_time("train")
    assert not stripped(space)


async def refused(handle: Handle) -> str:
    """Ask for finalizers to be stripped, and return why that is refused."""
    with pytest.raises(WorkflowUpdateFailedError) as error:
        await handle.execute_update(names.UPDATE_STRIP, StripRequest(note="now"))
    return str(error.value.cause)


@ROW("U2", level="e2e")
async def test_U2_finalizers_are_stripped_on_request_and_the_reset_goes_on(space: Space):
    handle = await blocked(space)
    note = "the operator that would take it off is gone"
    command = ("strip-finalizers", f"{space.namespace}/train", "--reason", note, "--cluster", space.site.cluster)
    where = ("--address", space.site.temporal_address, "--temporal-namespace", space.site.cluster)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "holdfast", *command, *where, stdout=-1, stderr=asyncio.subprocess.STDOUT
    )
    said, _ = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, said.decode()
    asked = (
        f"taking the finalizers off what is left (Pod lone (finalizer {FOREIGN_FINALIZER})), as was asked for: {note}"
    )
    status = await space.reach(handle, "Running", 2)
    assert [one.message for one in status.causes if one.reason is Reason.FINALIZERS_STRIPPED] == [asked]
    assert stripped(space) == {(service_account_user(space.namespace, names.RUN_AS_DEFAULT), "lone")}
    again = await space.site.kube.get("v1", "Pod", "lone", space.namespace)
    assert again["metadata"]["finalizers"] == [FOREIGN_FINALIZER], "the new attempt's own is left alone"
    await space.truth.settle()
    space.truth.assert_one_attempt_at_a_time("train")
    space.truth.assert_told_truly("train")


@ROW("U2", level="e2e")
async def test_U2_stripping_is_refused_at_all_other_times(space: Space):
    waits = {**WAITS, "forcefulDeletionGracePeriodDuration": "600s"}
    handle = await space.submit(appwrapper("train", pod("lone", finalizers=[FOREIGN_FINALIZER]), **waits))
    await space.reach(handle, "Running", 1)
    assert "nothing of it is being removed" in await refused(handle)
    await handle.signal(names.SIGNAL_SUSPEND, "maintenance")
    await dying(space, "lone")
    assert "still has its grace to go by itself" in await refused(handle)
    await space.finalize("v1", "Pod", "lone")
    await space.reach(handle, "Suspended")
    assert "it is Suspended, and nothing of it is being removed" in await refused(handle)
    assert not stripped(space)
