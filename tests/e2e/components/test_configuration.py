"""A configuration that changes reaches every pod that reads it, and none that does not; no stale one is made (S8)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from temporalio.client import WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError

from holdfast import names
from holdfast.local import Stack
from holdfast.model import Component, Workload
from tests.e2e.ground.proxy import Proxy, api_proxy
from tests.e2e.ground.site import Site, open_site, until
from tests.e2e.ground.space import Handle, Space, open_space
from tests.e2e.lives.streams import cancelled, config_map, everything, let_pods, pe, says, shows, streams, told, uids

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300), pytest.mark.asyncio(loop_scope="session")]
ROW = pytest.mark.row


@pytest_asyncio.fixture(loop_scope="session")
async def far(stack: Stack, tmp_path: Path) -> AsyncIterator[tuple[Space, Proxy]]:
    """A namespace on a site from whose worker the API server can be taken away."""
    async with open_site(stack, tmp_path, prefix="p") as site, api_proxy(site.kubeconfig, tmp_path) as (proxy, config):
        await site.start_worker(kubeconfig=config)
        async with open_space(site) as opened:
            yield opened, proxy


def workload_of(site: Site, namespace: str) -> Workload:
    """Return two elements that read the ConfigMap, and one that does not."""
    return site.read(streams(config_map(), pe(0), pe(1), pe(2, reads="")), namespace)


def changed(workload: Workload, **data: str) -> Component:
    """Return the workload's ConfigMap with other content."""
    first = workload.components[0]
    return first.model_copy(update={"template": {**first.template, "data": data}})


def with_component(workload: Workload, component: Component) -> Workload:
    return workload.with_components([component if one.name == component.name else one for one in workload.components])


async def update(handle: Handle, *components: Component, note: str = "") -> tuple[datetime, list[str]]:
    """Change the configuration; return from when on nothing is made of the old one, and what is made again."""
    documents = [one.model_dump(mode="json", by_alias=True) for one in components]
    again: list[str] = await handle.execute_update(names.UPDATE_COMPONENTS, {"components": documents, "note": note})
    return datetime.now(UTC), again


def hash_on(pod: dict[str, Any]) -> str:
    return pod["metadata"]["annotations"][names.ANNOTATION_CONFIG_HASH]


async def current(space: Space, workload: Workload) -> bool:
    """Whether each pod is there, runs, and bears the hash of this configuration."""
    pods = {pod["metadata"]["name"]: pod for pod in await space.pods()}
    expected = {one.template["metadata"]["name"]: one for one in workload.components if one.expected_pods}
    return pods.keys() == expected.keys() and all(
        hash_on(pod) == workload.config_hashes[expected[name].name] and pod["status"].get("phase") == "Running"
        for name, pod in pods.items()
    )


def assert_none_stale(space: Space, workload: Workload, accepted: datetime) -> None:
    """No pod was made of an old configuration after the change was accepted, by the audit log."""
    hashes = {one.template["metadata"]["name"]: workload.config_hashes[one.name] for one in workload.components}
    made = [
        (one.name, one.body["metadata"]["annotations"].get(names.ANNOTATION_CONFIG_HASH))
        for one in space.truth.requests()
        if (one.verb, one.resource, one.subresource) == ("create", "pods", "") and one.time > accepted
    ]
    assert made, "something was made again"
    assert [(name, hash_) for name, hash_ in made if hash_ != hashes[name]] == []


@ROW("S8", level="e2e")
async def test_S8_a_change_while_the_worker_is_away_reaches_all_pods_that_read_it(alone: Space):
    workload = workload_of(alone.site, alone.namespace)
    handle = await alone.submit(workload)
    await alone.reach(handle, "Running")
    assert await current(alone, workload)
    before, kept = await uids(alone), await everything(alone)
    alone.site.workers[-1].kill()
    component = changed(workload, adl="v2")
    # Nobody is there to accept it, so it waits; a deleted pod is another reason to make one of them again.
    waiting = asyncio.create_task(update(handle, component, note="a new ADL"))
    await alone.delete("v1", "Pod", "pe-1")
    await asyncio.sleep(2)
    assert not waiting.done()
    await alone.site.start_worker()
    accepted, again = await asyncio.wait_for(waiting, 60)
    assert again == ["0-configmap-adl", "1-pod-pe-0", "2-pod-pe-1"]

    later = with_component(workload, component)
    await until(lambda: current(alone, later), 90, "all bear the new configuration")
    after = await everything(alone)
    assert after["Pod", "pe-2"] == kept["Pod", "pe-2"], "what does not read it is left alone"
    assert (await uids(alone)).keys() == before.keys()
    found = await alone.site.kube.get("v1", "ConfigMap", "adl", alone.namespace)
    assert found["data"] == {"adl": "v2"}
    await alone.truth.settle()
    assert_none_stale(alone, later, accepted)
    status = await alone.reach(handle, "Running")
    assert (status.attempt, status.executions, status.restarts) == (1, 1, 0)
    assert "0-configmap-adl, 1-pod-pe-0, 2-pod-pe-1 changed: a new ADL" in [
        message for _, message in await told(alone, "ConfigurationChanged")
    ]
    await cancelled(handle)


@ROW("S8", level="e2e")
async def test_S8_a_change_while_the_api_server_is_away_is_taken_when_it_answers(far: tuple[Space, Proxy]):
    space, proxy = far
    workload = workload_of(space.site, space.namespace)
    handle = await space.submit(workload)
    await space.reach(handle, "Running")
    await shows(space, "Running")
    kept = await everything(space)
    proxy.black_hole()
    component = changed(workload, adl="v2")
    waiting = asyncio.create_task(update(handle, component))
    await asyncio.sleep(5)
    assert not waiting.done(), "what is not known is not accepted"
    assert (await everything(space))["Pod", "pe-0"] == kept["Pod", "pe-0"]
    await proxy.heal()
    accepted, again = await asyncio.wait_for(waiting, 90)
    assert again == ["0-configmap-adl", "1-pod-pe-0", "2-pod-pe-1"]
    later = with_component(workload, component)
    await until(lambda: current(space, later), 120, "all bear the new configuration")
    await space.truth.settle()
    assert_none_stale(space, later, accepted)
    assert (await everything(space))["Pod", "pe-2"] == kept["Pod", "pe-2"]
    assert (await space.reach(handle, "Running")).attempt == 1
    await cancelled(handle)


@ROW("S8", level="e2e")
async def test_S8_a_change_about_which_nothing_is_known_is_refused_and_changes_nothing(far: tuple[Space, Proxy]):
    space, proxy = far
    workload = workload_of(space.site, space.namespace)
    handle = await space.submit(workload)
    await space.reach(handle, "Running")
    await shows(space, "Running")
    kept = await everything(space)
    proxy.black_hole()
    component = changed(workload, adl="v2")
    with pytest.raises(WorkflowUpdateFailedError) as caught:
        await update(handle, component)
    assert isinstance(caught.value.cause, ApplicationError)
    assert caught.value.cause.message.startswith(
        "nothing was changed: it is not known whether the API server would take it"
    )
    await proxy.heal()
    status = await space.reach(handle, "Running")
    assert (status.attempt, status.executions) == (1, 1)
    assert await everything(space) == kept
    assert await told(space, "ConfigurationChanged") == []
    _, again = await update(handle, component)
    assert again == ["0-configmap-adl", "1-pod-pe-0", "2-pod-pe-1"], "asked again, it is taken"
    await until(lambda: current(space, with_component(workload, component)), 120, "all bear the new configuration")
    await cancelled(handle)


@ROW("S8", level="e2e")
async def test_S8_a_change_while_a_pod_is_being_made_again_is_what_it_is_made_of(space: Space):
    workload = workload_of(space.site, space.namespace)
    handle = await space.submit(workload)
    await space.reach(handle, "Running")
    await let_pods(space, 2)
    await space.delete("v1", "Pod", "pe-0")
    await says(handle, "creating Pod pe-0", "exceeded quota")
    component = changed(workload, adl="v2")
    accepted, again = await update(handle, component)
    assert again == ["0-configmap-adl", "1-pod-pe-0", "2-pod-pe-1"]
    await let_pods(space, 10)
    later = with_component(workload, component)
    await until(lambda: current(space, later), 90, "all bear the new configuration")
    await space.truth.settle()
    assert_none_stale(space, later, accepted)
    await cancelled(handle)


@ROW("S8", level="e2e")
async def test_S8_a_change_during_the_submission_begins_it_anew(space: Space):
    workload = workload_of(space.site, space.namespace)
    await let_pods(space, 1)
    handle = await space.submit(workload)
    await says(handle, "creating Pod pe-1", "exceeded quota")
    component = changed(workload, adl="v2")
    accepted, _ = await update(handle, component)
    await let_pods(space, 10)
    status = await space.reach(handle, "Running", 2)
    assert (status.restarts, [one.used for one in status.budgets]) == (0, [0])
    later = with_component(workload, component)
    assert await current(space, later)
    await space.truth.settle()
    assert_none_stale(space, later, accepted)
    space.truth.assert_one_attempt_at_a_time("pe-0")
    await cancelled(handle)


@ROW("S8", level="e2e")
@pytest.mark.parametrize("during", ["submission", "replacement"])
async def test_S8_nothing_stale_is_made_from_the_moment_a_change_is_accepted(space: Space, during: str):
    """What is under way with the old configuration is held back here until the change is in, and no longer."""
    workload = workload_of(space.site, space.namespace)
    if during == "submission":
        await let_pods(space, 1)
        handle = await space.submit(workload)
        await says(handle, "creating Pod pe-1", "exceeded quota")
    else:
        handle = await space.submit(workload)
        await space.reach(handle, "Running")
        await let_pods(space, 2)
        await space.delete("v1", "Pod", "pe-0")
        await says(handle, "creating Pod pe-0", "exceeded quota")
    component = changed(workload, adl="v2")
    accepted, _ = await update(handle, component)
    await let_pods(space, 10)
    later = with_component(workload, component)
    await until(lambda: current(space, later), 90, "all bear the new configuration")
    await space.truth.settle()
    assert_none_stale(space, later, accepted)
    await cancelled(handle)


@ROW("S8", level="e2e")
async def test_S8_what_a_change_may_not_do_is_refused_with_its_path(space: Space):
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "front"},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": "front"}},
            "template": {
                "metadata": {"labels": {"app": "front"}},
                "spec": {
                    "nodeSelector": {"holdfast.dev/node": "fake"},
                    "containers": [{"name": "main", "image": "example.com/pe:1"}],
                },
            },
        },
    }
    document = streams(config_map(), pe(0), deployment)
    workload = space.site.read(document, space.namespace)
    handle = await space.submit(workload)
    await space.reach(handle, "Running")
    await shows(space, "Running")

    async def settled() -> bool:
        sets = await space.site.objects("apps/v1", "ReplicaSet", space.namespace)
        found = await space.site.kube.get("apps/v1", "Deployment", "front", space.namespace)
        status, reasons = found["status"], {one.get("reason") for one in found["status"].get("conditions", ())}
        return (
            [one["status"].get("availableReplicas") for one in sets] == [1]
            and status.get("availableReplicas") == 1
            and status.get("observedGeneration") == found["metadata"]["generation"]
            and "NewReplicaSetAvailable" in reasons
        )

    await until(settled, 60, "its controllers have said their last word")
    kept = await everything(space)

    async def refusal(component: Component) -> str:
        with pytest.raises(WorkflowUpdateFailedError) as caught:
            await update(handle, component)
        cause = caught.value.cause
        assert isinstance(cause, ApplicationError)
        return cause.message

    adl, element, front = workload.components
    renamed = {**adl.template, "metadata": {**adl.template["metadata"], "name": "other"}}
    assert await refusal(adl.model_copy(update={"template": renamed})) == (
        "components.0-configmap-adl.template.metadata.name: expected 'adl' as before"
    )
    assert await refusal(adl.model_copy(update={"name": "nobody"})) == (
        "components.nobody: expected one of 0-configmap-adl, 1-pod-pe-0, 2-deployment-front"
    )
    secret = {**adl.template, "kind": "Secret"}
    assert await refusal(adl.model_copy(update={"template": secret})) == (
        "components.0-configmap-adl.template.kind: expected 'ConfigMap' as before"
    )
    sets = (front.pod_sets[0].model_copy(update={"replicas": 3}),)
    message = await refusal(front.model_copy(update={"pod_sets": sets}))
    assert message.startswith("components.2-deployment-front.podSets: expected the same pods as before")
    assert "nothing" in await refusal(element.model_copy(update={"config": ("nothing",)}))

    _, again = await update(handle, adl, element, front)
    assert again == [], "what stays the same is no change"
    await asyncio.sleep(2)
    assert await everything(space) == kept
    await cancelled(handle)
