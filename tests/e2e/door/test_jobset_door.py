"""JobSets by kubectl: each is the request, its workflow its life, and its status JobSet's own (row F16)."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
import pytest_asyncio

from holdfast import names
from holdfast.activities.kube.client import Invalid, NotFound
from holdfast.formats.condition import life_in
from holdfast.formats.jobset.document import DISABLE_IN_PLACE
from holdfast.formats.jobset.resource import RESOURCE
from holdfast.model import Phase
from tests.e2e.door import front_door
from tests.e2e.door.front_door import applied, appwrapper, conditions, followed, job, runs
from tests.e2e.door.test_front_door_askers import create, permitted
from tests.e2e.ground.site import Site, until
from tests.e2e.ground.space import FOREIGN_FINALIZER, Space, open_space, pod_template
from tests.e2e.ground.terminal import command

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240), pytest.mark.asyncio(loop_scope="session")]
ROW = pytest.mark.row
KIND = (RESOURCE.api_version, RESOURCE.kind)
shows = partial(front_door.shows, kind=KIND)
ALICE = "alice@example.com"


@pytest_asyncio.fixture(loop_scope="session")
async def door(shared_site: Site) -> AsyncIterator[Space]:
    """A namespace whose JobSets are watched too."""
    async with open_space(shared_site, KIND) as opened:
        yield opened


def replicated(name: str = "workers", replicas: int = 1, **metadata: Any) -> dict[str, Any]:
    """Return a replicated job of one pod, on fake nodes."""
    spec = {"parallelism": 1, "completions": 1, "backoffLimit": 0, "template": pod_template(**metadata)}
    return {"name": name, "replicas": replicas, "template": {"spec": spec}}


def jobset(space: Space, *jobs: dict[str, Any], name: str = "train", **spec: Any) -> dict[str, Any]:
    """Return a JobSet that this site's workers are to run."""
    own = {"managedBy": space.site.managed_by, "replicatedJobs": list(jobs) or [replicated()]}
    metadata = {"name": name, "namespace": space.namespace}
    return {"apiVersion": KIND[0], "kind": KIND[1], "metadata": metadata, "spec": {**own, **spec}}


def counts(found: dict[str, Any]) -> dict[str, dict[str, int]]:
    """Return the counts of each replicated job, as Kueue reads them."""
    told: list[dict[str, Any]] = found.get("status", {}).get("replicatedJobsStatus", [])
    return {one["name"]: {key: value for key, value in one.items() if key != "name"} for one in told}


def all_ready(found: dict[str, Any]) -> bool:
    told = counts(found)
    jobs = {one["name"]: one["replicas"] for one in found["spec"]["replicatedJobs"]}
    return bool(told) and all(told[name]["ready"] == count for name, count in jobs.items())


@ROW("F16", level="e2e")
async def test_F16_an_applied_jobset_lives_as_a_submitted_one_and_shows_jobsets_own_status(door: Space):
    handle = await applied(door, jobset(door, replicated("driver"), replicated("workers", 2)))
    found = await shows(door, all_ready, "all its Jobs are ready")
    uid = found["metadata"]["uid"]
    status = await door.site.status(handle)
    assert (status.phase, status.uid) == (Phase.RUNNING, uid), "the same life is seen by CLI and UI"
    assert handle.id == f"workload/{door.site.cluster}/{door.namespace}/jobset/train"
    assert counts(found) == {
        "driver": {"ready": 1, "succeeded": 0, "failed": 0, "active": 1, "suspended": 0},
        "workers": {"ready": 2, "succeeded": 0, "failed": 0, "active": 2, "suspended": 0},
    }
    assert found["status"]["restarts"] == 0
    assert not {"Completed", "Failed"} & set(conditions(found))
    (attempt,) = (await door.site.kube.list(names.API_VERSION, names.ATTEMPT_KIND, door.namespace))["items"]
    (owner,) = attempt["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == (KIND[1], uid, True)
    made = await door.site.kube.get("batch/v1", "Job", "train-workers-1", door.namespace)
    assert made["metadata"]["ownerReferences"][0]["uid"] == attempt["metadata"]["uid"]
    assert made["metadata"]["labels"]["jobset.sigs.k8s.io/jobset-uid"] == uid
    name = f"{door.namespace}/train"
    assert "JobSet" in await command(door.site, "list", "-n", door.namespace)
    for way in (name, f"{door.namespace}/jobset/train"):
        assert "Running" in await command(door.site, "status", way)
    assert "3 of 3 pods run" in await command(door.site, "explain", name)
    await door.complete("train")
    found = await shows(door, lambda one: conditions(one).get("Completed") == "True", "it is complete")
    assert found["status"]["terminalState"] == "Completed"
    assert {name: (one["succeeded"], one["active"]) for name, one in counts(found).items()} == {
        "driver": (1, 0),
        "workers": (2, 0),
    }


@ROW("F16", level="e2e")
@ROW("J17", level="e2e")
async def test_F16_a_restart_is_counted_and_no_end_is_shown_while_its_pods_live(door: Space):
    seen: list[dict[str, Any]] = []
    begun = asyncio.Event()
    following = asyncio.create_task(followed(door, seen, KIND, begun))
    await begun.wait()
    await applied(door, jobset(door, failurePolicy={"maxRestarts": 1}))
    await shows(door, all_ready, "it runs")
    await door.fail_pod("train")
    found = await shows(door, lambda one: all_ready(one) and one["status"]["restarts"] == 1, "it runs again", 120)
    assert found["status"]["restartsCountTowardsMax"] == 1
    await shows(door, lambda one: conditions(one).get("RestartingJobSet") == "False", "it no longer restarts")
    told = [one for each in seen for one in each.get("conditions", ()) if one["type"] == "RestartingJobSet"]
    assert [one["status"] for one in told][:1] == ["True"], "it was restarting before"
    published = "applying RestartJobSet failure policy action (first failed job: train-workers-0)"
    assert (told[0]["reason"], told[0]["message"]) == ("DefaultFailurePolicy", published)
    await door.fail_pod("train")
    found = await shows(door, lambda one: conditions(one).get("Failed") == "True", "it has failed", 120)
    following.cancel()
    (failed,) = [one for one in found["status"]["conditions"] if one["type"] == "Failed"]
    assert failed["reason"] == "ReachedMaxRestarts"
    assert found["status"]["terminalState"] == "Failed"
    assert counts(found)["workers"]["active"] == 0
    sequences = [life.sequence for one in seen if (life := life_in(one))]
    assert sequences == sorted(sequences), "no report is overtaken by an earlier one"
    restarts = [one["restarts"] for one in seen if "restarts" in one]
    assert restarts == sorted(restarts)


@ROW("F16", level="e2e")
async def test_F16_suspension_and_what_kueue_writes_into_its_templates_are_obeyed(door: Space):
    document = jobset(door, replicated(labels={"team": "a"}), suspend=True)
    document["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "team"}
    await applied(door, document)
    found = await shows(door, lambda one: conditions(one).get("Suspended") == "True", "it begins suspended")
    assert counts(found)["workers"]["active"] == 0
    admitted = found["spec"]["replicatedJobs"]
    template = admitted[0]["template"]["spec"]["template"]
    template["metadata"]["labels"]["example.com/flavor"] = "spot"
    template["spec"]["nodeSelector"]["kubernetes.io/os"] = "linux"
    template["spec"]["tolerations"] = [{"key": "spot", "operator": "Exists"}]
    await door.patch(*KIND, "train", {"spec": {"suspend": False, "replicatedJobs": admitted}})
    found = await shows(door, all_ready, "it runs")
    assert conditions(found)["Suspended"] == "False"
    (pod,) = await door.pods("train")
    assert pod["spec"]["nodeSelector"] == {"holdfast.dev/node": "fake", "kubernetes.io/os": "linux"}
    assert (pod["metadata"]["labels"]["example.com/flavor"], pod["metadata"]["labels"]["team"]) == ("spot", "a")
    assert any(one["key"] == "spot" for one in pod["spec"]["tolerations"])
    await door.site.kube.patch(
        "v1", "Pod", pod["metadata"]["name"], door.namespace, uid=pod["metadata"]["uid"],
        patch={"metadata": {"finalizers": ["example.com/keeps"]}},
    )  # fmt: skip
    del template["spec"]["nodeSelector"]["kubernetes.io/os"], template["metadata"]["labels"]["example.com/flavor"]
    del template["spec"]["tolerations"]
    await door.patch(*KIND, "train", {"spec": {"suspend": True, "replicatedJobs": admitted}})

    async def still_there() -> bool:
        return bool(await door.pods("train"))

    for _ in range(10):
        found = await front_door.read(door, kind=KIND)
        assert found is not None
        if await still_there():
            assert counts(found)["workers"]["active"] > 0, "quota is not free while a pod is there"
        await asyncio.sleep(0.2)
    await door.patch("v1", "Pod", pod["metadata"]["name"], {"metadata": {"finalizers": None}})
    found = await shows(
        door, lambda one: conditions(one)["Suspended"] == "True" and not counts(one)["workers"]["active"], "suspended"
    )
    assert not await door.pods("train")
    await door.patch(*KIND, "train", {"spec": {"suspend": False}})
    await shows(door, all_ready, "it runs again")
    (pod,) = await door.pods("train")
    assert pod["spec"]["nodeSelector"] == {"holdfast.dev/node": "fake"}, "nothing is left of the admission before"
    assert "example.com/flavor" not in pod["metadata"]["labels"]


@ROW("J14", level="e2e")
async def test_J14_one_that_is_applied_suspended_is_created_so_and_resumed_with_what_its_templates_say_then(
    door: Space,
):
    handle = await applied(door, jobset(door, replicated(), replicated("other", 2), suspend=True))

    def asleep(found: dict[str, Any]) -> bool:
        suspended = {name: one["suspended"] for name, one in counts(found).items()}
        return conditions(found).get("Suspended") == "True" and suspended == {"workers": 1, "other": 2}

    found = await shows(door, asleep, "its Jobs are there, suspended")
    await door.site.reach(handle, Phase.SUSPENDED)
    assert not await door.pods("train")
    before = {one["metadata"]["uid"] for one in await door.site.objects("batch/v1", "Job", door.namespace)}
    jobs = found["spec"]["replicatedJobs"]
    jobs[0]["template"]["spec"]["template"]["metadata"]["labels"] = {"example.com/flavor": "spot"}
    await door.patch(*KIND, "train", {"spec": {"replicatedJobs": jobs}})
    await door.patch(*KIND, "train", {"spec": {"suspend": False}})
    found = await shows(door, all_ready, "it runs")
    assert conditions(found)["Suspended"] == "False"
    assert {one["metadata"]["uid"] for one in await door.site.objects("batch/v1", "Job", door.namespace)} == before
    labels = [one["metadata"]["labels"].get("example.com/flavor") for one in await door.pods("train")]
    assert sorted(labels, key=str) == [None, None, "spot"]
    assert (await door.site.status(handle)).attempt == 1


@ROW("J15", level="e2e")
async def test_J15_one_whose_ttl_is_over_is_deleted_first_and_goes_last(door: Space):
    handle = await applied(door, jobset(door, ttlSecondsAfterFinished=1))
    await shows(door, all_ready, "it runs")
    (pod,) = await door.pods("train")
    name = pod["metadata"]["name"]
    await door.finalize("v1", "Pod", name, FOREIGN_FINALIZER)
    await door.complete("train")
    found = await shows(door, lambda one: "deletionTimestamp" in one["metadata"], "it is being deleted")
    assert names.FINALIZER in found["metadata"]["finalizers"]
    assert found["status"]["terminalState"] == "Completed"
    await door.finalize("v1", "Pod", name)
    await front_door.gone(door, kind=KIND)
    assert (await door.ended(handle)).phase is Phase.SUCCEEDED


@ROW("F16", level="e2e")
async def test_F16_what_was_checked_once_cannot_be_changed(door: Space):
    await applied(door, jobset(door, replicated(), replicated("other")))
    found = await shows(door, all_ready, "it runs")
    jobs: list[dict[str, Any]] = found["spec"]["replicatedJobs"]

    def changed(path: tuple[str, ...], value: Any) -> dict[str, Any]:
        first = copy.deepcopy(jobs[1])
        here = first
        for step in path[:-1]:
            here = here[step]
        here[path[-1]] = value
        return {"replicatedJobs": [jobs[0], first]}

    pod = ("template", "spec", "template", "spec")
    image = [{**jobs[1]["template"]["spec"]["template"]["spec"]["containers"][0], "image": "example.com/other:1"}]
    apart = {"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"}
    refused: list[tuple[str, dict[str, Any]]] = [
        ("spec.managedBy: is immutable", {"managedBy": "example.com/other"}),
        ("spec.replicatedJobs: are immutable", changed(("replicas",), 2)),
        ("spec.replicatedJobs[*].template: is immutable", changed(("template", "spec", "backoffLimit"), 3)),
        ("spec.replicatedJobs[*].template: is immutable", changed(("template", "spec", "backoffLimit"), None)),
        ("template.metadata: is immutable", changed(("template", "metadata"), {"annotations": apart})),
        ("template.metadata: is immutable", {"suspend": True, **changed(("template", "metadata"), {"labels": apart})}),
        ("spec.template.spec: is immutable", changed((*pod, "hostNetwork"), True)),
        ("spec.template.spec: is immutable", changed((*pod, "automountServiceAccountToken"), False)),
        ("containers: are immutable", changed((*pod, "containers"), image)),
        ("may change only while spec.suspend", changed((*pod, "nodeSelector"), {"zone": "a"})),
        ("spec.failurePolicy: is immutable", {"failurePolicy": {"maxRestarts": 3}}),
    ]
    for why, patch in refused:
        with pytest.raises(Invalid) as caught:
            await door.patch(*KIND, "train", {"spec": patch})
        assert why in caught.value.message, caught.value.message
    for setting in (*apart, DISABLE_IN_PLACE):
        with pytest.raises(Invalid, match=r"metadata\.annotations: settings are immutable"):
            await door.patch(*KIND, "train", {"metadata": {"annotations": {setting: "x"}}})
    empty = changed((*pod, "containers"), [{**image[0], "image": "example.com/train:1", "resources": {}, "tty": False}])
    await door.patch(*KIND, "train", {"spec": empty})
    await door.patch(*KIND, "train", {"spec": changed(("template", "metadata"), {"labels": {}})})


@ROW("F16", level="e2e")
@pytest.mark.parametrize("propagation", ["Background", "Foreground"])
async def test_F16_a_deleted_jobset_goes_last(door: Space, propagation: str):
    handle = await applied(door, jobset(door, replicated("workers", 2)))
    await shows(door, all_ready, "it runs")
    await door.delete(*KIND, "train", propagation=propagation)
    await front_door.gone(door, kind=KIND)
    assert not await door.pods("train")
    with pytest.raises(NotFound):
        await door.site.kube.get("batch/v1", "Job", "train-workers-0", door.namespace)
    assert (await door.ended(handle)).phase is Phase.CANCELLED


@ROW("F16", level="e2e")
@ROW("F7", level="e2e")
async def test_F7_an_appwrapper_and_a_jobset_of_one_name_are_two_workloads(door: Space):
    first = await applied(door, appwrapper(door, job()))
    second = await applied(door, jobset(door))
    await runs(door)
    await shows(door, all_ready, "both run")
    assert first.id != second.id
    assert len(await door.pods("train")) == 2
    await command(door.site, "status", f"{door.namespace}/train", expect=2)
    assert "Running" in await command(door.site, "status", f"{door.namespace}/appwrapper/train")
    await door.delete(*KIND, "train")
    await front_door.gone(door, kind=KIND)
    await runs(door)
    assert len(await door.pods("train")) == 1, "the other lives on"

    async def only_one_is_listed() -> bool:
        return (await command(door.site, "list", "-n", door.namespace, "--phase", "Running")).count("train") == 1

    await until(only_one_is_listed, 30, "Temporal lists the other alone")
    said = await command(door.site, "suspend", "--all", "-n", door.namespace, "--yes", "--wait")
    assert f"{door.namespace}/train Suspended" in said, said


@ROW("F16", level="e2e")
async def test_F16_who_may_not_create_jobs_may_not_have_them_created_and_who_asked_is_known(door: Space):
    alice = [("jobset.x-k8s.io", "jobsets", "create,get")]
    await permitted(door, ALICE, alice)
    document = jobset(door, network={"enableDNSHostnames": False})
    said = await create(door, ALICE, document)
    assert f"{ALICE} may not create jobs.batch in namespace {door.namespace}" in said, said
    theirs = jobset(door, name="theirs")
    theirs["spec"]["managedBy"] = "example.com/other"
    assert "created" in await create(door, ALICE, theirs), "another controller's is that controller's to judge"
    await permitted(door, "bob@example.com", [*alice, ("batch", "jobs", "create")])
    said = await create(door, "bob@example.com", document)
    assert "created" in said, said
    space_handle = names.workflow_id(door.site.cluster, door.namespace, "train", KIND[1])
    door.handles.append(door.site.client.get_workflow_handle(space_handle))
    await shows(door, all_ready, "it runs")
    assert "bob@example.com" in await command(door.site, "explain", f"{door.namespace}/train")
    other = await front_door.read(door, "theirs", KIND)
    assert other is not None
    assert not other.get("status")
    assert names.FINALIZER not in other["metadata"].get("finalizers", ())


@ROW("F16", level="e2e")
async def test_F16_one_that_cannot_run_is_refused_in_its_status(door: Space):
    document = jobset(door, successPolicy={"operator": "All", "targetReplicatedJobs": ["nobody"]})
    await door.site.kube.create(document)
    found = await shows(door, lambda one: conditions(one).get("Failed") == "True", "it is refused")
    (failed,) = [one for one in found["status"]["conditions"] if one["type"] == "Failed"]
    assert "spec.successPolicy.targetReplicatedJobs[0]" in failed["message"]
    assert found["status"]["terminalState"] == "Failed"
    await door.delete(*KIND, "train")
    await front_door.gone(door, kind=KIND)


@ROW("D45", level="e2e")
async def test_D45_one_whose_pods_would_bear_an_answer_from_the_start_is_refused(door: Space):
    """A JobSet that was copied together with the annotations of its pods."""
    answer = {names.ANNOTATION_CHECKPOINT_STATE: "Complete", names.ANNOTATION_CHECKPOINT_ANSWERS: "1"}
    await door.site.kube.create(jobset(door, replicated(annotations=answer)))
    found = await shows(door, lambda one: conditions(one).get("Failed") == "True", "it is refused")
    (failed,) = [one for one in found["status"]["conditions"] if one["type"] == "Failed"]
    where = "spec.replicatedJobs[0].template.spec.template.metadata.annotations"
    assert f"{where}[{names.ANNOTATION_CHECKPOINT_ANSWERS}]: is written while it lives" in failed["message"]
    assert not await door.pods("train")
    await door.delete(*KIND, "train")
    await front_door.gone(door, kind=KIND)
