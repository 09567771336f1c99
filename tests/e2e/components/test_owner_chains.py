"""Pods count by their chain of owners as well as by labels; what stands between is found by it (rows D26, D27)."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

from holdfast import names
from holdfast.activities.kube.client import NotFound
from holdfast.local import Stack
from tests.e2e.components.test_kinds import TRAINERS, served
from tests.e2e.ground.site import Site, appwrapper, job, open_site, until
from tests.e2e.ground.space import FOREIGN_FINALIZER, Space, open_space, pod_template
from tests.e2e.witness import law

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]
COHORTS = {
    **TRAINERS,
    "metadata": {"name": "cohorts.test.holdfast.dev"},
    "spec": {
        **TRAINERS["spec"],  # type: ignore[dict-item]
        "names": {"kind": "Cohort", "listKind": "CohortList", "plural": "cohorts", "singular": "cohort"},
    },
}
"""A kind of which a Trainer's controller makes one, and the pods come of that."""


async def copied(space: Space, name: str) -> None:
    """Copy a Job's YAML under another name, labels included, as a person does, and wait until its pod runs."""
    found = await space.site.kube.get("batch/v1", "Job", "train", space.namespace)
    spec = {key: value for key, value in found["spec"].items() if key != "selector"}
    template = spec["template"]
    labels = template["metadata"]["labels"]
    kept = {key: value for key, value in labels.items() if "controller-uid" not in key and "job-name" not in key}
    spec["template"] = {**template, "metadata": {**template["metadata"], "labels": kept}}
    metadata = {"name": name, "labels": found["metadata"]["labels"], "annotations": found["metadata"]["annotations"]}
    await space.make({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec})

    async def runs() -> bool:
        pods = [pod for pod in await space.pods("train") if pod["metadata"]["name"].startswith(f"{name}-")]
        return [pod["status"].get("phase") for pod in pods] == ["Running"]

    await until(runs, 30, f"the pod of Job {name} runs")


async def own_pods(space: Space) -> list[str]:
    return [
        pod["metadata"]["name"]
        for pod in await space.pods("train")
        if not pod["metadata"]["name"].startswith("copy-") and pod["status"].get("phase") == "Running"
    ]


@pytest.mark.row("D26", level="e2e")
async def test_D26_a_copied_jobs_pods_are_named_and_left_alone_and_a_reset_ends_beside_them(
    stack: Stack, tmp_path: Path
) -> None:
    # What is the copy's bears the workload's labels, by which the law and the sampler of anchors judge.
    async with open_site(stack, tmp_path, prefix=law.COPIED.rstrip("-")) as site:
        await site.start_worker()
        async with open_space(site) as space:
            await _beside_a_copy(space)


async def _beside_a_copy(space: Space) -> None:
    handle = await space.submit(appwrapper("train", job(pods=1)))
    await space.reach(handle, "Running", 1)
    await copied(space, "copy")

    async def named() -> bool:
        return "1 pod of Job copy" in (await space.explain(handle)).now

    await until(named, 60, "what is another's is named")
    (name,) = await own_pods(space)
    await space.site.annotate("Pod", name, space.namespace, kwok_exit_code="1", kwok_fail="0s")
    status = await space.reach(handle, "Running", 2, seconds=60)
    assert (status.restarts, status.pods.running) == (1, 1)
    (there,) = [pod for pod in await space.pods("train") if pod["metadata"]["name"].startswith("copy-")]
    assert "deletionTimestamp" not in there["metadata"], "what is another's is left alone"
    await until(named, 60, "what is another's is named in the next attempt too")
    await handle.signal(names.SIGNAL_CANCEL, "")
    assert (await space.ended(handle)).phase == "Cancelled"
    (there,) = await space.pods("train")
    assert there["status"]["phase"] == "Running"


def owned(thing: dict[str, Any], kind: str) -> list[dict[str, str]]:
    metadata = thing["metadata"]
    return [{"apiVersion": "test.holdfast.dev/v1", "kind": kind, "name": metadata["name"], "uid": metadata["uid"]}]


@pytest.mark.row("D27", level="e2e")
async def test_D27_what_stands_between_a_component_and_its_pods_is_part_of_the_proof_whatever_its_kind(
    shared_site: Site,
) -> None:
    site = shared_site
    trainer_kind, cohort_kind = await served(site, TRAINERS), await served(site, COHORTS)
    template = {"apiVersion": trainer_kind[0], "kind": "Trainer", "metadata": {"name": "trainer"}}
    trainer = {"template": {**template, "spec": {"template": pod_template()}}}
    trainer["podSets"] = [{"path": "template.spec.template", "replicas": 1}]  # type: ignore[assignment]
    async with open_space(site, trainer_kind, cohort_kind) as space:
        handle = await space.submit(appwrapper("train", trainer, warmupGracePeriodDuration="60s"))

        async def exists() -> bool:
            return await site.kube.find(*trainer_kind, "trainer", space.namespace) is not None

        await until(exists, 30, "the trainer is made")
        found = await site.kube.get(*trainer_kind, "trainer", space.namespace)
        metadata = {"name": "cohort", "finalizers": [FOREIGN_FINALIZER], "ownerReferences": owned(found, "Trainer")}
        cohort = await space.make({"apiVersion": cohort_kind[0], "kind": "Cohort", "metadata": metadata})
        meant = found["spec"]["template"]["metadata"]
        of_pod = {"labels": meant["labels"], "annotations": meant.get("annotations", {})}
        made = pod_template(name="trainer-0", **of_pod, ownerReferences=owned(cohort, "Cohort"))
        await space.make({"apiVersion": "v1", "kind": "Pod", **made})
        await space.reach(handle, "Running", 1)
        await handle.signal(names.SIGNAL_CANCEL, "")

        async def dying() -> bool:
            there = await site.kube.get(*cohort_kind, "cohort", space.namespace)
            return "deletionTimestamp" in there["metadata"]

        await until(dying, 120, "the cohort is being deleted")  # The collector has to learn its kind.
        # The collector may have been quicker.
        with contextlib.suppress(NotFound):
            await space.delete("v1", "Pod", "trainer-0")

        async def told() -> bool:
            return "Cohort cohort" in (await space.explain(handle)).now

        await until(told, 60, "the cohort is named as what is left")
        assert (await space.site.status(handle)).phase == "Terminating"
        await space.patch(*cohort_kind, "cohort", {"metadata": {"finalizers": None}})
        assert (await space.ended(handle)).phase == "Cancelled"
