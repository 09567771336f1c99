"""Each kind, from the published examples as they are: created in order, labelled, run to its end (rows A1, A2)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from holdfast import names
from holdfast.activities.kube.client import UnknownKind, Unreachable
from holdfast.worker.cleanup.namespace import apply
from tests.e2e.ground.site import Site, appwrapper, job, until
from tests.e2e.ground.space import Space, example, open_space, pod_template
from tests.e2e.witness.truth import Life

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]
ROW = pytest.mark.row
APPWRAPPER = "workload.codeflare.dev/appwrapper"

TRAINERS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "trainers.test.holdfast.dev"},
    "spec": {
        "group": "test.holdfast.dev",
        "scope": "Namespaced",
        "names": {"kind": "Trainer", "listKind": "TrainerList", "plural": "trainers", "singular": "trainer"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}
"""A kind whose controller makes pods of its template; the test is that controller."""


async def served(site: Site, definition: dict[str, Any]) -> tuple[str, str]:
    """Have the cluster serve a kind of its own; tests side by side may ask for the same one."""
    await apply(site.kube, definition)
    spec = definition["spec"]
    kind = (f"{spec['group']}/{spec['versions'][0]['name']}", spec["names"]["kind"])

    async def known() -> bool:
        try:
            await site.kube.list(*kind, "default")
        except (UnknownKind, Unreachable):  # Its storage is being set up.
            return False
        return True

    await until(known, 90, f"{kind} is served")
    return kind


def made(space: Space, attempt: int = 1) -> list[tuple[str, str]]:
    """What of an attempt the run-as account created, in the audit log's order."""
    runner = f"system:serviceaccount:{space.namespace}:{names.RUN_AS_DEFAULT}"
    return [
        (one.resource, one.name)
        for one in space.truth.requests()
        if one.verb == "create" and one.user == runner and one.resource != "selfsubjectaccessreviews"
    ]


def check_labels(space: Space, workload: str, uid: str) -> None:
    """Every component and every pod says whose it is."""
    lives = [life for life in space.truth.of(1) if life.kind != names.ATTEMPT_KIND]
    assert lives
    for life in lives:
        metadata = life.object["metadata"]
        assert metadata["labels"][APPWRAPPER] == workload, life.name
        assert metadata["labels"][names.LABEL_WORKLOAD_UID] == uid, life.name
        assert metadata["annotations"][names.ANNOTATION_WORKLOAD] == workload, life.name
    for one in pods(lives):
        environment = {each["name"]: each.get("value") for each in one["spec"]["containers"][0]["env"]}
        assert environment[names.ENV_ATTEMPT] == "1"
        assert environment[names.ENV_WORKLOAD_UID] == uid


def pods(lives: list[Life]) -> list[dict[str, Any]]:
    return [life.object for life in lives if life.kind == "Pod"]


ENDING = {
    "pod": [("pods", "sample-pod")],
    "job": [("jobs", "sample-job")],
    "several": [
        ("configmaps", "sample-several"),
        ("services", "sample-several"),
        ("pods", "sample-several-coordinator"),
        ("jobs", "sample-several-workers"),
    ],
}
EXPECTED_PODS = {"pod": 1, "job": 2, "several": 4}


@ROW("A1", level="e2e")
@ROW("A2", level="e2e")
@pytest.mark.parametrize("kind", ENDING)
async def test_A1_A2_examples_that_end_by_themselves(space: Space, kind: str):
    handle = await space.submit(example(f"appwrapper-{kind}.yaml"))
    status = await space.reach(handle, "Succeeded")
    assert (status.attempt, status.restarts) == (1, 0)
    assert made(space) == ENDING[kind], "created in the order of the document"
    # What it leaves is there for its success TTL, for whoever wants to read it.
    assert len(await space.pods()) == EXPECTED_PODS[kind]
    await handle.signal(names.SIGNAL_CANCEL)
    assert (await space.ended(handle)).phase == "Succeeded"
    await space.truth.settle()
    check_labels(space, f"sample-{kind}", status.uid)
    space.truth.assert_told_truly(f"sample-{kind}")
    assert all(life.died for life in space.truth.of(1))
    phases = [each.phase for each in space.truth.shown(f"sample-{kind}")]
    assert phases[0] == "Resuming"
    assert "Succeeded" in phases


@ROW("A1", level="e2e")
@pytest.mark.parametrize(
    ("kind", "order"),
    [
        ("deployment", [("deployments", "sample-deployment")]),
        ("statefulset", [("services", "sample-statefulset"), ("statefulsets", "sample-statefulset")]),
    ],
)
async def test_A1_examples_that_run_until_they_are_cancelled(space: Space, kind: str, order: list[tuple[str, str]]):
    handle = await space.submit(example(f"appwrapper-{kind}.yaml"))
    status = await space.reach(handle, "Running")
    assert (status.attempt, status.pods.running) == (1, 2)
    assert made(space) == order
    await handle.signal(names.SIGNAL_CANCEL, "enough")
    assert (await space.ended(handle)).phase == "Cancelled"
    await space.truth.settle()
    check_labels(space, f"sample-{kind}", status.uid)
    space.truth.assert_told_truly(f"sample-{kind}")
    assert all(life.died for life in space.truth.lives.values() if life.attempt), "proven gone"
    assert space.truth.anchor(f"sample-{kind}").died


@ROW("A1", level="e2e")
@ROW("A2", level="e2e")
async def test_A1_A2_the_example_with_a_custom_resource(shared_site: Site):
    text = (Path(__file__).parents[3] / "examples" / "crds" / "trainingplans.yaml").read_text()
    plans = await served(shared_site, yaml.safe_load(text))
    async with open_space(shared_site, plans) as space:
        handle = await space.submit(example("appwrapper-custom-resource.yaml"))
        status = await space.reach(handle, "Succeeded")
        assert made(space) == [("trainingplans", "sample-custom"), ("jobs", "sample-custom")]
        await handle.signal(names.SIGNAL_CANCEL)
        assert (await space.ended(handle)).phase == "Succeeded"
        await space.truth.settle()
        check_labels(space, "sample-custom", status.uid)
        (plan,) = space.truth.of(1, "TrainingPlan")
        assert plan.died, "kinds that no rule knows are removed too"
        space.truth.assert_told_truly("sample-custom")


@ROW("A1", level="e2e")
@ROW("A2", level="e2e")
async def test_A1_A2_a_custom_resource_with_pod_sets(shared_site: Site):
    """Its pods are found by the labels injected into the template from which its controller makes them."""
    trainers = await served(shared_site, TRAINERS)
    async with open_space(shared_site, trainers) as space:
        component = {
            "podSets": [{"path": "template.spec.template", "replicas": 2}],
            "podSetInfos": [
                {
                    "labels": {"example.com/flavor": "spot"},
                    "annotations": {"example.com/admitted-by": "queue"},
                    "nodeSelector": {"kubernetes.io/arch": "amd64"},
                    "tolerations": [{"key": "example.com/spot", "operator": "Exists", "effect": "NoSchedule"}],
                }
            ],
            "template": {
                "apiVersion": trainers[0],
                "kind": trainers[1],
                "metadata": {"name": "trainer"},
                "spec": {"size": 2, "template": pod_template()},
            },
        }
        handle = await space.submit(appwrapper("train", component))
        status = await space.reach(handle, "Resuming")

        async def there() -> bool:
            return await space.site.kube.find(*trainers, "trainer", space.namespace) is not None

        await until(there, 90, "the custom resource is created")
        assert made(space) == [("trainers", "trainer")]
        trainer = await space.site.kube.get(*trainers, "trainer", space.namespace)
        owner = {
            "apiVersion": trainers[0],
            "kind": trainers[1],
            "name": "trainer",
            "uid": trainer["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
        for index in range(2):
            template = trainer["spec"]["template"]
            metadata = {**template["metadata"], "name": f"trainer-{index}", "ownerReferences": [owner]}
            await space.make({**template, "apiVersion": "v1", "kind": "Pod", "metadata": metadata})
        await space.reach(handle, "Running", 1)
        for one in await space.pods("train"):
            assert one["metadata"]["labels"]["example.com/flavor"] == "spot"
            assert one["metadata"]["annotations"]["example.com/admitted-by"] == "queue"
            assert one["spec"]["nodeSelector"]["kubernetes.io/arch"] == "amd64"
            assert "example.com/spot" in {each.get("key") for each in one["spec"]["tolerations"]}
        await space.complete("train")
        result = await space.ended(handle)
        assert (result.phase, result.restarts) == ("Succeeded", 0)
        await space.truth.settle()
        check_labels(space, "train", status.uid)
        assert all(life.died for life in space.truth.of(1))


@ROW("A1", level="e2e")
async def test_A1_pod_set_infos_reach_the_pods(space: Space):
    component = job()
    component["podSetInfos"] = [
        {
            "labels": {"example.com/flavor": "spot"},
            "annotations": {"example.com/admitted-by": "queue"},
            "nodeSelector": {"kubernetes.io/arch": "amd64"},
            "tolerations": [{"key": "example.com/spot", "operator": "Exists", "effect": "NoSchedule"}],
            "schedulingGates": [{"name": "example.com/topology"}],
        }
    ]
    handle = await space.submit(appwrapper("train", component))

    async def gated() -> bool:
        return len(await space.pods("train")) == 2

    await until(gated, 90, "its pods are there")
    for one in await space.pods("train"):
        assert one["metadata"]["labels"]["example.com/flavor"] == "spot"
        assert one["metadata"]["annotations"]["example.com/admitted-by"] == "queue"
        assert one["spec"]["nodeSelector"] == {"holdfast.dev/node": "fake", "kubernetes.io/arch": "amd64"}
        assert "example.com/spot" in {each.get("key") for each in one["spec"]["tolerations"]}
        assert one["spec"]["schedulingGates"] == [{"name": "example.com/topology"}]
        assert (await space.site.status(handle)).phase == "Resuming"
        await space.patch("v1", "Pod", one["metadata"]["name"], {"spec": {"schedulingGates": None}})
    await space.reach(handle, "Running", 1)


async def next_wave(space: Space, size: int, done: set[str]) -> set[str]:
    """Wait until as many pods run that have not run before, and return their names."""
    found: set[str] = set()

    async def runs() -> bool:
        running = [each for each in await space.pods("train") if each["status"].get("phase") == "Running"]
        found.clear()
        found.update(each["metadata"]["name"] for each in running)
        found.difference_update(done)
        return len(found) == size

    await until(runs, 90, f"{size} more pods run")
    return set(found)


@ROW("A2", level="e2e")
async def test_A2_a_job_of_several_waves_succeeds_only_after_its_last(space: Space):
    """Between two waves all of its pods have succeeded, and yet it is not done."""
    handle = await space.submit(appwrapper("train", job(parallelism=2, completions=5), successTTLDuration="1h"))
    await space.reach(handle, "Running", 1)
    done: set[str] = set()
    for size in (2, 2, 1):
        wave = await next_wave(space, size, done)
        assert (await space.site.status(handle)).phase == "Running"
        await space.complete("train")
        done |= wave
    status = await space.reach(handle, "Succeeded")
    assert (status.attempt, status.restarts) == (1, 0)
    complete = await space.site.kube.get("batch/v1", "Job", "train", space.namespace)
    assert complete["status"]["succeeded"] == 5
    said = next(each["lastTransitionTime"] for each in complete["status"]["conditions"] if each["type"] == "Complete")
    completed = next(each for each in status.causes if each.reason == "Completed")
    assert f"{completed.time:%Y-%m-%dT%H:%M:%SZ}" >= said, "success is the Job's own word"
    assert len(await space.pods("train")) == 5, "they are held for the success TTL"
