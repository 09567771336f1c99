"""Copies of a component, pure: what each is sent as, and how they are summed up to one view."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

import pytest

from holdfast import names
from holdfast.activities.facts.components import UNSEEN
from holdfast.activities.facts.objects import object_facts
from holdfast.activities.objects.inject import InjectionError
from holdfast.activities.site.site import Pulse
from holdfast.model import Component, CopyLabel, CopyWord, FailureClass, Observation, Scope, StatusRule
from holdfast.model.calls.cluster import PlannedComponent, Target, copies_ref, planned
from tests.activities import bench, shapes
from tests.activities.facts.test_snapshot import look
from tests.activities.objects.test_inject import injected
from tests.activities.shapes import component, condition, failed, owner, pod

JOB = StatusRule(complete=("Complete",), failed=("Failed",))
PLAN = PlannedComponent(
    name="work", api_version="batch/v1", kind="Job", object_name="w", expected_pods=6, status=JOB, copies=3
)
TARGET = Target(
    cluster="dev",
    namespace="ns",
    name="train",
    workload_uid="u-1",
    workflow_id="workload/dev/ns/train",
    shard=17,
    run_as="holdfast-runner",
)
LABELS = {
    "example.com/index": CopyLabel(word=CopyWord.INDEX),
    "example.com/global-index": CopyLabel(word=CopyWord.INDEX, offset=10),
    "example.com/key": CopyLabel(word=CopyWord.KEY),
    "example.com/attempt": CopyLabel(word=CopyWord.ATTEMPT),
    "example.com/uid": CopyLabel(word=CopyWord.WORKLOAD_UID),
    "example.com/name": CopyLabel(word=CopyWord.NAME),
}


def copied(copies: int = 3, **fields: Any) -> Component:
    one = bench.job("w")
    return one.model_copy(update={"copies": copies, "copy_labels": LABELS, **fields})


def sent(one: Component, index: int | None, *, attempt: int = 3, launch: int = 0) -> dict[str, Any]:
    labels = {"example.com/name": "the workload's"}
    return injected(one, target=TARGET, attempt=attempt, labels=labels, launch=launch, copy_index=index)


def job(index: int, *conditions: dict[str, Any], **status: Any) -> dict[str, Any]:
    """Return a copy's Job of two pods; `suspend` is of its spec."""
    raw = component(f"w-{index}", conditions=list(conditions))
    suspend = status.pop("suspend", False)
    raw["spec"] = {"parallelism": 2, "completions": 5, "suspend": suspend}
    raw["status"] |= status
    return raw


def of(index: int, name: str, phase: str = "Running", **more: Any) -> dict[str, Any]:
    raw = failed(name, **more) if phase == "Failed" else pod(name, phase, **more)
    raw["metadata"]["labels"][names.LABEL_COPY] = str(index)
    return raw


def look_at(jobs: list[Any], *pods: dict[str, Any], plan: PlannedComponent = PLAN, **more: Any) -> Observation:
    copies = {"work": [object_facts(one) if isinstance(one, dict) else one for one in jobs]}
    return look(*pods, plan=(plan,), objects={}, copies=copies, **more)


class TestPlan:
    def test_it_does_not_grow_with_them(self):
        small, large = (planned(copied(count), "u", 1).model_dump_json(by_alias=True) for count in (3, 9000))
        assert len(large) - len(small) < 10

    def test_names_are_counted_from_0(self):
        assert PLAN.object_names == ("w-0", "w-1", "w-2")
        assert PLAN.pods_each == 2

    @pytest.mark.parametrize(
        ("name", "ours"),
        [("w-0", True), ("w-2", True), ("w-3", False), ("w", False), ("w-01", False), ("w--1", False), ("v-1", False)],
    )
    def test_a_name_is_told_to_be_one_of_them(self, name: str, ours: bool):
        assert PLAN.has(name) is ours

    def test_one_object_keeps_its_own_name(self):
        plan = planned(bench.job("w"), "u", 1)
        assert (plan.copies, plan.object_names, plan.has("w"), plan.has("w-0")) == (None, ("w",), True, False)
        assert "copies" not in plan.model_dump(mode="json", by_alias=True)

    def test_what_is_remembered_does_not_grow_with_them(self):
        assert copies_ref(copied(9000)).model_dump_json() != copies_ref(copied(9)).model_dump_json()
        assert len(copies_ref(copied(9000)).model_dump_json()) < 100


class TestLabels:
    def test_each_word_is_worked_out_for_the_copy(self):
        made = sent(copied(), 2, attempt=3, launch=4)
        values = {
            "example.com/index": "2",
            "example.com/global-index": "12",
            "example.com/key": hashlib.sha1(b"ns/w-2").hexdigest(),
            "example.com/attempt": "6",
            "example.com/uid": "u-1",
            "example.com/name": "w-2",
        }
        for metadata in (made["metadata"], made["spec"]["template"]["metadata"]):
            assert values.items() <= metadata["labels"].items()
            assert values.items() <= metadata["annotations"].items()
            assert metadata["labels"][names.LABEL_COPY] == "2"
            assert metadata["labels"][names.LABEL_COMPONENT] == "w"
        assert made["metadata"]["name"] == "w-2"

    def test_a_first_attempt_counts_0(self):
        assert sent(copied(), 0, attempt=1)["metadata"]["labels"]["example.com/attempt"] == "0"

    def test_the_same_copy_is_always_sent_the_same(self):
        hashes = [sent(copied(), index)["metadata"]["annotations"][names.ANNOTATION_SENT_HASH] for index in (1, 1, 2)]
        assert hashes[0] == hashes[1] != hashes[2]

    def test_one_object_bears_nothing_of_a_copy(self):
        made = injected(bench.job("w"), target=TARGET)
        assert names.LABEL_COPY not in made["metadata"]["labels"]

    def test_a_template_that_says_otherwise_is_refused(self):
        template = bench.job("w", metadata={"labels": {"example.com/index": "7"}}).template
        with pytest.raises(InjectionError, match="the template sets '7', and '2' is to be added"):
            sent(copied(template=template), 2)


class TestView:
    def test_it_is_found_only_if_all_are(self):
        seen = look_at([job(0), None, job(2)], of(0, "a"), of(0, "b"))
        assert seen.missing == ("work",)
        (missing,) = seen.failures
        assert (missing.cls, missing.scope, missing.component) == (FailureClass.MISSING, Scope.COMPONENT, "work")
        assert (missing.subject, missing.message) == ("w-1", "Job w-1 is gone")

    def test_another_owners_object_is_no_copy_of_ours(self):
        theirs = job(1)
        theirs["metadata"]["ownerReferences"][0]["uid"] = "another"
        assert [one.subject for one in look_at([job(0), theirs, job(2)]).failures] == ["w-1"]

    def test_none_is_missing_before_all_were_created(self):
        seen = look_at([job(0), None, None], its_owner=owner(submitted=False))
        assert (seen.missing, seen.failures) == ((), ())
        assert seen.components["work"].copies is not None
        assert seen.components["work"].copies.expected == 3

    def test_one_that_cannot_be_seen_is_taken_to_be_there(self):
        assert look_at([job(0), UNSEEN, job(2)]).missing == ()
        assert look_at([], unseen={"work"}).missing == ()
        assert [one.subject for one in look_at([UNSEEN, None, job(2)]).failures] == ["w-1"]

    def test_it_is_complete_only_if_all_are(self):
        done = condition("Complete")
        assert not look_at([job(0, done), job(1, done), job(2)]).components["work"].complete
        assert look_at([job(0, done), job(1, done), job(2, done)]).complete

    def test_each_that_failed_is_a_failure_with_its_name(self):
        bad = [condition("Failed", reason="BackoffLimitExceeded", message="no", second=second) for second in (9, 5)]
        seen = look_at([job(0, bad[0]), job(1), job(2, bad[1])])
        assert [(one.subject, one.scope, one.reason, one.message) for one in seen.failures] == [
            ("w-2", Scope.COMPONENT, "BackoffLimitExceeded", "no"),
            ("w-0", Scope.COMPONENT, "BackoffLimitExceeded", "no"),
        ]
        assert seen.components["work"].failed

    def test_they_are_counted_as_their_jobs_say(self):
        jobs = [
            job(0, condition("Complete"), succeeded=5),
            job(1, condition("Failed"), ready=2),
            job(2, ready=1, succeeded=1, active=1),
            job(3, ready=1, active=2),
            job(4, suspend=True),
            None,
        ]
        counts = (
            look_at(jobs, plan=PLAN.model_copy(update={"copies": 6, "expected_pods": 12})).components["work"].copies
        )
        assert counts is not None
        assert counts.model_dump() == {
            "expected": 6,
            "ready": 1,
            "succeeded": 1,
            "failed": 1,
            "active": 2,
            "suspended": 1,
        }

    def test_completions_below_the_parallelism_are_enough(self):
        few = job(0, ready=1, active=1)
        few["spec"] = {"parallelism": 4, "completions": 1}
        view = look_at([few], plan=PLAN.model_copy(update={"copies": 1})).components["work"]
        assert view.copies is not None
        assert view.copies.ready == 1

    def test_another_kind_is_counted_by_its_pods(self):
        plan = PLAN.model_copy(update={"kind": "Deployment", "api_version": "apps/v1", "status": StatusRule()})
        pods = [
            of(0, "a"),
            of(0, "b"),
            of(1, "c"),
            of(1, "d", "Pending"),
            of(2, "e", "Succeeded"),
            of(2, "f", "Succeeded"),
        ]
        view = look_at([component(f"w-{index}") for index in range(3)], *pods, plan=plan).components["work"]
        assert view.copies is not None
        assert (view.copies.ready, view.copies.active, view.copies.succeeded) == (1, 2, 1)

    def test_a_failed_pod_is_replaced_by_its_own_copys_alone(self):
        pods = [of(0, "a"), of(0, "b"), of(1, "c"), of(2, "d"), of(2, "e")]
        seen = look_at([job(0), job(1), job(2)], *pods, of(0, "old", "Failed"), of(1, "lost", "Failed"))
        assert [one.subject for one in seen.failures] == ["lost"]
        assert seen.pods.failed == 1

    def test_pods_of_a_copy_that_has_ended_are_not_missed(self):
        jobs = [job(0, condition("Complete")), job(1, condition("Failed")), job(2)]
        view = look_at(jobs, of(0, "a", "Succeeded"), of(2, "b"), of(2, "c")).components["work"]
        assert (view.pods.expected, view.excused, view.unready, view.absent) == (6, 3, 0, 0)

    def test_no_copies_are_complete_at_once(self):
        seen = look_at([], plan=PLAN.model_copy(update={"copies": 0, "expected_pods": 0}))
        assert (seen.complete, seen.missing) == (True, ())

    def test_many_that_failed_alike_do_not_hide_what_decides_otherwise(self):
        many = PLAN.model_copy(update={"copies": 40, "expected_pods": 80})
        jobs = [job(index, condition("Failed", reason="BackoffLimitExceeded", second=1)) for index in range(39)]
        last = job(39, condition("Failed", reason="PodFailurePolicy", second=50))
        seen = look_at([*jobs, last], of(0, "z", "Failed", code=42, second=55), plan=many)
        assert (len(seen.failures), seen.failures_total) == (16, 41)
        assert {"BackoffLimitExceeded", "PodFailurePolicy", "Error"} == {one.reason for one in seen.failures}

    def test_what_is_told_does_not_grow_with_them(self):
        def size(count: int) -> int:
            plan = PLAN.model_copy(update={"copies": count, "expected_pods": 2 * count})
            return len(look_at([job(index) for index in range(count)], plan=plan).model_dump_json(by_alias=True))

        assert size(900) - size(9) < 20

    def test_its_uid_is_another_once_one_of_them_is(self):
        again = job(1)
        again["metadata"]["uid"] = "again"
        before, after = look_at([job(0), job(1), job(2)]), look_at([job(0), again, job(2)])
        assert before.components["work"].uid != after.components["work"].uid


def test_shapes_are_of_one_object() -> None:
    assert object_facts(shapes.component()).job is None


async def test_copies_that_are_refused_at_the_same_time_bear_it_once() -> None:
    pulse, clock = Pulse(), asyncio.get_running_loop().time
    begun = clock()
    await asyncio.gather(*(pulse.bear(0.05, since=begun) for _ in range(8)))
    await pulse.bear(0.01)
    assert 0.06 <= pulse.borne <= clock() - begun + 1e-6
