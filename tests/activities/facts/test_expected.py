"""What is expected of a component: by its object's own spec, its Job's back-off, and its end (rows D14, D22, D23)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast.activities.facts.objects import component_facts
from holdfast.activities.facts.pods import pod_facts
from holdfast.activities.facts.snapshot import summarize
from holdfast.activities.kube.errors import NotFound, UnknownKind, error_of
from holdfast.model import ComponentView, Observation, StatusRule
from holdfast.worker.watch.facts import facts_of
from tests.activities.facts.test_snapshot import look
from tests.activities.shapes import ATTEMPT, NOW, OWNER, UID, component, condition, failed, planned, pod, time

D14 = pytest.mark.row("D14", level="pure")
D22 = pytest.mark.row("D22", level="pure")
D23 = pytest.mark.row("D23", level="pure")
JOB = StatusRule(complete=("Complete",), failed=("Failed",))
TEMPLATE = {"spec": {"containers": [{"name": "main"}]}}


def scaled(kind: str, api: str, spec: dict[str, Any], *pods: dict[str, Any], declared: int = 4) -> ComponentView:
    """Look at one object whose own spec is this now."""
    plan = planned(kind=kind, api=api, pods=declared)
    raw = {**component("work-0"), "spec": spec}
    seen = look(*pods, plan=(plan,), objects={"work": None})
    given = {
        "workload_uid": UID,
        "attempt": ATTEMPT,
        "owner_uid": OWNER,
        "plan": (plan,),
        "anchor": None,
        "owner": None,
        "objects": {"work": component_facts(api, kind)(raw)},
        "pods": [pod_facts(one) for one in pods],
        "at": NOW,
    }
    assert seen.components["work"].declared == declared
    return summarize(**given).components["work"]


RAY = {"headGroupSpec": {"template": TEMPLATE}}
SPECS = (
    ("Deployment", "apps/v1", {"replicas": 2}, 2),
    ("StatefulSet", "apps/v1", {"replicas": 3}, 3),
    ("Job", "batch/v1", {"parallelism": 2, "completions": 8}, 2),
    ("RayCluster", "ray.io/v1", {**RAY, "workerGroupSpecs": [{"replicas": 2, "template": TEMPLATE}]}, 3),
    ("JobSet", "jobset.x-k8s.io/v1alpha2", {"replicatedJobs": [{"replicas": 2, "template": {"spec": {}}}]}, 2),
    ("LeaderWorkerSet", "leaderworkerset.x-k8s.io/v1", {"replicas": 1, "leaderWorkerTemplate": {"size": 3}}, 3),
    ("LeaderWorkerSet", "leaderworkerset.x-k8s.io/v1", {"leaderWorkerTemplate": {}}, 1),
    ("Trainer", "test.holdfast.dev/v1", {"replicas": 1}, 4),
)


@D14
@pytest.mark.parametrize(("kind", "api", "spec", "now"), SPECS, ids=[f"{one[0]}-{one[3]}" for one in SPECS])
def test_D14_what_an_objects_own_spec_asks_for_is_expected_within_what_was_declared(
    kind: str, api: str, spec: dict[str, Any], now: int
) -> None:
    view = scaled(kind, api, spec, *(pod(f"p{index}") for index in range(now)))
    assert (view.pods.expected, view.absent, view.unready) == (now, 0, 0)
    assert (view.released, view.overrun, view.declared) == (4 - now, 0, 4)


@D14
def test_D14_more_than_was_declared_is_an_overrun_and_expected_of_nobody() -> None:
    view = scaled("Deployment", "apps/v1", {"replicas": 7}, *(pod(f"p{index}") for index in range(7)))
    assert (view.pods.expected, view.released, view.overrun) == (4, 0, 3)


@D14
def test_D14_an_object_scaled_to_0_is_not_complete() -> None:
    view = scaled("Deployment", "apps/v1", {"replicas": 0})
    assert (view.complete, view.pods.expected, view.unready, view.released) == (False, 0, 0, 4)


@D14
def test_D14_the_youngest_pods_that_make_up_what_is_lacking_say_since_when_they_start() -> None:
    older, younger = pod("p1", "Pending"), pod("p2", "Pending")
    younger["metadata"]["creationTimestamp"] = "2026-01-01T11:00:30Z"
    running = [pod(f"r{index}") for index in range(2)]
    assert scaled("Deployment", "apps/v1", {"replicas": 4}, *running, older, younger).starting == time(2)
    assert scaled("Deployment", "apps/v1", {"replicas": 3}, *running, older, younger).starting == time(30)
    assert scaled("Deployment", "apps/v1", {"replicas": 4}, *running, older).starting is None, "one does not exist"
    assert scaled("Deployment", "apps/v1", {"replicas": 2}, *running, older).starting is None, "nothing is lacking"


@D14
def test_D14_pods_that_are_being_deleted_say_until_when_they_may_take_to_end() -> None:
    def going(name: str, second: int) -> dict[str, Any]:
        raw = pod(name)
        raw["metadata"] |= {"deletionTimestamp": f"2026-01-01T11:05:{second:02}Z", "deletionGracePeriodSeconds": 300}
        return raw

    running, later = [pod(f"r{index}") for index in range(2)], timedelta(minutes=5)
    first, last, starts = going("p1", 1), going("p2", 9), pod("p3", "Pending")
    sts: tuple[str, str] = ("StatefulSet", "apps/v1")
    assert scaled(*sts, {"replicas": 4}, *running, first, last).ending == time(1) + later
    assert scaled(*sts, {"replicas": 3}, *running, first, last).ending == time(9) + later, "one is not needed"
    assert scaled(*sts, {"replicas": 4}, *running, last, starts).ending == time(9) + later
    assert scaled(*sts, {"replicas": 4}, *running, last).ending is None, "one does not exist"
    assert scaled(*sts, {"replicas": 2}, *running, last).ending is None, "nothing is lacking"


@D14
def test_D14_the_watch_tells_of_0_and_of_an_overrun_but_not_of_each_step_within() -> None:
    def facts(replicas: int) -> Any:
        pods = [pod(f"p{index}") for index in range(replicas)]
        view = scaled("Deployment", "apps/v1", {"replicas": replicas}, *pods)
        seen = Observation(workload_uid=UID, attempt=1, owner_uid=OWNER, at=NOW, components={"work": view})
        return facts_of(seen)

    assert facts(2) == facts(3)
    assert len({facts(count).digest() for count in (0, 3, 4, 5, 6)}) == 5


def complete_job(*pods: dict[str, Any], **spec: Any) -> Observation:
    raw = {**component("work-0", conditions=[condition("Complete")]), "spec": spec}
    return look(*pods, plan=(planned(pods=3, status=JOB),), objects={"work": raw})


@D23
def test_D23_failed_pods_left_by_a_complete_job_are_nobodys_failure() -> None:
    seen = complete_job(pod("a", "Succeeded"), failed("b"), failed("c"))
    assert seen.components["work"].complete
    assert seen.failures == (), "a component that is complete is never unhealthy"
    assert seen.components["work"].pods.failed == 0


@D23
def test_D23_of_a_job_that_is_not_complete_they_are_failures_as_ever() -> None:
    seen = look(pod("a", "Succeeded"), failed("b"), failed("c"), plan=(planned(pods=3, status=JOB),))
    assert [one.subject for one in seen.failures] == ["b", "c"]


def backing_off(failures: int, limit: int = 6, conditions: tuple[str, ...] = (), **spec: Any) -> ComponentView:
    raw = {
        **component("work-0", conditions=[condition(one) for one in conditions]),
        "spec": {"parallelism": 1, "completions": 1, "backoffLimit": limit, **spec},
    }
    raw["status"] = {**raw["status"], "failed": failures}
    seen = look(failed("b", second=20), plan=(planned(status=JOB),), objects={"work": raw})
    return seen.components["work"]


@D22
def test_D22_a_jobs_own_back_off_is_ten_seconds_doubled_with_each_failure_and_at_most_ten_minutes() -> None:
    spans = [(backing_off(count, limit=20).backs_off_until or NOW) - time(20) for count in (1, 2, 4, 6, 7, 12)]
    assert spans == [timedelta(seconds=count) for count in (10, 20, 80, 320, 600, 600)]


@D22
def test_D22_a_job_without_retries_or_at_its_end_backs_off_no_more() -> None:
    assert backing_off(6).backs_off_until is not None
    assert backing_off(7).backs_off_until is None
    assert backing_off(2, conditions=("FailureTarget",)).backs_off_until is None
    assert backing_off(2, suspend=True).backs_off_until is None
    bare = look(failed("b"), plan=(planned(kind="Pod", api="v1"),)).components["work"]
    assert bare.backs_off_until is None


@D22
def test_D22_failed_pods_that_a_job_ignores_use_up_no_retries() -> None:
    raw = {**component("work-0"), "spec": {"parallelism": 1, "completions": 1, "backoffLimit": 3}}
    pods = [failed(name, code=42, second=second) for name, second in (("a", 1), ("b", 2), ("c", 3), ("d", 5))]
    view = look(*pods, plan=(planned(status=JOB),), objects={"work": raw}).components["work"]
    assert view.backs_off_until == time(5) + timedelta(seconds=80)


@D22
def test_D22_a_job_that_a_component_has_made_backs_off_as_one_of_its_own_does() -> None:
    def made(raw: dict[str, Any], job: str) -> dict[str, Any]:
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": f"uid-{job}", "controller": True}
        return {**raw, "metadata": {**raw["metadata"], "ownerReferences": [owner]}}

    plan = planned(kind="JobSet", api="jobset.x-k8s.io/v1alpha2", pods=2, status=JOB)
    pods = [made(failed(name, second=second), "set-a-0") for name, second in (("a", 1), ("b", 5), ("c", 9), ("d", 20))]
    view = look(*pods, plan=(plan,), objects={"work": component("work-0")}).components["work"]
    assert view.backs_off_until == time(20) + timedelta(seconds=80)
    pods.append(made(failed("e", second=30), "set-b-0"))
    view = look(*pods, plan=(plan,), objects={"work": component("work-0")}).components["work"]
    assert view.backs_off_until == time(30) + timedelta(seconds=10), "whichever is made again first"
    assert look(failed("f"), plan=(plan,)).components["work"].backs_off_until is None, "of no Job"


D24 = pytest.mark.row("D24", level="pure")


@D24
def test_D24_of_a_component_whose_kind_is_not_served_nothing_is_missing_and_nothing_has_failed() -> None:
    plan = (planned(pods=2),)
    seen = look(failed("b"), plan=plan, objects={"work": None}, unseen={"work"}, unserved={"work"})
    view = seen.components["work"]
    assert (seen.failures, seen.missing, view.found, view.complete, view.unserved) == ((), (), True, False, True)
    assert (view.absent, view.unready) == (0, 0)


@D24
@pytest.mark.parametrize(
    ("text", "expected"), [("404 page not found\n", UnknownKind), ('trainers "w" not found', NotFound)]
)
def test_D24_a_path_that_is_not_served_is_told_from_an_object_that_is_not_there(
    text: str, expected: type[NotFound]
) -> None:
    path = "/apis/test.holdfast.dev/v1alpha1/namespaces/ns/trainers/w"
    assert type(error_of(404, {"message": text}, "GET", path)) is expected
