"""Spoiled workloads on their whole way, client to workflow to worker: refused where it can be known, nothing made."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from temporalio.client import WorkflowExecutionStatus, WorkflowFailureError
from temporalio.exceptions import ApplicationError

from holdfast import Holdfast, Run, formats, names
from holdfast.errors import HoldfastError
from holdfast.model import Status, Workload
from tests.e2e.ground.definitions import serve
from tests.e2e.ground.site import appwrapper, job
from tests.e2e.ground.space import Handle, Space
from tests.formats.mutations import DIRECTED, Mutant, mutants

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300), pytest.mark.asyncio(loop_scope="session")]

KIND = "template.kind"
TEMPLATE = "template"
METADATA = "template.metadata"
PODS = "template.spec.template"
MAIN = f"{PODS}.spec.containers[0]"
REFUSED_BY_THE_WORKER: dict[str, str] = {
    # Who may refuse, and what is added to each component.
    "a kind the cluster lacks": KIND,
    "a kind of no namespace": KIND,
    "a kind that may not be created": KIND,
    "an info with a bad label": f"{PODS}.metadata.labels",
    "a label that is Holdfast's": f"{METADATA}.labels[holdfast.dev/attempt]",
    "labels of another type": f"{METADATA}.labels",
    "an owner": f"{METADATA}.ownerReferences",
    "a component's bad name": f"{METADATA}.name",
    "a container that is nothing": MAIN,
    "env of another type": f"{MAIN}.env",
    "an env whose name is a list": f"{MAIN}.env[0].name",
    "tolerations of another type": f"{PODS}.spec.tolerations",
    # What only the API server knows.
    "a wrong enum": f"{PODS}.spec.restartPolicy",
    "an enum of another type": f"{PODS}.spec.restartPolicy",
    "a misspelt field": "template.spec.backofLimit",
    "a misspelt field of a container": f"{MAIN}.imagePolicy",
    "a number out of range": f"{MAIN}.ports[0].containerPort",
    "a number that is text": "template.spec.backoffLimit",
    "a number with a fraction": "template.spec.backoffLimit",
    "a bad quantity": f"{MAIN}.resources.requests.cpu",
    "a request above its limit": f"{MAIN}.resources.requests",
    "a bad size": f"{PODS}.spec.volumes[0].emptyDir.sizeLimit",
    "a bad label": f"{PODS}.metadata.labels",
    "a label of another type": f"{PODS}.metadata.labels[example.com/n]",
    "a bad annotation key": f"{METADATA}.annotations",
    "annotations too large": f"{METADATA}.annotations",
    "a bad env name": f"{MAIN}.env[2].name",
    "an env value of another type": f"{MAIN}.env[0].value",
    "a volume of nothing": f"{PODS}.spec.volumes[1].configMap.name",
    "a volume twice": f"{PODS}.spec.volumes[1].name",
    "a mount of no volume": f"{MAIN}.volumeMounts[0].name",
    "a probe on no port": f"{MAIN}.livenessProbe.httpGet.port",
    "an account that is missing": "template.spec.serviceAccountName",
    "a priority class that is missing": TEMPLATE,
    "a bad finalizer": f"{METADATA}.finalizers[0]",
    "a time that is none": f"{METADATA}.creationTimestamp",
    "a bad toleration": "template.spec.tolerations[0].effect",
    "a selector of others": f"{PODS}.metadata.labels",
    "no selector": "template.spec.selector",
    "a custom resource's misspelt field": "template.spec.headGroup",
    "a custom resource's wrong type": "template.spec.suspend",
    "a custom resource's missing field": "template.spec.rayClusterSpec.workerGroupSpecs[0].groupName",
    "yes for a text": f"{MAIN}.env[0].value",
}
"""Where each of them is refused, from its first component."""

ACCEPTED = {
    "an annotation that is none",
    "a setting",
    "a setting that is none",
    "a setting that the document decides",
    "a setting beside the annotation that decides",
    "a negative duration",
    "exit codes of both sorts",
    "a component's name that is generated",
    "an anchor",
    "not a number",
    "JSON",
    "an odd letter",
    "a number of base 60",
}
"""Odd, and taken by everybody."""

Change = dict[str, Any]
REFUSED_BY_THE_WORKFLOW: dict[str, tuple[Change, str]] = {
    "another schema": ({"schemaVersion": 2}, "schemaVersion"),
    "an unknown field": ({"componets": []}, "componets"),
    "no components": ({"components": []}, "components"),
    "components of another type": ({"components": "x"}, "components"),
    "no cluster": ({"cluster": None}, "cluster"),
    "a bad queue": ({"queue": "no.dots"}, "queue"),
    "a priority beyond all": ({"priority": 11}, "priority"),
    "an unknown kind of work": ({"kind": "Batches"}, "kind"),
    "a bad label": ({"labels": {"a b": "c"}}, "label key 'a b'"),
    "a bad account": ({"runAs": "Not_A_Name"}, "runAs"),
    "a bad uid": ({"uid": "a b"}, "uid"),
    "a wait that is none": ({"policy": {"timings": {"failureGracePeriod": "soon"}}}, "failureGracePeriod"),
    "a charge to no budget": ({"policy": {"default": {"charge": "nothing"}}}, "charge 'nothing'"),
    "a rule for nobody": (
        {"policy": {"rules": [{"name": "r", "match": {"components": ["nobody"]}}]}},
        "policy.rules[r].match.components",
    ),
    "a flag that is text": ({"allowMissingKinds": "perhaps"}, "allowMissingKinds"),
}
"""What another SDK may send, and the field that is named."""


async def _submitted(space: Space, holdfast: Holdfast, mutant: Mutant, number: int) -> Run | HoldfastError:
    """Submit a mutant as `holdfast submit --name` does: each under a name of its own."""
    try:
        (workload,) = formats.read(
            mutant.text, cluster=space.site.cluster, namespace=space.namespace, name=mutant.asked.get("name")
        )
    except HoldfastError as error:
        return error
    named = Workload.model_validate({**workload.model_dump(mode="json"), "name": f"mutant-{number}"})
    run = await holdfast.submit(named)
    space.handles.append(run.handle)
    return run


async def _end(handle: Handle) -> ApplicationError:
    with pytest.raises(WorkflowFailureError) as error:
        await asyncio.wait_for(handle.result(), 120)
    assert isinstance(error.value.cause, ApplicationError)
    return error.value.cause


async def _assert_nothing_is_there(space: Space) -> None:
    """By what is in the namespace, by what was ever in it, and by the workflows."""
    for kind in (names.ANCHOR_KIND, names.ATTEMPT_KIND):
        assert not await space.site.objects(names.API_VERSION, kind, space.namespace)
    await space.truth.settle()
    # The owner of a single component is made with it, and withdrawn.
    made = [life for life in space.truth.lives.values() if life.attempt and life.kind != names.ATTEMPT_KIND]
    assert not [(life.kind, life.name) for life in made]
    for handle in space.handles:
        assert (await handle.describe()).status is WorkflowExecutionStatus.FAILED, handle.id


async def _assert_the_worker_goes_on(space: Space, holdfast: Holdfast) -> None:
    (worker,) = space.site.workers
    assert worker.process.poll() is None
    workload = space.site.read(appwrapper("train", job()), space.namespace)
    run = await holdfast.submit(workload)
    space.handles.append(run.handle)
    await space.reach(run.handle, "Running")
    await run.cancel(wait=True)


@pytest.mark.row("U14", level="e2e")
async def test_what_is_spoiled_is_refused_on_its_way_with_the_field_and_nothing_is_made(space: Space):
    await serve(space.site)
    async with Holdfast.connect(client=space.site.client, cluster=space.site.cluster) as holdfast:
        given = [one for one in mutants(len(DIRECTED)) if one.name not in ACCEPTED]
        found = [await _submitted(space, holdfast, one, number) for number, one in enumerate(given)]
        sent = {one.name: run for one, run in zip(given, found, strict=True) if isinstance(run, Run)}
        assert sent.keys() == REFUSED_BY_THE_WORKER.keys(), "the client refuses all else"
        for name, path in REFUSED_BY_THE_WORKER.items():
            cause = await _end(sent[name].handle)
            assert cause.type == names.ERROR_WORKLOAD_FAILED, name
            status = Status.model_validate(cause.details[0])
            assert (status.phase, status.reason, status.restarts) == ("Failed", "Refused", 0), name
            assert f"spec.components[0].{path}: " in cause.message, f"{name}: {cause.message}"
        await _assert_nothing_is_there(space)
        await _assert_the_worker_goes_on(space, holdfast)
    print(f"{len(found) - len(sent)} refused by the client, {len(sent)} by the worker")


@pytest.mark.row("U14", level="e2e")
async def test_what_another_sdk_sends_spoiled_ends_at_once_with_the_field(space: Space):
    good = space.site.read(appwrapper("train", job()), space.namespace)
    for number, (name, (change, field)) in enumerate(REFUSED_BY_THE_WORKFLOW.items()):
        document = {**good.model_dump(mode="json", by_alias=True), "name": f"mutant-{number}", **change}
        handle: Handle = await space.site.client.start_workflow(
            names.WORKLOAD_WORKFLOW,
            document,
            id=names.workflow_id(space.site.cluster, space.namespace, f"mutant-{number}"),
            task_queue=names.QUEUE_WORKFLOWS,
            result_type=Status,
        )
        space.handles.append(handle)
        cause = await _end(handle)
        assert cause.type == names.ERROR_INVALID_WORKLOAD, name
        assert field in cause.message, f"{name}: {cause.message}"
    await _assert_nothing_is_there(space)
    async with Holdfast.connect(client=space.site.client, cluster=space.site.cluster) as holdfast:
        await _assert_the_worker_goes_on(space, holdfast)
