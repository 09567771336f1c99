"""What is another's: objects in the way or copied, documents for other controllers, changes to another object."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from holdfast import Holdfast, Run, names
from holdfast.errors import HoldfastError
from holdfast.local import Stack
from holdfast.model import Component, Reason
from holdfast.policy.loop.change import ComponentsChange
from holdfast.worker.cleanup.sweep import Verdict
from holdfast.worker.cleanup.sweep_delete import Outcome, Result, sweep, to_remove
from holdfast.worker.cleanup.sweep_lookup import survey
from tests.e2e.cleanup.test_disabled import disable
from tests.e2e.cleanup.test_sweep import footing
from tests.e2e.ground.site import appwrapper, job, open_site, until
from tests.e2e.ground.space import Space, open_space, pod, pod_template
from tests.e2e.ground.terminal import command
from tests.e2e.lives.streams import cancelled, told
from tests.e2e.rows.test_rows_refusals import assert_nothing_was_created, refusal
from tests.e2e.witness import law

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300), pytest.mark.asyncio(loop_scope="session")]
MULTIKUEUE = "kueue.x-k8s.io/multikueue"


async def the_job(space: Space, name: str = "train") -> dict[str, Any]:
    return await space.site.kube.get("batch/v1", "Job", name, space.namespace)


def identity(found: dict[str, Any]) -> tuple[str, Any, Any]:
    """What would differ if anybody had touched it; its own controller may write its status."""
    metadata = found["metadata"]
    return metadata["uid"], metadata.get("deletionTimestamp"), (metadata["labels"], metadata.get("ownerReferences"))


# --- objects in the way


@pytest.mark.parametrize("whose", ["another controller's", "managed elsewhere"])
async def test_an_object_that_is_anothers_is_named_and_let_be(space: Space, whose: str):
    theirs = {**copy.deepcopy(job()["template"]), "metadata": {"name": "train", "labels": {"app": "theirs"}}}
    if whose == "managed elsewhere":
        theirs["spec"]["managedBy"] = MULTIKUEUE
        belongs = "it has no owner, created "
    else:
        schedule = {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": theirs["spec"]}, "suspend": True}
        nightly = {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "nightly"}, "spec": schedule}
        uid = (await space.make(nightly))["metadata"]["uid"]
        owner = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "nightly", "uid": uid, "controller": True}
        theirs["metadata"]["ownerReferences"] = [owner]
        belongs = "it belongs to CronJob nightly"
    before = identity(await space.make(theirs))
    handle = await space.submit(appwrapper("train", pod("first"), job()))
    status = await refusal(handle)
    assert status.reason == "Refused"
    assert status.message.startswith(
        f"spec.components[1].template.metadata.name: Job {space.namespace}/train is there already and is not ours: "
        + belongs
    )
    await assert_nothing_was_created(space, handle)
    assert identity(await the_job(space)) == before


async def test_an_object_of_another_workload_is_named_and_let_be(space: Space):
    first = await space.submit(appwrapper("first", job()))
    await space.reach(first, "Running")
    before = identity(await the_job(space))
    second = await space.submit(appwrapper("second", job(), retryLimit="0"))
    status = await space.ended(second)
    assert (status.phase, status.restarts) == ("Failed", 0)
    assert f"Job {space.namespace}/train is there already and is not ours" in status.message
    assert "workload first" in status.message
    assert identity(await the_job(space)) == before
    assert (await space.reach(first, "Running")).attempt == 1
    assert len(await space.pods("first")) == 2
    await cancelled(first)


# --- copies in another namespace


@pytest.mark.row("X8", level="e2e")
async def test_X8_a_hostile_namespace_hides_no_failure_cancels_nothing_and_is_not_swept(stack: Stack, tmp_path: Path):
    # What is copied bears the workload's labels, by which the law and the sampler of anchors judge.
    async with open_site(stack, tmp_path, prefix=law.COPIED.rstrip("-")) as site:
        await site.start_worker()
        async with open_space(site) as space, open_space(site) as hostile:
            await _beside_a_hostile_namespace(space, hostile)


async def _beside_a_hostile_namespace(space: Space, hostile: Space) -> None:
    # Its Job makes a new pod only after some 10 s: until then, one pod lacks.
    handle = await space.submit(appwrapper("train", job(backoffLimit=5), failureGracePeriodDuration="0s"))
    await space.reach(handle, "Running", 1)
    await copy_owners(space, hostile)
    await copy_pods(space, hostile)
    await hostile.delete(names.API_VERSION, names.ANCHOR_KIND, "train")
    assert "deletionTimestamp" in (await hostile.anchor("train"))["metadata"], "our finalizer holds it"
    await hostile.delete(names.API_VERSION, names.ATTEMPT_KIND, names.attempt_name("train", 1))
    await space.fail_pod("train")
    status = await space.reach(handle, "Running", 2)
    assert status.restarts == 1
    assert not {one.reason for one in status.causes} & {Reason.ANCHOR_DELETED, Reason.HELD}

    async with footing(space) as here:
        verdicts = {one.left.namespace: one.judgement.verdict for one in (await survey(here)).items}
        assert verdicts == {space.namespace: Verdict.ALIVE, hostile.namespace: Verdict.DOUBT}
        before = await standing(hostile)
        await handle.terminate("by somebody")
        outcomes: list[Outcome] = []
        await sweep(here, to_remove((await survey(here)).items, unknown=True), done=outcomes.append)
    assert [(one.item.left.namespace, one.result) for one in outcomes] == [(space.namespace, Result.REMOVED)]
    assert await space.pods("train") == []
    assert await standing(hostile) == before


@pytest.mark.row("X8", level="e2e")
async def test_X8_a_copied_anchor_blocks_no_removal_and_what_it_is_of_runs_on(stack: Stack, tmp_path: Path):
    async with open_site(stack, tmp_path, prefix=law.COPIED.rstrip("-")) as site:
        await site.start_worker()
        async with open_space(site) as space, open_space(site) as hostile:
            handle = await space.submit(appwrapper("train", job()))
            await space.reach(handle, "Running", 1)
            mine = await standing(space)
            await copy_owners(space, hostile)
            code, said = await disable(hostile, "--workloads", "remove", "--timeout", "30s")
            assert code == 0, said
            assert said.count("it is a copy of one of another namespace") == 3, said
            assert not await standing(hostile)
            assert await standing(space) == mine
            assert (await space.reach(handle, "Running", 1)).restarts == 0
            await cancelled(handle)


async def copy_owners(space: Space, hostile: Space) -> None:
    """Copy a workload's anchor, its first attempt, and that under a later number, as submitted."""
    kube, anchor = space.site.kube, await space.anchor("train")
    metadata = {key: anchor["metadata"][key] for key in ("name", "labels", "finalizers")}
    own = {"apiVersion": names.API_VERSION, "kind": names.ANCHOR_KIND}
    await hostile.make({**own, "metadata": metadata, "spec": anchor["spec"]})
    owner = await kube.get(names.API_VERSION, names.ATTEMPT_KIND, names.attempt_name("train", 1), space.namespace)
    for number in (1, 99):
        labels = owner["metadata"]["labels"] | {names.LABEL_ATTEMPT: str(number)}
        metadata = {"name": names.attempt_name("train", number), "labels": labels}
        kind = {"apiVersion": names.API_VERSION, "kind": names.ATTEMPT_KIND}
        made = await hostile.make({**kind, "metadata": metadata, "spec": owner["spec"] | {"attempt": number}})
        await kube.patch(
            names.API_VERSION,
            names.ATTEMPT_KIND,
            metadata["name"],
            hostile.namespace,
            uid=made["metadata"]["uid"],
            resource_version=made["metadata"]["resourceVersion"],
            patch={"status": {"submitted": True}},
            subresource="status",
        )


async def copy_pods(space: Space, hostile: Space) -> None:
    """Copy a workload's pods, with all labels and annotations, and wait until the copies run."""
    pods = await space.pods("train")
    for one in pods:
        metadata = {key: one["metadata"][key] for key in ("name", "labels", "annotations")}
        await hostile.make({"apiVersion": "v1", "kind": "Pod", **pod_template(**metadata)})

    async def run() -> bool:
        return [one["status"].get("phase") for one in await hostile.pods("train")] == ["Running"] * len(pods)

    await until(run, 30, "the copies run")


async def standing(space: Space) -> set[str]:
    """Return the uids of the anchors, attempts and pods of a namespace."""
    kinds = ((names.API_VERSION, names.ANCHOR_KIND), (names.API_VERSION, names.ATTEMPT_KIND), ("v1", "Pod"))
    found = [one for kind in kinds for one in await space.site.objects(*kind, space.namespace)]
    return {one["metadata"]["uid"] for one in found}


# --- documents for other controllers


async def test_a_document_for_another_controller_is_left_to_it(space: Space, tmp_path: Path):
    document = appwrapper("train", job())
    document["spec"]["managedBy"] = MULTIKUEUE
    file = tmp_path / "train.yaml"
    file.write_text(yaml.safe_dump(document))
    told_by_command = await command(space.site, "validate", str(file), expect=2)
    assert "AppWrapper train is ignored: spec.managedBy" in told_by_command
    await command(space.site, "submit", str(file), "-n", space.namespace, expect=2)
    query = f"HoldfastNamespace = '{space.namespace}'"
    assert [one async for one in space.site.client.list_workflows(query)] == []
    assert await space.site.objects(names.API_VERSION, names.ANCHOR_KIND, space.namespace) == []


# --- changes


def changed(component: Component, *place: str, value: Any) -> Component:
    """Return a component with one value of its template changed."""
    template = copy.deepcopy(component.template)
    here = template
    for step in place[:-1]:
        here = here[step]
    here[place[-1]] = value
    return component.model_copy(update={"template": template})


async def running(space: Space, holdfast: Holdfast, *components: dict[str, Any], **annotations: str) -> Run:
    run = await holdfast.submit(space.site.read(appwrapper("train", *components, **annotations), space.namespace))
    space.handles.append(run.handle)
    await space.reach(run.handle, "Running")
    return run


async def test_a_change_that_would_be_another_object_is_refused_with_its_path(space: Space):
    async with Holdfast.connect(client=space.site.client, cluster=space.site.cluster) as holdfast:
        run = await running(space, holdfast, job())
        before = identity(await the_job(space))
        (component,) = (await run.submitted()).components
        path = f"components.{component.name}"
        sets = (component.pod_sets[0].model_copy(update={"replicas": 3}),)
        refused = {
            f"{path}.template.apiVersion: expected 'batch/v1' as before": changed(
                component, "apiVersion", value="batch/v2"
            ),
            f"{path}.template.kind: expected 'Job' as before": changed(component, "kind", value="Secret"),
            f"{path}.template.metadata.name: expected 'train' as before": changed(
                component, "metadata", "name", value="other"
            ),
            f"{path}.template.metadata.namespace: expected None as before": changed(
                component, "metadata", "namespace", value="elsewhere"
            ),
            f"{path}.podSets: expected the same pods as before": component.model_copy(update={"pod_sets": sets}),
            "components.nobody: expected one of": component.model_copy(update={"name": "nobody"}),
        }
        for words, one in refused.items():
            with pytest.raises(HoldfastError) as caught:
                await run.update_components(ComponentsChange(components=(one,), note="try"))
            assert words in str(caught.value)
        assert await run.update_components(ComponentsChange(components=(component,))) == ()
        assert identity(await the_job(space)) == before
        await run.cancel(wait=True)


async def test_what_the_api_server_holds_immutable_is_made_again_alone(space: Space):
    """A Job's pod template cannot be changed in place: the Job is made again, and nothing is charged for it."""
    async with Holdfast.connect(client=space.site.client, cluster=space.site.cluster) as holdfast:
        run = await running(space, holdfast, job(), pod("other"))
        before = (await the_job(space))["metadata"]["uid"]
        beside = (await space.site.kube.get("v1", "Pod", "other", space.namespace))["metadata"]["uid"]
        component = (await run.submitted()).components[0]
        containers = [{**component.template["spec"]["template"]["spec"]["containers"][0], "image": "example.com/b:2"}]
        change = changed(component, "spec", "template", "spec", "containers", value=containers)
        again = await run.update_components(ComponentsChange(components=(change,), note="a newer image"))
        assert again == (component.name,)

        async def made_again() -> bool:
            found = await space.site.kube.find("batch/v1", "Job", "train", space.namespace)
            return found is not None and found["metadata"]["uid"] != before

        await until(made_again, 60, "the Job is made again")
        image = (await the_job(space))["spec"]["template"]["spec"]["containers"][0]["image"]
        assert image == "example.com/b:2"
        status = await space.reach(run.handle, "Running")
        assert (status.attempt, status.restarts) == (1, 0)
        assert (await space.site.kube.get("v1", "Pod", "other", space.namespace))["metadata"]["uid"] == beside
        messages = [message for _, message in await told(space, "ConfigurationChanged")]
        assert f"{component.name} changed: a newer image" in messages
        await run.cancel(wait=True)


@pytest.mark.row("U14", level="e2e")
async def test_a_change_that_the_api_server_never_takes_is_refused_with_its_path_and_changes_nothing(space: Space):
    async with Holdfast.connect(client=space.site.client, cluster=space.site.cluster) as holdfast:
        run = await running(space, holdfast, pod("other"), job(), retryLimit="0")
        before, pods = identity(await the_job(space)), sorted(one["metadata"]["uid"] for one in await space.pods())
        other, component = (await run.submitted()).components
        path = "spec.components[1].template.spec"
        slips = {
            f"{path}.template.spec.restartPolicy: is not one of the allowed values": changed(
                component, "spec", "template", "spec", "restartPolicy", value="Odd"
            ),
            f"{path}.parallelims: is no field that the API server knows": changed(
                component, "spec", "parallelims", value=3
            ),
        }
        for words, slip in slips.items():
            good = changed(other, "metadata", "labels", value={"colour": "blue"})
            with pytest.raises(HoldfastError) as caught:
                await run.update_components(ComponentsChange(components=(good, slip), note="a slip"))
            assert words in str(caught.value)
        status = await space.reach(run.handle, "Running")
        assert (status.attempt, status.restarts) == (1, 0)
        assert identity(await the_job(space)) == before
        assert sorted(one["metadata"]["uid"] for one in await space.pods()) == pods
        assert await told(space, "ConfigurationChanged") == []
        await space.truth.settle()
        runner = f"system:serviceaccount:{space.namespace}:"
        asked = [one.verb for one in space.truth.requests() if one.user.startswith(runner)]
        assert "delete" not in asked, "nothing was removed for it"
        assert await run.update_components(ComponentsChange(components=(component,))) == (), "nor is it remembered"
        await run.cancel(wait=True)
