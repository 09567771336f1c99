"""What is refused, end to end: Failed at once, the reason told, nothing created, nothing left behind."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from temporalio import workflow
from temporalio.client import WorkflowFailureError
from temporalio.common import RetryPolicy
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from holdfast import formats, names
from holdfast.activities.kube.client import NotFound
from holdfast.activities.site.permission_cache import FRESH
from holdfast.errors import InvalidWorkload
from holdfast.model import OperationKind, Phase, Reason, Report, Status
from holdfast.model.calls.cluster import ReportInput, Target
from tests.e2e.ground.site import appwrapper, job
from tests.e2e.ground.space import Handle, Space, pod
from tests.e2e.rows.test_component_restart import document, fail

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]


def component(api_version: str, kind: str, **fields: Any) -> dict[str, Any]:
    return {"template": {"apiVersion": api_version, "kind": kind, "metadata": {"name": "other"}, **fields}}


SECRET = component("v1", "Secret", stringData={"password": "secret"})
UNSERVED = {
    **component("example.com/v1", "Unheard", spec={"template": {"spec": {"containers": [{"name": "main"}]}}}),
    "podSets": [{"path": "template.spec.template"}],
}
FORBIDDEN = component("networking.k8s.io/v1", "NetworkPolicy", spec={"podSelector": {}})


async def refusal(handle: Handle) -> Status:
    """Wait for the end of a refused workload, and return its status."""
    with pytest.raises(WorkflowFailureError) as error:
        await handle.result()
    cause = error.value.cause
    assert isinstance(cause, ApplicationError)
    assert cause.type == names.ERROR_WORKLOAD_FAILED
    assert cause.non_retryable
    status = Status.model_validate(cause.details[0])
    assert status.message in cause.message
    assert (status.phase, status.restarts) == ("Failed", 0)
    assert not any(each.status for each in status.conditions if each.type != "Unhealthy")
    return status


async def assert_nothing_was_created(space: Space, handle: Handle) -> None:
    """By the audit log, by what is there, and by history: nobody even began to create."""
    runner = f"system:serviceaccount:{space.namespace}:"
    made = [one for one in space.truth.requests() if one.verb == "create" and one.user.startswith(runner)]
    assert not [one for one in made if one.resource != "selfsubjectaccessreviews"]
    await space.truth.settle()
    assert not [life for life in space.truth.lives.values() if life.attempt]
    assert OperationKind.CREATE not in {act.name for act in await space.acts(handle)}
    with pytest.raises(NotFound):
        await space.anchor("train")


async def test_a_namespace_that_is_not_enabled(space: Space):
    labels = {"metadata": {"labels": {names.LABEL_NAMESPACE_ENABLED: None}}}
    found = await space.site.kube.get("v1", "Namespace", space.namespace)
    await space.site.kube.patch("v1", "Namespace", space.namespace, uid=found["metadata"]["uid"], patch=labels)
    handle = await space.submit(appwrapper("train", job()))
    status = await refusal(handle)
    assert status.reason == "Refused"
    assert status.message == (
        f"namespace {space.namespace} is not enabled for Holdfast: run `holdfast namespace enable {space.namespace}`"
    )
    await assert_nothing_was_created(space, handle)


async def test_a_service_account_that_is_not_opted_in(space: Space):
    unset = {"metadata": {"annotations": {names.ANNOTATION_RUN_AS: None}}}
    await space.patch("v1", "ServiceAccount", names.RUN_AS_DEFAULT, unset)
    handle = await space.submit(appwrapper("train", job()))
    status = await refusal(handle)
    assert status.reason == "Refused"
    assert f"{space.namespace}/{names.RUN_AS_DEFAULT} does not let workloads run as it" in status.message
    assert f"{names.ANNOTATION_RUN_AS}={names.RUN_AS_ALLOWED}" in status.message
    await assert_nothing_was_created(space, handle)


@pytest.mark.row("X12", level="e2e")
async def test_X12_pods_that_would_run_as_an_account_that_has_not_opted_in(space: Space):
    await space.make({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "admin"}})
    one = job()
    one["template"]["spec"]["template"]["spec"]["serviceAccountName"] = "admin"
    handle = await space.submit(appwrapper("train", one))
    status = await refusal(handle)
    assert status.reason == "Refused"
    assert status.message == (
        f"spec.components[0].template.spec.template.spec.serviceAccountName: 'admin': service account "
        f"{space.namespace}/admin does not let workloads run as it: expected {names.RUN_AS_DEFAULT}, or an account "
        f"that is annotated with {names.ANNOTATION_RUN_AS}={names.RUN_AS_ALLOWED}"
    )
    await assert_nothing_was_created(space, handle)


@pytest.mark.row("X4", level="e2e")
async def test_X4_an_account_that_opts_out_in_the_middle_of_an_attempt_makes_nothing_more(space: Space):
    handle = await space.submit(document(job("learner"), warmupGracePeriod="30s"))
    await space.reach(handle, "Running", 1)
    unset = {"metadata": {"annotations": {names.ANNOTATION_RUN_AS: None}}}
    await space.patch("v1", "ServiceAccount", names.RUN_AS_DEFAULT, unset)
    await asyncio.sleep(FRESH)  # What was allowed as it began is remembered for so long.
    await fail(space, "learner")
    with pytest.raises(WorkflowFailureError) as error:
        await handle.result()
    cause = error.value.cause
    assert isinstance(cause, ApplicationError)
    status = Status.model_validate(cause.details[0])
    assert (status.phase, status.attempt) == ("Failed", 1)
    assert f"{space.namespace}/{names.RUN_AS_DEFAULT} does not let workloads run as it" in status.message
    await space.truth.settle()
    assert len(list(space.truth.of(1, "Job"))) == 1, "the Job was not made again"


async def test_a_kind_that_the_cluster_lacks(space: Space):
    handle = await space.submit(appwrapper("train", job(), UNSERVED))
    status = await refusal(handle)
    assert status.reason == "Refused"
    assert (
        f"spec.components[1].template.kind: cluster {space.site.cluster} does not serve Unheard of example.com/v1"
        in status.message
    )
    await assert_nothing_was_created(space, handle)


async def test_a_component_its_submitter_may_not_create(space: Space):
    handle = await space.submit(appwrapper("train", job(), FORBIDDEN))
    status = await refusal(handle)
    assert status.reason == "Refused"
    account = f"service account {space.namespace}/{names.RUN_AS_DEFAULT}"
    assert status.message.startswith(f"spec.components[1].template.kind: {account} may not create networkpolicies")
    await assert_nothing_was_created(space, handle)


async def test_a_secret(space: Space):
    document = appwrapper("train", job(), SECRET)
    with pytest.raises(InvalidWorkload, match="is a Secret"):
        await space.submit(document)
    (unchecked,) = formats.read(
        document, cluster=space.site.cluster, namespace=space.namespace, payloads_encrypted=True
    )
    handle = await space.submit(unchecked)
    status = await refusal(handle)
    assert status.reason == "Refused"
    assert "the contents of a Secret among the components would stand readable" in status.message
    await assert_nothing_was_created(space, handle)


async def test_a_foreign_object_of_the_same_name(space: Space):
    """What stands in the way is named and let be, before anything is made beside it."""
    theirs = {**job()["template"], "metadata": {"name": "train", "labels": {"app": "theirs"}}}
    there = await space.make(theirs)
    handle = await space.submit(appwrapper("train", pod("first"), job()))
    status = await refusal(handle)
    assert status.message.startswith(
        f"spec.components[1].template.metadata.name: Job {space.namespace}/train is there already and is not ours"
    )
    assert status.reason == "Refused"
    await assert_nothing_was_created(space, handle)
    kept = await space.site.kube.get("batch/v1", "Job", "train", space.namespace)
    assert kept["metadata"]["uid"] == there["metadata"]["uid"]
    assert "deletionTimestamp" not in kept["metadata"]
    jobs = [one for one in space.truth.requests() if one.resource == "jobs" and one.verb in {"create", "delete"}]
    assert [(one.verb, one.user) for one in jobs] == [("create", "admin")]


@workflow.defn(name="Stranger", sandboxed=False)
class Stranger:
    """Asks for another workflow's workload to be told to have failed."""

    @workflow.run
    async def run(self, cluster: str, given: ReportInput) -> None:
        """Ask once."""
        await workflow.execute_activity(
            OperationKind.REPORT.value,
            given,
            task_queue=names.queue_cluster(cluster),
            start_to_close_timeout=timedelta(seconds=20),
            retry_policy=RetryPolicy(maximum_attempts=1),
        )


@pytest.mark.row("X2", level="e2e")
async def test_X2_a_workflow_that_does_not_own_a_workload_may_not_touch_it(space: Space):
    handle = await space.submit(appwrapper("train", job()))
    status = await space.reach(handle, "Running", 1)
    target = Target(
        cluster=space.site.cluster,
        namespace=space.namespace,
        name="train",
        workload_uid=status.uid,
        workflow_id=handle.id,
        run_as=names.RUN_AS_DEFAULT,
        source_kind="AppWrapper",
        shard=names.shard_of(status.uid),
    )
    report = Report(sequence=10**6, phase=Phase.FAILED, reason=Reason.REFUSED, attempt=1, executions=1, restarts=0)
    client, queue = space.site.client, f"strangers-{space.namespace}"
    async with Worker(client, task_queue=queue, workflows=[Stranger]):
        with pytest.raises(WorkflowFailureError) as error:
            await client.execute_workflow(
                Stranger.run,
                args=[space.site.cluster, ReportInput(target=target, report=report)],
                id=f"stranger-{space.namespace}",
                task_queue=queue,
            )
    cause = error.value.cause.__cause__
    assert isinstance(cause, ApplicationError)
    assert cause.type == names.ERROR_REFUSED
    assert f"may not report what belongs to {handle.id!r}" in cause.message
    assert (await space.anchor("train"))["status"]["phase"] == "Running"
