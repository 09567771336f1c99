"""Components created in order (row J13), on real controllers: after Ready and Complete, a reset, a kill."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from holdfast import names
from holdfast.activities.kube.client import NotFound
from holdfast.local import Stack
from holdfast.model import OperationKind
from tests.e2e.crash.scene import Scene, open_scene
from tests.e2e.ground.site import Site, job, until
from tests.e2e.ground.space import Handle, Space

ROW = pytest.mark.row("J13", level="e2e")
SESSION = pytest.mark.asyncio(loop_scope="session")
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
HELD = {"holdfast.dev/kwok-hold": "true"}
TIMINGS = {"failureGracePeriod": "1s", "admissionGracePeriod": "60s", "warmupGracePeriod": "120s"}


def document(*components: tuple[dict[str, Any], dict[str, str]]) -> str:
    """Return our own document: Jobs, each with what it waits for."""
    made = [
        {
            "name": one["template"]["metadata"]["name"],
            **one,
            "after": [{"component": name, "status": status} for name, status in after.items()],
        }
        for one, after in components
    ]
    policy = {"timings": {**TIMINGS, "retryPausePeriod": "1s", "successTtl": "2s"}}
    return yaml.safe_dump(
        {
            "apiVersion": names.API_VERSION,
            "kind": "Workload",
            "metadata": {"name": "train"},
            "spec": {"components": made, "policy": policy},
        }
    )


async def found(site: Site, namespace: str, name: str) -> dict[str, Any] | None:
    try:
        return await site.kube.get("batch/v1", "Job", name, namespace)
    except NotFound:
        return None


async def let_run(site: Site, namespace: str, component: str) -> None:
    """Let the pods of a component run that are held back."""
    labels = f"{names.LABEL_COMPONENT}={component}"
    for pod in await site.objects("v1", "Pod", namespace, labels):
        uid, name = pod["metadata"]["uid"], pod["metadata"]["name"]
        patch = {"metadata": {"labels": {"holdfast.dev/kwok-hold": None}}}
        await site.kube.patch("v1", "Pod", name, namespace, uid=uid, patch=patch)


async def complete(space: Space, component: str) -> None:
    for pod in await space.site.objects("v1", "Pod", space.namespace, f"{names.LABEL_COMPONENT}={component}"):
        await space.site.annotate("Pod", pod["metadata"]["name"], space.namespace, kwok_complete="0s")


async def starting(space: Space, handle: Handle) -> None:
    """Wait until the first components have been created, with their pods, and others wait."""

    async def waits() -> bool:
        status = await space.site.status(handle)
        return status.reason == "Starting" and bool(await space.pods())

    await until(waits, 60, "the first components are there")


@ROW
@SESSION
async def test_J13_the_second_is_created_once_the_first_is_ready(space: Space):
    handle = await space.submit(document((job("first", 2, labels=HELD), {}), (job("second", 1), {"first": "Ready"})))
    await starting(space, handle)
    explanation = await space.explain(handle)
    assert "Job second is created once Job first is ready" in explanation.now
    status = await space.site.status(handle)
    assert (status.pods.expected, status.phase) == (2, "Resuming")
    assert await found(space.site, space.namespace, "second") is None
    await let_run(space.site, space.namespace, "first")
    status = await space.reach(handle, "Running", 1)
    assert (status.pods.expected, status.pods.running, status.restarts) == (3, 3, 0)
    (why,) = [one.message for one in status.causes if one.reason == "Starting"]
    assert why == "Job first is ready: creating Job second"
    acts = [act.name for act in await space.acts(handle)]
    assert (acts.count(OperationKind.PREPARE), acts.count(OperationKind.REPLACE)) == (1, 1)
    await space.truth.settle()
    space.truth.assert_told_truly("train")
    await space.complete("train")
    assert (await space.ended(handle)).phase == "Succeeded"


@ROW
@SESSION
async def test_J13_the_second_is_created_once_the_first_is_complete(space: Space):
    handle = await space.submit(document((job("first", 1), {}), (job("second", 1), {"first": "Complete"})))
    status = await space.reach(handle, "Running", 1)
    assert (status.pods.expected, await found(space.site, space.namespace, "second")) == (1, None)
    await complete(space, "first")

    async def there() -> bool:
        return await found(space.site, space.namespace, "second") is not None

    await until(there, 60, "the second is created")
    first = await found(space.site, space.namespace, "first")
    assert first is not None
    assert any(one["type"] == "Complete" for one in first["status"]["conditions"])

    async def runs() -> bool:
        status = await space.site.status(handle)
        return (status.phase, status.reason, status.pods.running) == ("Running", "SufficientPodsReady", 1)

    await until(runs, 60, "the second runs")
    await complete(space, "second")
    status = await space.ended(handle)
    assert (status.phase, status.executions, status.restarts) == ("Succeeded", 1, 0)


@ROW
@SESSION
@pytest.mark.parametrize("delay", ["300ms", "600ms", "900ms"])
async def test_J13_the_last_is_told_to_run_although_all_ran_a_moment_before_it_was_made(space: Space, delay: str):
    last = job("second", 1)
    last["template"]["spec"]["template"]["metadata"]["annotations"]["holdfast.dev/kwok-start-delay"] = delay
    handle = await space.submit(document((job("first", 1), {}), (last, {"first": "Ready"})))
    # Long before its warm-up grace ends, by which it would be looked at in any case.
    status = await space.reach(handle, "Running", 1, seconds=60)
    assert (status.pods.running, status.restarts) == (2, 0)
    await space.complete("train")
    assert (await space.ended(handle)).phase == "Succeeded"


@ROW
@SESSION
async def test_J13_a_reset_in_between_begins_with_the_first_again(space: Space):
    handle = await space.submit(
        document(
            (job("first", 1), {}),
            (job("second", 1, labels=HELD), {"first": "Ready"}),
            (job("third", 1), {"second": "Ready"}),
        )
    )

    async def second() -> bool:
        pods = await space.site.objects("v1", "Pod", space.namespace, f"{names.LABEL_COMPONENT}=second")
        return bool(pods)

    await until(second, 60, "the second is there, and held back")
    for pod in await space.site.objects("v1", "Pod", space.namespace, f"{names.LABEL_COMPONENT}=first"):
        name = pod["metadata"]["name"]
        await space.site.annotate("Pod", name, space.namespace, kwok_exit_code="1", kwok_fail="0s")

    async def again() -> bool:
        pods = await space.site.objects("v1", "Pod", space.namespace, f"{names.LABEL_ATTEMPT}=2")
        components = {pod["metadata"]["labels"][names.LABEL_COMPONENT] for pod in pods}
        return components == {"first", "second"}

    await until(again, 90, "the second attempt has come as far")
    assert await found(space.site, space.namespace, "third") is None
    await let_run(space.site, space.namespace, "second")
    status = await space.reach(handle, "Running", 2)
    assert (status.restarts, status.executions) == (1, 2)
    said = [one.message for one in status.causes if one.reason == "Starting"]
    assert said == [
        "Job first is ready: creating Job second",
        "Job first is ready: creating Job second",
        "Job second is ready: creating Job third",
    ]
    await space.truth.settle()
    space.truth.assert_one_attempt_at_a_time("train")
    await space.complete("train")
    assert (await space.ended(handle)).phase == "Succeeded"


@pytest.fixture
async def scene(stack: Stack, tmp_path: Path) -> AsyncIterator[Scene]:
    async with open_scene(stack, tmp_path) as opened:
        yield opened


@ROW
async def test_J13_a_worker_killed_between_two_waves_leaves_none_out_and_makes_none_twice(scene: Scene):
    given = document((job("first", 1, labels=HELD), {}), (job("second", 1), {"first": "Ready"}))
    scene.handles.append(await scene.site.submit(scene.site.read(given, scene.namespace)))
    await scene.until_status(lambda status: status.reason == "Starting", 60, "the first is there")
    await until(scene.pods, 30, "its pod is there")
    await scene.crash()
    await let_run(scene.site, scene.namespace, "first")
    await scene.moved_on()
    await scene.reach("Running", attempt=1)
    created = [one for one in scene.audit.created() if one.startswith("jobs/")]
    assert created == ["jobs/first", "jobs/second"]
    await scene.finish()


@ROW
async def test_J13_a_worker_killed_while_it_makes_the_second_makes_it_once(scene: Scene):
    given = document((job("first", 1), {}), (job("second", 1), {"first": "Ready"}))
    scene.handles.append(await scene.site.submit(scene.site.read(given, scene.namespace)))
    await scene.kill_at(
        lambda each: (each.verb, each.resource, each.name) == ("create", "jobs", "second"), "the second is created"
    )
    await scene.moved_on()
    await scene.reach("Running", attempt=1)
    created = [one for one in scene.audit.created() if one.startswith("jobs/")]
    assert created == ["jobs/first", "jobs/second"]
    await scene.finish()
