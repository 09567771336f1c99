"""Copies of a component on a real cluster: made, seen, made again and removed together, each proven."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import names
from holdfast.activities.kube.client import Kube, Object
from holdfast.model import Component, CopyLabel, CopyWord, FailureClass, Scope
from holdfast.model.calls.cluster import Removed
from tests.activities.bench import Bench, eventually, job
from tests.quotas import limited

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

COPIES = 5


def copied(copies: int = COPIES, **fields: Any) -> Component:
    labels = {"example.com/index": CopyLabel(word=CopyWord.INDEX), "example.com/try": CopyLabel(word=CopyWord.ATTEMPT)}
    return job("w", 1).model_copy(update={"copies": copies, "copy_labels": labels, **fields})


@pytest.fixture
async def copies(bench: Bench) -> Bench:
    """A workload of one component with copies, prepared."""
    bench.components = (copied(),)
    await bench.prepare()
    return bench


async def jobs(bench: Bench) -> dict[str, Object]:
    labels = f"{names.LABEL_WORKLOAD_UID}={bench.target.workload_uid}"
    found = (await bench.admin.list("batch/v1", "Job", bench.namespace, labels=labels))["items"]
    return {one["metadata"]["name"]: one for one in found}


async def delete(bench: Bench, *indices: int) -> None:
    for index in indices:
        found = await bench.admin.get("batch/v1", "Job", f"w-{index}", bench.namespace)
        uid = found["metadata"]["uid"]
        await bench.admin.delete("batch/v1", "Job", f"w-{index}", bench.namespace, uid=uid, propagation="Background")


def uids(found: dict[str, Object]) -> dict[str, str]:
    return {name: one["metadata"]["uid"] for name, one in found.items()}


def seen_counts(seen: Any) -> Any:
    counts = seen.components["w"].copies
    assert counts is not None
    return counts


async def test_all_are_made_with_their_names_and_labels(copies: Bench):
    created = await copies.create()
    assert created.failure is None
    assert [(one.kind, one.name, one.uid, one.copies) for one in created.objects] == [("Job", "w", "", COPIES)]
    found = await jobs(copies)
    assert sorted(found) == [f"w-{index}" for index in range(COPIES)]
    for index in range(COPIES):
        one = found[f"w-{index}"]
        for metadata in (one["metadata"], one["spec"]["template"]["metadata"]):
            assert metadata["labels"]["example.com/index"] == str(index)
            assert metadata["annotations"]["example.com/try"] == "0"
            assert metadata["labels"][names.LABEL_COPY] == str(index)

    async def ready() -> Any:
        seen = await copies.observe()
        return seen if seen_counts(seen).ready == COPIES else None

    seen = await eventually(ready, 60)
    assert (seen.pods.expected, seen.pods.running, seen.missing) == (COPIES, COPIES, ())


async def test_what_an_earlier_try_has_made_is_kept_and_the_rest_is_made(copies: Bench):
    await copies.create()
    before = uids(await jobs(copies))
    await delete(copies, 1, 3)
    created = await copies.create(tries=2)
    assert created.failure is None
    after = uids(await jobs(copies))
    assert after.keys() == before.keys()
    assert {name for name in before if before[name] != after[name]} == {"w-1", "w-3"}


async def test_what_was_handed_over_is_no_interruption(copies: Bench):
    first = await copies.create(replaces_interrupted=True)
    owner = await copies.owner()
    assert owner is not None
    again = await copies.create(made=first.objects)
    assert (again.interrupted, again.failure) == ("", None)


async def test_what_is_there_half_made_and_was_not_handed_over_is_an_interruption(copies: Bench, admin: Kube):
    broken = copied(2)
    copies.components = (broken, job("late", 1, metadata={"labels": {"example.com/x": "not a label's value!"}}))
    assert (await copies.create()).failure is not None
    copies.components = (broken,)
    assert "half-made" in (await copies.create(replaces_interrupted=True)).interrupted
    handed = (await copies.create()).objects
    assert (await copies.create(replaces_interrupted=True, made=handed)).interrupted == ""


async def test_a_refusal_names_the_copy_and_bears_time_once(copies: Bench, admin: Kube):
    await limited(admin, copies.namespace, {"count/jobs.batch": "2"})
    created = await copies.create()
    failure = created.failure
    assert failure is not None
    assert created.exhausted
    assert (failure.cls, failure.scope, failure.component) == (FailureClass.LAUNCH, Scope.COMPONENT, "w")
    assert failure.subject in {f"w-{index}" for index in range(COPIES)}
    assert failure.subject not in await jobs(copies)
    beats = [beat["borne"] for beat in copies.heartbeats]
    # Several copies are refused at the same time: had each counted for itself, patience would have ended at once.
    assert len(beats) >= 2


async def test_another_hands_object_in_a_copys_place_is_named(copies: Bench, admin: Kube):
    template = copied().template
    metadata = {"name": "w-3", "namespace": copies.namespace}
    await admin.create({**template, "metadata": metadata})
    created = await copies.create()
    assert created.failure is not None
    assert (created.failure.subject, created.failure.reason, created.exhausted) == ("w-3", "AlreadyExists", False)
    assert "not ours" in created.failure.message


async def test_a_copy_that_takes_another_components_name_is_refused_beforehand(bench: Bench):
    bench.components = (copied(), job("w-2", 1))
    with pytest.raises(Exception, match=r"components w and w-2 are both Job w-2"):
        await bench.prepare()


async def test_a_template_that_no_copy_could_be_made_of_is_refused_beforehand(bench: Bench):
    template = copied().template
    template = {**template, "spec": {**template["spec"], "parallelism": -1}}
    bench.components = (copied(template=template),)
    with pytest.raises(Exception, match=r"spec.parallelism"):
        await bench.prepare(components=bench.components)
    assert await jobs(bench) == {}


async def test_one_that_was_deleted_is_missing_by_its_name(copies: Bench):
    await copies.create()
    await delete(copies, 2)
    seen = await copies.observe()
    assert seen.missing == ("w",)
    assert [(one.cls, one.subject) for one in seen.failures] == [(FailureClass.MISSING, "w-2")]
    assert seen_counts(seen).expected == COPIES


async def test_one_whose_labels_were_taken_off_is_found_by_its_name(copies: Bench):
    await copies.create()
    found = (await jobs(copies))["w-1"]
    patch = {"metadata": {"labels": {names.LABEL_COMPONENT: None}}}
    await copies.admin.patch("batch/v1", "Job", "w-1", copies.namespace, uid=found["metadata"]["uid"], patch=patch)
    assert (await copies.observe()).missing == ()
    assert (await copies.remove(0.0)).remnants_total >= COPIES
    assert (await copies.remove(60.0)).gone
    assert await copies.admin.find("batch/v1", "Job", "w-1", copies.namespace) is None


async def test_removal_proves_every_one_gone(copies: Bench):
    await copies.create()
    found = (await jobs(copies))["w-4"]
    hold = {"metadata": {"finalizers": ["example.com/hold"]}}
    key = ("batch/v1", "Job", "w-4", copies.namespace)
    await copies.admin.patch(*key, uid=found["metadata"]["uid"], patch=hold)

    async def only_held() -> Removed | None:
        found = await copies.force_remove(6.0)
        return found if [one.name for one in found.remnants if one.kind == "Job"] == ["w-4"] else None

    left = await eventually(only_held, 60)
    assert not left.gone
    assert [one.name for one in left.remnants if one.kind == "Job"] == ["w-4"]
    await copies.admin.patch(*key, uid=found["metadata"]["uid"], patch={"metadata": {"finalizers": None}})
    assert (await copies.remove(60.0)).gone
    assert (await jobs(copies), await copies.pods()) == ({}, [])


async def test_all_are_made_again_together(copies: Bench):
    await copies.launch()
    before = await jobs(copies)
    replaced = await copies.replace()
    assert replaced.failure is None
    after = await jobs(copies)
    assert after.keys() == before.keys()
    assert not set(uids(after).values()) & set(uids(before).values())
    assert {one["metadata"]["labels"]["example.com/try"] for one in after.values()} == {"1"}
    assert {one["metadata"]["labels"][names.LABEL_LAUNCH] for one in after.values()} == {"1"}
    again = await copies.replace(tries=2)
    assert again.failure is None
    assert uids(await jobs(copies)) == uids(after), "what is there with the launch that is asked for is kept"
