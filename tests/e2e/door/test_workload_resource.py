"""`kind: Workload` by kubectl: the request, and its life as kubectl, Argo CD and Flux read it (rows F17, E10)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from holdfast import names
from holdfast.local import StackError
from holdfast.model import Phase
from tests.e2e.door.front_door import applied, conditions, job
from tests.e2e.door.test_front_door_askers import ALICE, create, permitted
from tests.e2e.ground.site import Site, until
from tests.e2e.ground.space import Handle, Space, open_space
from tests.e2e.ground.terminal import command, run

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400), pytest.mark.asyncio(loop_scope="session")]
ROW = pytest.mark.row
KIND = (names.API_VERSION, "Workload")
RESOURCE = "workloads.holdfast.dev"
NOW = {"failureGracePeriod": "0s", "retryPausePeriod": "1s"}


@pytest_asyncio.fixture(loop_scope="session")
async def door(shared_site: Site) -> AsyncIterator[Space]:
    """A namespace whose Workloads are watched too."""
    async with open_space(shared_site, KIND) as opened:
        yield opened


def workload(space: Space, *components: dict[str, Any], name: str = "train", **spec: Any) -> dict[str, Any]:
    """Return a Workload that this site's workers are to run."""
    named = [{"name": f"c{at}", **one} for at, one in enumerate(components or [job()])]
    return {
        "apiVersion": KIND[0],
        "kind": KIND[1],
        "metadata": {"name": name, "namespace": space.namespace},
        "spec": {"managedBy": space.site.managed_by, "components": named, **spec},
    }


async def kubectl(space: Space, *argv: str, stdin: str | None = None) -> str:
    """Run kubectl in the namespace; return what it printed, or how it was refused."""
    try:
        return await asyncio.to_thread(space.site.stack.kubectl, "--namespace", space.namespace, *argv, stdin=stdin)
    except StackError as error:
        return str(error)


async def shows(space: Space, what: Callable[[dict[str, Any]], object], why: str) -> dict[str, Any]:
    """Wait until the Workload's own status is so, and return it."""
    found: dict[str, Any] | None = None

    async def so() -> bool:
        nonlocal found
        found = await space.site.kube.find(*KIND, "train", space.namespace)
        return found is not None and bool(what(found))

    try:
        await until(so, 120, why)
    except AssertionError:
        raise AssertionError(f"{why}: {found and found.get('status')}") from None
    assert found is not None
    return found


def in_phase(phase: str) -> Callable[[dict[str, Any]], bool]:
    return lambda found: found.get("status", {}).get("phase") == phase


async def ready(space: Space) -> None:
    """Wait as Flux and scripts do, by the conditions alone."""
    waited = await kubectl(space, "wait", "--for=condition=Ready", "--timeout=100s", f"{RESOURCE}/train")
    assert "condition met" in waited, waited


async def gone(space: Space) -> None:
    async def is_gone() -> bool:
        return await space.site.kube.find(*KIND, "train", space.namespace) is None

    await until(is_gone, 120, "the Workload is gone")


@ROW("F17", level="e2e")
async def test_F17_an_applied_workload_lives_as_a_submitted_one_and_kubectl_shows_it(door: Space):
    handle = await applied(door, workload(door, job(pods=2)))
    await ready(door)
    found = await shows(door, in_phase("Running"), "it runs")
    status = await door.site.status(handle)
    assert status.uid == found["metadata"]["uid"], "the same life is seen by CLI and UI"
    assert found["status"]["observedGeneration"] == found["metadata"]["generation"] == 1
    assert {one: conditions(found)[one] for one in ("Ready", "Reconciling", "Stalled", "PodsReady")} == {
        "Ready": "True",
        "Reconciling": "False",
        "Stalled": "False",
        "PodsReady": "True",
    }
    printed = (await kubectl(door, "get", "hfw", "train")).splitlines()
    assert printed[0].split() == ["NAME", "PHASE", "REASON", "ATTEMPT", "RESTARTS", "AGE"]
    assert printed[1].split()[:5] == ["train", "Running", "SufficientPodsReady", "1", "0"]
    assert "train" in await kubectl(door, "get", "holdfast"), "the category has it"
    assert not (await door.site.kube.list(names.API_VERSION, names.ANCHOR_KIND, door.namespace))["items"]
    assert "2 of 2 pods run" in await command(door.site, "explain", f"{door.namespace}/train")
    await door.complete("train")
    found = await shows(door, in_phase("Succeeded"), "it has succeeded")
    assert conditions(found)["Ready"] == "True"


@ROW("F17", level="e2e")
async def test_F17_a_reset_is_reconciling_and_a_failure_is_stalled(door: Space):
    budgets = [{"name": "restart", "limit": 1}]
    await applied(door, workload(door, policy={"timings": NOW, "budgets": budgets}))
    await ready(door)
    await door.fail_pod("train")
    found = await shows(door, lambda one: one["status"]["restarts"] == 1, "it is reset")
    await shows(door, lambda one: one["status"]["attempt"] == 2 and conditions(one)["Ready"] == "True", "it runs again")
    assert found["status"]["phase"] != "Failed"
    await door.fail_pod("train")
    found = await shows(door, in_phase("Failed"), "its budget is used up")
    assert conditions(found)["Stalled"] == "True"
    assert conditions(found)["Ready"] == conditions(found)["Reconciling"] == "False"
    assert (found["status"]["restarts"], found["status"]["attempt"]) == (1, 2)


@ROW("F17", level="e2e")
@ROW("F4", level="e2e")
async def test_F17_it_is_suspended_and_resumed_and_nothing_else_of_it_changes(door: Space):
    await applied(door, workload(door))
    await ready(door)

    async def patch(**spec: Any) -> str:
        return await kubectl(door, "patch", RESOURCE, "train", "--type=merge", "-p", json.dumps({"spec": spec}))

    assert "patched" in await patch(suspend=True)
    found = await shows(door, in_phase("Suspended"), "it is suspended")
    assert not await door.pods("train")
    assert found["status"]["observedGeneration"] == found["metadata"]["generation"] == 2
    refused = {
        "priority": {"priority": 3},
        "components": {"components": []},
        "policy": {"policy": {"timings": NOW}},
        "runAs": {"runAs": "other"},
        "managedBy": {"managedBy": "holdfast.dev/other"},
    }
    for field, change in refused.items():
        assert f"spec.{field}: Invalid value" in await patch(**change), field
    assert "patched" in await patch(suspend=False)
    await ready(door)


@ROW("F17", level="e2e")
@pytest.mark.parametrize("propagation", ["Background", "Foreground"])
async def test_F17_a_deleted_workload_goes_last(door: Space, propagation: str):
    handle = await applied(door, workload(door, job(pods=2)))
    await ready(door)
    await door.delete(*KIND, "train", propagation=propagation)
    await gone(door)
    assert not await door.pods("train")
    status = await door.ended(handle)
    assert status.phase is Phase.CANCELLED


@ROW("F17", level="e2e")
@ROW("F3", level="e2e")
async def test_F17_one_that_is_deleted_leaves_nothing_behind(door: Space):
    await applied(door, workload(door))
    await ready(door)
    said = await kubectl(door, "delete", f"{RESOURCE}/train", "--cascade=orphan")
    assert "expected Background or Foreground, since what it owns is removed with it" in said
    assert (await shows(door, in_phase("Running"), "it still runs"))["metadata"].get("deletionTimestamp") is None


@ROW("F17", level="e2e")
async def test_F17_the_api_server_describes_its_fields_and_refuses_others(door: Space):
    told = await kubectl(door, "explain", f"{RESOURCE}.spec.policy.timings.retryPausePeriod")
    assert "The pause between the removal of one attempt and the next." in told
    wrong = {
        'unknown field "spec.priorty"': {"priorty": 3},
        "spec.priority in body should be less than or equal to 10": {"priority": 11},
        'Unsupported value: "job": supported values: "batch", "interactive", "service"': {"kind": "job"},
        "spec.managedBy in body should match": {"managedBy": "example.com/other"},
    }
    for expected, spec in wrong.items():
        document = json.dumps(workload(door, **spec))
        assert expected in await kubectl(door, "create", "--validate=strict", "-f", "-", stdin=document)


@ROW("F17", level="e2e")
@ROW("E10", level="e2e")
async def test_F17_what_only_holdfast_finds_wrong_is_told_in_its_status(door: Space):
    nothing = {"name": "train", "match": {"components": ["nobody"]}, "action": {"kind": "Fail"}}
    await applied(door, workload(door, policy={"rules": [nothing]}))
    found = await shows(door, in_phase("Failed"), "it is refused")
    assert found["status"]["reason"] == "Refused"
    assert "'nobody' names no component" in found["status"]["message"]
    assert conditions(found)["Stalled"] == "True"
    assert "Refused" in await kubectl(door, "get", "hfw")


@ROW("F17", level="e2e")
@ROW("F5", level="e2e")
@ROW("F13", level="e2e")
async def test_F17_who_may_create_it_may_create_what_it_is_made_of_and_is_named(door: Space):
    rules = [(names.GROUP, "workloads", "create,get"), ("batch", "jobs", "create")]
    await permitted(door, ALICE, rules)
    pod = {"template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {}}}
    said = await create(door, ALICE, workload(door, pod))
    assert f"{ALICE} may not create pods in namespace {door.namespace}" in said, said
    claim = {"name": "data", "spec": {"accessModes": ["ReadWriteOnce"]}}
    said = await create(door, ALICE, workload(door, volumeClaims=[claim]))
    assert f"{ALICE} may not create persistentvolumeclaims in namespace {door.namespace}" in said, said
    said = await create(door, ALICE, workload(door, runAs="builder"))
    assert f"spec.runAs: {ALICE} may not use serviceaccounts builder" in said, said
    handle: Handle = door.site.client.get_workflow_handle(names.workflow_id(door.site.cluster, door.namespace, "train"))
    door.handles.append(handle)
    assert "created" in await create(door, ALICE, workload(door))
    await ready(door)

    async def named() -> bool:
        return ALICE in await command(door.site, "explain", f"{door.namespace}/train")

    await until(named, 30, "`explain` names who asked for it")


@ROW("F17", level="e2e")
@ROW("E10", level="e2e")
async def test_F17_a_name_that_another_workload_has_is_blocked_and_says_by_whom(door: Space):
    other = await door.submit(workload(door))
    await door.site.reach(other, "Running")
    await door.site.kube.create(workload(door))
    found = await shows(door, in_phase("Pending"), "it is blocked")
    assert found["status"]["reason"] == "Blocked"
    assert (await door.site.status(other)).uid in found["status"]["message"]
    await other.signal(names.SIGNAL_CANCEL, "over")
    await ready(door)


@ROW("F17", level="e2e")
@ROW("E10", level="e2e")
async def test_E10_one_that_waits_in_a_queue_is_seen_and_says_why(door: Space, tmp_path: Path):
    queue = f"q-{door.namespace[-6:]}"
    file = tmp_path / "queue.yaml"
    file.write_text(
        f"apiVersion: holdfast.dev/v1\nkind: Queue\nmetadata: {{name: {queue}}}\nspec: {{quota: {{pods: 1}}}}\n"
    )
    await command(door.site, "queue", "apply", str(file))
    try:
        first = await applied(door, workload(door, job("first"), name="first", queue=queue))
        await door.site.reach(first, "Running")
        await applied(door, workload(door, queue=queue))
        found = await shows(door, in_phase("Pending"), "it waits")
        assert found["status"]["reason"] == "Queued"
        assert conditions(found)["Reconciling"] == "True"
        assert "Queued" in await kubectl(door, "get", "hfw", "train")
        await first.signal(names.SIGNAL_CANCEL, "over")
        await ready(door)
    finally:
        await run(door.site, "cancel", "--all", "--yes", "--wait", "-n", door.namespace)  # Also where the test failed.
        await command(door.site, "queue", "delete", queue)
