"""AppWrappers by kubectl: each is the request, its workflow its life, its status what that says (front-door.md)."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml
from temporalio.client import WorkflowExecutionStatus

from holdfast import names
from holdfast.activities.kube.client import Invalid, KubeError, NotFound
from holdfast.formats.condition import CONDITION, life_in
from holdfast.local import Stack
from holdfast.model import Phase
from tests.e2e.components.test_expected_pods import deployment
from tests.e2e.door.front_door import (
    KIND,
    applied,
    appwrapper,
    conditions,
    followed,
    gone,
    in_phase,
    job,
    read,
    runs,
    said,
    shows,
)
from tests.e2e.ground.site import Site, open_site, until
from tests.e2e.ground.space import Space, open_space, pod

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]
ROW = pytest.mark.row
DEPLOY = Path(__file__).parents[3] / "deploy/appwrapper"
SUSPENDED = "suspend was asked for: spec.suspend of its AppWrapper is true"


@pytest_asyncio.fixture(loop_scope="session")
async def door(shared_site: Site) -> AsyncIterator[Space]:
    """A namespace whose AppWrappers are watched too."""
    async with open_space(shared_site, KIND) as opened:
        yield opened


@pytest.fixture
async def workerless(stack: Stack, tmp_path: Path) -> AsyncIterator[Site]:
    """A site without a worker yet."""
    async with open_site(stack, tmp_path, prefix="d") as site:
        yield site


def controller(thing: dict[str, Any]) -> dict[str, Any]:
    (owner,) = thing["metadata"]["ownerReferences"]
    assert owner["controller"] is True
    return owner


@ROW("F1", level="e2e")
@ROW("F2", level="e2e")
@pytest.mark.asyncio(loop_scope="session")
async def test_F1_an_applied_appwrapper_lives_as_a_submitted_one_and_shows_it(door: Space):
    handle = await applied(door, appwrapper(door, job(pods=2)))
    found = await runs(door)
    uid = found["metadata"]["uid"]
    status = await door.site.status(handle)
    assert (status.phase, status.uid) == (Phase.RUNNING, uid), "the same life is seen by CLI and UI"
    assert found["status"]["phase"] == "Running"
    assert conditions(found) | {CONDITION: "True"} == {
        "QuotaReserved": "True",
        "ResourcesDeployed": "True",
        "PodsReady": "True",
        "Unhealthy": "False",
        CONDITION: "True",
    }
    assert {one["observedGeneration"] for one in found["status"]["conditions"]} == {1}
    (component,) = found["status"]["componentStatus"]
    assert (component["name"], component["kind"], component["apiVersion"]) == ("work", "Job", "batch/v1")
    assert component["podSets"] == [{"path": "template.spec.template", "replicas": 2}]
    assert names.FINALIZER in found["metadata"]["finalizers"]
    # The chain of controllers ends at what the user applied, and nothing else stands for it.
    made = await door.site.kube.get("batch/v1", "Job", "work", door.namespace)
    attempt = await door.site.kube.get(names.API_VERSION, names.ATTEMPT_KIND, controller(made)["name"], door.namespace)
    assert controller(made)["kind"] == names.ATTEMPT_KIND
    assert (controller(attempt)["kind"], controller(attempt)["uid"]) == (KIND[1], uid)
    assert not (await door.site.kube.list(names.API_VERSION, names.ANCHOR_KIND, door.namespace))["items"]
    events = (await door.site.kube.list("v1", "Event", door.namespace))["items"]
    ours = {one["reason"] for one in events if one["involvedObject"]["uid"] == uid}
    assert "SubmissionSucceeded" in ours, "kubectl describe tells its causes"
    await door.complete("train")
    found = await shows(door, in_phase("Succeeded"), "it has succeeded")
    assert found["status"]["resettingCount"] == 0
    assert conditions(found)["QuotaReserved"] == "False"


@ROW("F2", level="e2e")
@pytest.mark.asyncio(loop_scope="session")
async def test_F2_a_reset_shows_with_its_count_and_its_phases_in_order(door: Space):
    grace = {"failureGracePeriodDuration": "0s", "retryPausePeriodDuration": "1s"}
    seen: list[dict[str, Any]] = []
    begun = asyncio.Event()
    following = asyncio.create_task(followed(door, seen, begun=begun))
    await begun.wait()
    await applied(door, appwrapper(door, pod("worker"), **grace))
    await runs(door)
    await door.fail_pod("train")
    found = await shows(
        door,
        lambda one: one["status"]["resettingCount"] == 1 and conditions(one)["PodsReady"] == "True",
        "it runs again, reset once",
    )
    life = life_in(found["status"])
    assert life is not None
    assert (life.attempt, life.phase) == (2, Phase.RUNNING)
    following.cancel()
    phases = [one.get("phase", "") for one in seen]
    turns = [phase for at, phase in enumerate(phases) if not at or phases[at - 1] != phase]
    assert turns == ["", "Resuming", "Running", "Resetting", "Resuming", "Running"], "transient ones are visible"
    sequences = [life.sequence for one in seen if (life := life_in(one))]
    assert sequences == sorted(sequences), "no report is overtaken by an earlier one"


@ROW("F3", level="e2e")
@pytest.mark.parametrize("propagation", ["Background", "Foreground"])
@pytest.mark.asyncio(loop_scope="session")
async def test_F3_a_deleted_appwrapper_goes_last(door: Space, propagation: str):
    handle = await applied(door, appwrapper(door, job(pods=2)))
    await runs(door)
    await door.delete(*KIND, "train", propagation=propagation)
    await gone(door)
    assert not await door.pods("train")
    with pytest.raises(NotFound):
        await door.site.kube.get("batch/v1", "Job", "work", door.namespace)
    status = await door.ended(handle)
    assert status.phase is Phase.CANCELLED
    (said_,) = (one.message for one in status.causes if "its AppWrapper was deleted in the cluster" in one.message)
    assert ("in the foreground: the cluster deletes its pods at once" in said_) is (propagation == "Foreground")


@ROW("F4", level="e2e")
@pytest.mark.asyncio(loop_scope="session")
async def test_F4_suspension_and_what_kueue_adds_are_obeyed(door: Space):
    handle = await applied(door, appwrapper(door, job(), suspend=True))
    found = await shows(door, in_phase("Suspended"), "it begins suspended")
    assert conditions(found)["QuotaReserved"] == "False"
    info = {
        "labels": {"example.com/flavor": "spot"},
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"key": "spot", "operator": "Exists"}],
    }
    component = {**found["spec"]["components"][0], "podSetInfos": [info]}
    await door.patch(*KIND, "train", {"spec": {"suspend": False, "components": [component]}})
    found = await runs(door)
    (pod_,) = await door.pods("train")
    assert pod_["metadata"]["labels"]["example.com/flavor"] == "spot"
    assert pod_["spec"]["nodeSelector"] == {"holdfast.dev/node": "fake", "kubernetes.io/os": "linux"}
    assert any(one["key"] == "spot" for one in pod_["spec"]["tolerations"])
    component = {**component, "podSetInfos": None}
    await door.patch(*KIND, "train", {"spec": {"suspend": True, "components": [component]}})
    found = await shows(door, in_phase("Suspended"), "it is suspended again")
    assert conditions(found)["QuotaReserved"] == "False"
    assert not await door.pods("train"), "quota is let go of only once no pod is left"
    component = {**component, "podSetInfos": [{"labels": {"example.com/flavor": "reserved"}}]}
    await door.patch(*KIND, "train", {"spec": {"suspend": False, "components": [component]}})
    await runs(door)
    (pod_,) = await door.pods("train")
    assert pod_["metadata"]["labels"]["example.com/flavor"] == "reserved"
    assert pod_["spec"]["nodeSelector"] == {"holdfast.dev/node": "fake"}, "nothing is left of the admission before"
    status = await door.site.status(handle)
    assert any(one.message.startswith(SUSPENDED) for one in status.causes)
    assert all(budget.used == 0 for budget in status.budgets)


@ROW("F4", level="e2e")
@pytest.mark.asyncio(loop_scope="session")
async def test_F4_what_was_checked_once_cannot_be_changed(door: Space):
    await applied(door, appwrapper(door, job()))
    found = await runs(door)
    (component,) = found["spec"]["components"]
    template = {**component["template"], "metadata": {"name": "other"}}
    changed: dict[str, dict[str, Any]] = {
        "spec.managedBy: is immutable": {"managedBy": "example.com/other"},
        "spec.components[*].template: is immutable": {"components": [{**component, "template": template}]},
        "spec.components[*].podSets: are immutable": {
            "components": [{**component, "podSets": [{"path": "template.spec.template", "replicas": 3}]}]
        },
    }
    for why, patch in changed.items():
        with pytest.raises(KubeError) as refused:
            await door.patch(*KIND, "train", {"spec": patch})
        assert why in refused.value.message
        assert isinstance(refused.value, Invalid)
    for setting in ("workload.codeflare.dev.appwrapper/retryLimit", "holdfast.dev/retryLimit"):
        with pytest.raises(Invalid, match=r"metadata\.annotations: settings are immutable"):
            await door.patch(*KIND, "train", {"metadata": {"annotations": {setting: "7"}}})
    await door.patch(*KIND, "train", {"metadata": {"annotations": {"example.com/note": "hello"}}})
    await door.patch(*KIND, "train", {"spec": {"suspend": True}})
    await shows(door, in_phase("Suspended"), "an update that is allowed is obeyed")


@ROW("F11", level="e2e")
@pytest.mark.asyncio(loop_scope="session")
async def test_F11_scaled_in_place_it_shows_what_was_admitted_and_at_0_it_is_held(door: Space):
    await applied(door, appwrapper(door, deployment(3), warmupGracePeriodDuration="60s"))
    await runs(door)

    async def scaled(replicas: int, says: str) -> dict[str, Any]:
        await door.patch("apps/v1", "Deployment", "serve", {"spec": {"replicas": replicas}})

        def knows(one: dict[str, Any]) -> bool:
            told = {each["type"]: each.get("message", "") for each in one["status"]["conditions"]}
            return says in told["QuotaReserved"] + told[CONDITION]

        return await shows(door, knows, f"scaled to {replicas} it says {says!r}")

    found = await scaled(5, "asks for 5 pods, 2 more than the declared 3")
    assert (found["status"]["phase"], conditions(found)["PodsReady"]) == ("Running", "True")
    found = await scaled(0, "Deployment serve is scaled to 0")
    life = life_in(found["status"])
    assert life is not None
    assert (life.reason, conditions(found)["Unhealthy"]) == ("Held", "False")
    assert found["status"]["phase"] not in {"Succeeded", "Failed"}
    assert conditions(found)["QuotaReserved"] == "True", "whoever scaled it down may scale it up again"
    await door.patch("apps/v1", "Deployment", "serve", {"spec": {"replicas": 2}})
    found = await shows(
        door, lambda one: conditions(one)["PodsReady"] == "True" and in_phase("Running")(one), "it runs"
    )
    assert found["status"].get("resettingCount", 0) == 0


@ROW("F7", level="e2e")
@pytest.mark.asyncio(loop_scope="session")
async def test_F7_of_two_edits_in_a_row_the_last_word_wins(door: Space):
    await applied(door, appwrapper(door, job()))
    found = await runs(door)
    for suspend in (True, False, True, False, True):
        await door.patch(*KIND, "train", {"spec": {"suspend": suspend}})
    found = await shows(door, in_phase("Suspended"), "it is suspended")
    await asyncio.sleep(2)
    found = await shows(door, in_phase("Suspended"), "it stays so")
    assert found["metadata"]["generation"] == 6
    for suspend in (False, True, False):
        await door.patch(*KIND, "train", {"spec": {"suspend": suspend}})
    await runs(door)


@ROW("F1", level="e2e")
@pytest.mark.asyncio(loop_scope="session")
async def test_F1_what_cannot_be_run_says_why_in_its_status_and_makes_nothing(door: Space):
    wrong = job()
    wrong["podSets"] = [{"path": "template.spec.template", "replicas": 3}]
    await applied(door, appwrapper(door, wrong))
    found = await shows(door, in_phase("Failed"), "it is refused")
    assert "spec.components[0].podSets[0].replicas" in said(found)

    async def is_told() -> bool:
        events = (await door.site.kube.list("v1", "Event", door.namespace))["items"]
        return [one["reason"] for one in events if one["involvedObject"]["kind"] == KIND[1]] == ["Refused"]

    await until(is_told, 30, "an Event tells it too")
    await door.delete(*KIND, "train")
    await gone(door)


@ROW("F1", level="e2e")
@pytest.mark.asyncio(loop_scope="session")
async def test_F1_anothers_appwrapper_is_never_touched(door: Space):
    theirs = appwrapper(door, job(), name="theirs")
    theirs["spec"]["managedBy"] = "kueue.x-k8s.io/multikueue"
    nobodys = appwrapper(door, job("other"), name="nobodys")
    del nobodys["spec"]["managedBy"]
    made = [await door.site.kube.create(one) for one in (theirs, nobodys)]
    await applied(door, appwrapper(door, job("work")))
    await runs(door)
    for one in made:
        found = await read(door, one["metadata"]["name"])
        assert found is not None
        assert found["metadata"]["resourceVersion"] == one["metadata"]["resourceVersion"]


@ROW("F14", level="e2e")
@pytest.mark.asyncio(loop_scope="session")
async def test_F14_a_signal_shows_in_the_status_and_the_cli_sees_it(door: Space):
    handle = await applied(door, appwrapper(door, job()))
    await runs(door)
    await handle.signal(names.SIGNAL_PREEMPT, "its place is another's")
    found = await shows(door, in_phase("Suspended"), "it is preempted")
    assert conditions(found)["QuotaReserved"] == "False"
    assert "its place is another's" in (await door.explain(handle)).why
    argv, environment = door.site.command()
    told = await asyncio.create_subprocess_exec(
        *argv, "status", f"{door.namespace}/train", env=environment, stdout=asyncio.subprocess.PIPE
    )
    assert b"Suspended" in (await told.communicate())[0]
    await handle.signal(names.SIGNAL_RESUME)
    await runs(door)
    await handle.signal(names.SIGNAL_CANCEL)
    await gone(door)


@ROW("F1", level="e2e")
@pytest.mark.asyncio(loop_scope="session")
async def test_F1_a_policy_writes_whose_a_new_appwrapper_is_and_touches_no_other(door: Space):
    published = list(yaml.safe_load_all((DEPLOY / "managed-by.yaml").read_text()))
    policy, binding = (copy.deepcopy(one) for one in published)
    name = f"{door.namespace}.holdfast.dev"
    policy["metadata"]["name"] = binding["metadata"]["name"] = binding["spec"]["policyName"] = name
    expression = policy["spec"]["mutations"][0]["jsonPatch"]
    expression["expression"] = expression["expression"].replace(names.MANAGED_BY, door.site.managed_by)
    selector = binding["spec"]["matchResources"]["namespaceSelector"]
    assert selector == {"matchLabels": {names.LABEL_NAMESPACE_ENABLED: "true"}}
    selector["matchLabels"]["kubernetes.io/metadata.name"] = door.namespace
    before = appwrapper(door, job("other"), name="before")
    theirs = appwrapper(door, job("third"), name="theirs")
    del before["spec"]["managedBy"]
    theirs["spec"]["managedBy"] = "kueue.x-k8s.io/multikueue"
    was = await door.site.kube.create(before)
    made = [await door.site.kube.create(one) for one in (policy, binding)]
    try:
        created, number = was, 0
        while "managedBy" not in created["spec"]:  # The API server learns of a policy a moment later.
            number += 1
            document = appwrapper(door, job(f"work-{number}"), name=f"train-{number}")
            del document["spec"]["managedBy"]
            document["metadata"]["annotations"] |= {names.ANNOTATION_CREATED_BY: "bob"}
            created = await door.site.kube.create(document)
            await asyncio.sleep(0.1)
        assert created["spec"]["managedBy"] == door.site.managed_by
        by = created["metadata"]["annotations"]
        assert by[names.ANNOTATION_CREATED_BY] == by[names.ANNOTATION_CHANGED_BY] != "bob", (
            "nobody can say it for another"
        )
        ready = "its pods are ready"
        await shows(door, lambda one: conditions(one).get("PodsReady") == "True", ready, name=f"train-{number}")
        assert (await door.site.kube.create(theirs))["spec"]["managedBy"] == "kueue.x-k8s.io/multikueue"
        found = await read(door, "before")
        assert found is not None
        assert found["metadata"]["resourceVersion"] == was["metadata"]["resourceVersion"]
    finally:
        for one in made:
            key = (one["apiVersion"], one["kind"], one["metadata"]["name"])
            await door.site.kube.delete(*key, uid=one["metadata"]["uid"])


@ROW("F7", level="e2e")
async def test_F7_what_was_created_while_no_worker_ran_is_taken_up_and_deleted_too(workerless: Site):
    async with open_space(workerless, KIND) as space:
        await applied(space, appwrapper(space, job(), name="train"))
        deleted = await space.site.kube.create(appwrapper(space, job("other"), name="deleted"))
        await space.delete(*KIND, "deleted")
        worker = await workerless.start_worker()
        found = await runs(space)
        assert found["metadata"]["uid"] != deleted["metadata"]["uid"]
        assert await read(space, "deleted") is None
        worker.kill()
        await space.patch(*KIND, "train", {"spec": {"suspend": True}})
        await space.delete(*KIND, "train")
        await asyncio.sleep(1)
        assert await read(space) is not None, "with no worker there it waits"
        await workerless.start_worker()
        await gone(space)
        assert not await space.pods("train")


@ROW("F3", level="e2e")
@ROW("F7", level="e2e")
async def test_F7_a_life_that_was_ended_by_hand_is_held_and_its_status_says_so(workerless: Site):
    async with open_space(workerless, KIND) as space:
        await workerless.start_worker()
        handle = await applied(space, appwrapper(space, job()))
        await runs(space)
        await handle.terminate("by hand")
        found = await shows(space, lambda one: "Nobody decides for it" in said(one), "it says so", 120)
        assert "its workflow is Terminated" in said(found)
        assert found["status"]["phase"] == "Running", "what its workflow said last stays"
        assert conditions(found)["QuotaReserved"] == "True", "its pods are still there"
        assert await space.pods("train")
        await space.delete(*KIND, "train")
        await shows(space, lambda one: "`holdfast sweep` does" in said(one), "it says what removes it", 120)
        assert await space.pods("train")


@ROW("F7", level="e2e")
@pytest.mark.asyncio(loop_scope="session")
async def test_F7_marks_that_were_taken_off_come_back_and_it_is_obeyed_on(door: Space):
    await applied(door, appwrapper(door, job()))
    found = await runs(door)
    taken = {"labels": dict.fromkeys(found["metadata"]["labels"]), "annotations": None, "finalizers": None}
    await door.patch(*KIND, "train", {"metadata": taken})

    async def is_marked() -> bool:
        found = await read(door)
        return found is not None and names.FINALIZER in found["metadata"].get("finalizers", ())

    await until(is_marked, 30, "it is marked again")
    await door.patch(*KIND, "train", {"spec": {"suspend": True}})
    await shows(door, in_phase("Suspended"), "it is still obeyed")


@ROW("F3", level="e2e")
@ROW("F7", level="e2e")
@pytest.mark.asyncio(loop_scope="session")
async def test_F7_marks_that_an_export_of_an_earlier_life_overwrites_come_back_and_it_is_obeyed_on(door: Space):
    handle = await applied(door, appwrapper(door, job()))
    uid = (await runs(door))["metadata"]["uid"]
    earlier = {"labels": {names.LABEL_WORKLOAD_UID: "earlier"}, "annotations": {names.ANNOTATION_LIFE: "earlier"}}
    await door.patch(*KIND, "train", {"metadata": earlier})

    async def is_marked() -> bool:
        found = await read(door)
        return found is not None and found["metadata"]["labels"][names.LABEL_WORKLOAD_UID] == uid

    await until(is_marked, 30, "it is marked again")
    assert "it is a copy" not in said((await read(door)) or {})
    await door.patch(*KIND, "train", {"spec": {"suspend": True}})
    await shows(door, in_phase("Suspended"), "it is still obeyed")
    await door.patch(*KIND, "train", {"spec": {"suspend": False}})
    await runs(door)
    await door.patch(*KIND, "train", {"metadata": earlier})
    await door.delete(*KIND, "train")
    await gone(door)
    assert (await door.ended(handle)).phase is Phase.CANCELLED


@ROW("F3", level="e2e")
async def test_F3_what_a_stripped_finalizer_leaves_is_found(workerless: Site):
    async with open_space(workerless, KIND) as space:
        worker = await workerless.start_worker()
        handle = await applied(space, appwrapper(space, job(), suspend=True))
        await shows(space, in_phase("Suspended"), "it is suspended")
        worker.kill()
        await space.patch(*KIND, "train", {"metadata": {"finalizers": None}})
        await space.delete(*KIND, "train")
        await gone(space)
        await workerless.start_worker()
        status = await space.ended(handle)
        assert status.phase is Phase.CANCELLED
        assert any("its custom resource is gone" in one.message for one in status.causes)


@ROW("F7", level="e2e")
@pytest.mark.asyncio(loop_scope="session")
async def test_F7_a_copy_is_not_run_again_without_a_word(door: Space):
    await applied(door, appwrapper(door, job()))
    found = await runs(door)
    copied = {**found, "metadata": {**found["metadata"], "name": "copy"}}
    for own in ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields"):
        copied["metadata"].pop(own, None)
    copied.pop("status")
    await door.site.kube.create(copied)
    copied_one = await shows(door, lambda one: "it is a copy, or was restored" in said(one), "it says so", name="copy")
    assert found["metadata"]["uid"] in said(copied_one)
    workflow = door.site.client.get_workflow_handle(names.workflow_id(door.site.cluster, door.namespace, "copy"))
    with pytest.raises(Exception, match="not found"):
        await workflow.describe()
    await door.delete(*KIND, "copy")

    async def left() -> bool:
        return await read(door, "copy") is None

    await until(left, 30, "the copy is let go")


@ROW("F3", level="e2e")
@pytest.mark.asyncio(loop_scope="session")
async def test_F3_a_new_one_waits_for_another_of_its_name_and_says_for_whom(door: Space):
    own = appwrapper(door, job("own"))
    document = {**own, "spec": {key: value for key, value in own["spec"].items() if key != "managedBy"}}
    submitted = await door.submit(document)
    status = await door.reach(submitted, "Running")
    await applied(door, appwrapper(door, job("work")))
    found = await shows(door, lambda one: "its workflow id is taken" in said(one), "it says for whom it waits")
    assert status.uid in said(found)
    await submitted.signal(names.SIGNAL_CANCEL)
    await door.ended(submitted)
    found = await runs(door)
    described = await door.handles[-1].describe()
    assert described.status is WorkflowExecutionStatus.RUNNING
    assert datetime.fromisoformat(found["metadata"]["creationTimestamp"]) <= described.start_time
