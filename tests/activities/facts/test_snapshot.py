"""From what the cluster holds to one observation (rows A2, A3, A6, A7, A18)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from holdfast.activities.facts.objects import object_facts
from holdfast.activities.facts.pods import pod_facts
from holdfast.activities.facts.snapshot import plan_of, summarize
from holdfast.model import Failure, FailureClass, Interval, Observation, PodCounts, Scope, StatusRule
from holdfast.model.calls.cluster import PlannedComponent
from tests.activities.shapes import (
    ATTEMPT,
    NOW,
    OWNER,
    UID,
    component,
    condition,
    failed,
    owner,
    planned,
    pod,
    stamp,
    terminated,
    time,
)

JOB = StatusRule(complete=("Complete",), failed=("Failed",))


def look(
    *pods: Mapping[str, Any],
    plan: tuple[PlannedComponent, ...] = (planned(),),
    objects: Mapping[str, Mapping[str, Any] | None] | None = None,
    its_owner: Mapping[str, Any] | None = None,
    no_owner: bool = False,
    **more: Any,
) -> Observation:
    if objects is None:
        objects = {one.name: component(one.object_name) for one in plan}
    found = None if no_owner else object_facts(its_owner or owner())
    given: dict[str, Any] = {
        "workload_uid": UID,
        "attempt": ATTEMPT,
        "owner_uid": OWNER,
        "plan": plan,
        "anchor": None,
        "owner": found,
        "objects": {name: object_facts(raw) if raw else None for name, raw in objects.items()},
        "pods": [pod_facts(one) for one in pods],
        "at": NOW,
    }
    return summarize(**(given | more))


class TestCounts:
    def test_each_pod_counts_once_by_its_state(self):
        seen = look(
            pod("a", "Pending"),
            pod("b", "Running"),
            pod("c", "Running"),
            pod("d", "Succeeded"),
            failed("e"),
            pod("f", "Running", deleting=True),
            plan=(planned(pods=9),),
        )
        assert seen.components["work"].pods == PodCounts(
            expected=9, pending=1, running=2, succeeded=1, failed=1, terminating=1
        )

    def test_pods_of_another_attempt_workload_or_component_do_not_count(self):
        seen = look(pod("a", attempt=1), pod("b", uid="other"), pod("c", of="unknown"), pod("d", of=""))
        assert seen.components["work"].pods == PodCounts(expected=1)

    def test_pods_of_no_planned_component_occupy_what_was_given_until_they_end(self):
        strays = [pod("a", of="unknown"), pod("b", "Pending", of=""), pod("c", of="unknown", deleting=True)]
        seen = look(*strays, pod("d", "Succeeded", of="unknown"), failed("e", of="unknown"), pod("f", attempt=1))
        assert seen.unplanned == 3
        assert seen.occupies
        assert not look(pod("d", "Succeeded", of="unknown"), pod("e", "Succeeded")).occupies

    def test_components_are_counted_apart(self):
        plan = (planned("one"), planned("two"))
        seen = look(pod("a", of="one"), pod("b", "Pending", of="two"), plan=plan)
        assert (seen.components["one"].pods.running, seen.components["two"].pods.pending) == (1, 1)


# (expected, pending, running, succeeded, failed pods, how many failures count)
REPLACED = [
    (1, 0, 0, 0, 1, 1),
    (1, 1, 0, 0, 1, 0),
    (1, 0, 1, 0, 1, 0),
    (1, 0, 0, 1, 1, 0),
    (1, 0, 0, 0, 3, 1),
    (4, 0, 2, 0, 2, 2),
    (4, 1, 2, 0, 3, 1),
    (4, 0, 2, 2, 5, 0),
    (2, 0, 1, 5, 1, 0),  # completions beyond parallelism: a wave is still running
    (0, 0, 0, 0, 1, 0),
]


@pytest.mark.row("A18", level="pure")
@pytest.mark.parametrize(("expected", "pending", "running", "succeeded", "failures", "counted"), REPLACED)
def test_A18_a_failed_pod_counts_only_until_it_is_replaced(
    expected: int, pending: int, running: int, succeeded: int, failures: int, counted: int
):
    pods = [pod(f"p{n}", "Pending") for n in range(pending)]
    pods += [pod(f"r{n}", "Running") for n in range(running)]
    pods += [pod(f"s{n}", "Succeeded") for n in range(succeeded)]
    pods += [failed(f"f{n}", second=10 + n) for n in range(failures)]
    seen = look(*pods, plan=(planned(pods=expected),))
    assert seen.components["work"].pods.failed == counted
    assert [one.subject for one in seen.failures] == [f"f{n}" for n in range(failures - counted, failures)]


# (succeeded, running, when pods failed, when the next pods were created, how many failures count)
WAVES = [
    (1, 0, [9], [], 1),  # the second of three pods has failed
    (1, 1, [9], [], 0),
    (1, 1, [9], [20], 0),
    (2, 0, [9], [20], 0),  # the failed pod was replaced, and the next pod is missing for a moment
    (2, 0, [9], [], 1),
    (2, 0, [9, 30], [20], 1),
    (3, 0, [9], [], 0),
]


@pytest.mark.row("A3", level="pure")
@pytest.mark.row("A15", level="pure")
@pytest.mark.parametrize(("succeeded", "running", "failures", "created", "counted"), WAVES)
def test_A15_a_pod_of_a_later_wave_of_a_job_fails_like_one_of_the_first(
    succeeded: int, running: int, failures: list[int], created: list[int], counted: int
):
    pods = [pod(f"s{n}", "Succeeded") for n in range(succeeded)] + [pod(f"r{n}") for n in range(running)]
    for one, second in zip(pods, reversed(created), strict=False):
        one["metadata"]["creationTimestamp"] = stamp(second)
    pods += [failed(f"f{n}", code=3, second=second) for n, second in enumerate(failures)]
    job = {**component(), "spec": {"parallelism": 1, "completions": 3, "backoffLimit": 6}}
    seen = look(*pods, plan=(planned(status=JOB),), objects={"work": job})
    assert seen.components["work"].pods.failed == counted
    assert [(one.subject, one.exit_code) for one in seen.failures] == [(f"f{len(failures) - 1}", 3)] * counted


@pytest.mark.row("D22", level="pure")
def test_D22_a_failure_that_is_dated_to_the_end_of_the_calendar_has_another_time():
    raw = failed("f", conditions=[condition("Ready", "False", second=7)])
    raw["status"]["containerStatuses"][0]["state"]["terminated"]["finishedAt"] = "9999-12-31T23:59:59Z"
    job = {**component(), "spec": {"parallelism": 1, "completions": 3, "backoffLimit": 6}}
    seen = look(raw, plan=(planned(status=JOB),), objects={"work": job})
    assert [one.time for one in seen.failures] == [time(7)]
    assert seen.components["work"].backs_off_until == time(7) + timedelta(seconds=10)


@pytest.mark.row("A18", level="pure")
def test_A18_a_job_that_does_not_say_how_many_must_succeed_ends_with_its_first_success():
    job = {**component(), "spec": {"parallelism": 1}}
    seen = look(pod("s", "Succeeded"), failed("f"), plan=(planned(status=JOB),), objects={"work": job})
    assert seen.failures == ()


@pytest.mark.row("A18", level="pure")
def test_A18_a_failed_pod_without_a_controller_always_counts():
    plan = (planned(kind="Pod", api="v1"),)
    seen = look(failed("old"), pod("new", "Running"), plan=plan)
    assert seen.components["work"].pods.failed == 1
    assert seen.failures_total == 1


@pytest.mark.row("L22", level="pure")
@pytest.mark.parametrize(("kind", "running", "told"), [("Job", 1, ["t"]), ("Job", 2, []), ("Pod", 2, ["t"])])
def test_L22_an_evicted_pod_is_a_failure_until_it_is_replaced(kind: str, running: int, told: list[str]):
    plan = (planned(pods=2, kind=kind, api="v1" if kind == "Pod" else "batch/v1"),)
    taken = [condition("DisruptionTarget", reason="EvictionByEvictionAPI")]
    evicted = pod("t", "Running", deleting=True, conditions=taken)
    seen = look(evicted, *(pod(f"r{n}", "Running") for n in range(running)), plan=plan)
    assert [one.subject for one in seen.failures] == told
    assert (seen.components["work"].pods.failed, seen.components["work"].pods.terminating) == (0, 1)


@pytest.mark.row("D23", level="pure")
def test_D23_an_evicted_pod_of_what_is_complete_is_no_failure():
    done = {"work": component(conditions=[condition("Complete")])}
    taken = [condition("DisruptionTarget", reason="EvictionByEvictionAPI")]
    plan = (planned(pods=2, status=JOB),)
    seen = look(pod("a", "Succeeded"), pod("t", "Running", deleting=True, conditions=taken), plan=plan, objects=done)
    assert seen.complete
    assert seen.failures == ()


@pytest.mark.row("A18", level="pure")
def test_A18_a_terminating_pod_replaces_nothing():
    assert look(failed("f"), pod("t", "Running", deleting=True)).components["work"].pods.failed == 1


class TestCompletion:
    def test_A2_a_jobs_own_word_decides(self):
        plan = (planned(status=JOB),)
        done = {"work": component(conditions=[condition("Complete")])}
        assert look(pod("a", "Succeeded"), plan=plan, objects=done).complete
        assert not look(pod("a", "Succeeded"), plan=plan).complete
        told_no = {"work": component(conditions=[condition("Complete", "False")])}
        assert not look(pod("a", "Succeeded"), plan=plan, objects=told_no).complete

    @pytest.mark.parametrize(
        ("pods", "complete"),
        [
            ([pod("a", "Succeeded"), pod("b", "Succeeded")], True),
            ([pod("a", "Succeeded")], False),
            ([pod("a", "Succeeded"), pod("b", "Running")], False),
            ([pod("a", "Succeeded"), pod("b", "Succeeded"), pod("c", "Running")], False),
            ([pod("a", "Succeeded"), pod("b", "Succeeded"), pod("c", "Pending")], False),
            ([pod("a", "Succeeded"), pod("b", "Succeeded"), pod("c", "Running", deleting=True)], False),
            ([pod("a", "Succeeded"), failed("b")], False),
            ([], False),
        ],
    )
    def test_A2_where_the_kind_has_no_word_for_it_all_expected_pods_have_succeeded(
        self, pods: list[dict[str, Any]], complete: bool
    ):
        assert look(*pods, plan=(planned(pods=2),)).complete is complete

    def test_what_brings_no_pods_is_complete_when_it_is_there(self):
        plan = (planned("work"), planned("service", kind="Service", api="v1", pods=0))
        assert look(pod("a", "Succeeded"), plan=plan).complete
        objects = {"work": component("work-0"), "service": None}
        assert not look(pod("a", "Succeeded"), plan=plan, objects=objects).complete

    def test_one_unfinished_component_keeps_all_from_being_complete(self):
        plan = (planned("one"), planned("two"))
        assert not look(pod("a", "Succeeded", of="one"), pod("b", of="two"), plan=plan).complete

    def test_no_plan_is_never_complete(self):
        assert not look(plan=()).complete

    def test_what_is_not_created_yet_is_not_complete(self):
        plan = (planned("work"), planned("service", kind="Service", api="v1", pods=0))
        objects = {"work": component("work-0"), "service": None}
        seen = look(pod("a", "Succeeded"), plan=plan, objects=objects, its_owner=owner(submitted=False))
        assert not seen.complete


class TestMissing:
    def test_A6_a_component_that_is_gone_is_missing(self):
        seen = look(pod("a"), objects={"work": None})
        assert seen.missing == ("work",)
        assert [(one.cls, one.scope, one.reason, one.subject) for one in seen.failures] == [
            (FailureClass.MISSING, Scope.COMPONENT, "MissingComponent", "work-0")
        ]

    def test_A6_another_object_under_its_name_does_not_stand_for_it(self):
        assert look(objects={"work": component(owner_uid="someone-else")}).missing == ("work",)

    @pytest.mark.parametrize("its_owner", [owner(submitted=False), owner(deleting=True), owner(uid="new")])
    def test_before_submission_and_during_removal_nothing_is_missing(self, its_owner: dict[str, Any]):
        seen = look(objects={"work": None}, its_owner=its_owner)
        assert (seen.missing, seen.failures) == ((), ())
        assert not seen.complete

    def test_a_kind_the_observer_does_not_read_is_taken_to_be_there(self):
        plan = (planned("work"), planned("config", kind="ConfigMap", api="v1", pods=0))
        objects = {"work": component("work-0")}
        seen = look(pod("a", "Succeeded"), plan=plan, objects=objects, unseen={"config"})
        assert seen.missing == ()
        assert seen.complete


class TestFailures:
    def test_A3_a_failed_pod_is_evidence(self):
        (one,) = look(failed("worker-3", 137, 9)).failures
        assert one.sentence() == "worker-3 exited 137 on node-7"
        assert (one.cls, one.scope, one.time, one.component) == (FailureClass.APP, Scope.MEMBER, time(9), "work")
        assert one.attempt == ATTEMPT

    def test_A7_a_component_that_says_it_failed_has_failed(self):
        told = condition("Failed", reason="BackoffLimitExceeded", message="Job has reached its limit", second=7)
        seen = look(plan=(planned(status=JOB),), objects={"work": component(conditions=[told])})
        assert seen.components["work"].failed
        (one,) = seen.failures
        assert (one.scope, one.reason, one.time, one.subject) == (
            Scope.COMPONENT,
            "BackoffLimitExceeded",
            time(7),
            "work-0",
        )

    def test_a_condition_that_does_not_hold_is_no_failure(self):
        told = condition("Failed", "False")
        assert not look(plan=(planned(status=JOB),), objects={"work": component(conditions=[told])}).failures

    def test_the_earliest_comes_first_ties_by_component_then_name(self):
        plan = (planned("b", pods=3), planned("a", pods=3))
        seen = look(
            failed("z", second=9, of="a"),
            failed("y", second=9, of="b"),
            failed("x", second=9, of="b"),
            failed("w", second=8, of="b"),
            plan=plan,
        )
        assert [(one.component, one.subject) for one in seen.failures] == [
            ("b", "w"),
            ("a", "z"),
            ("b", "x"),
            ("b", "y"),
        ]

    def test_at_most_sixteen_travel_and_all_are_counted(self):
        seen = look(*(failed(f"f{n:02}", second=n) for n in range(40)), plan=(planned(pods=40),))
        assert [one.subject for one in seen.failures] == [f"f{n:02}" for n in range(16)]
        assert seen.failures_total == 40

    def test_A7_many_failed_pods_do_not_hide_the_components_own_word(self):
        word = condition("Failed", reason="BackoffLimitExceeded", second=50)
        plan = (planned(pods=40, status=JOB),)
        pods = [failed(f"f{n:02}", second=n) for n in range(40)]
        seen = look(*pods, plan=plan, objects={"work": component(conditions=[word])})
        assert len(seen.failures) == 16
        assert (seen.failures[-1].scope, seen.failures[-1].reason) == (Scope.COMPONENT, "BackoffLimitExceeded")
        assert list(seen.failures) == sorted(seen.failures, key=Failure.order)

    def test_A6_many_failed_pods_do_not_hide_a_missing_component(self):
        pods = [failed(f"f{n:02}", second=n) for n in range(40)]
        seen = look(*pods, plan=(planned(pods=40),), objects={"work": None})
        assert seen.missing == ("work",)
        assert FailureClass.MISSING in {one.cls for one in seen.failures}

    def test_A15_many_failed_pods_do_not_hide_the_exit_code_of_one(self):
        pods = [failed(f"f{n:02}", 42 if n == 39 else 1, n) for n in range(40)]
        seen = look(*pods, plan=(planned(pods=40),))
        assert [one.exit_code for one in seen.failures] == [1] * 15 + [42]
        assert seen.failures[0].subject == "f00"

    def test_a_failed_pod_without_any_time_has_that_of_its_creation(self):
        assert look(pod("p", "Failed")).failures[0].time == time(2)

    def test_an_init_containers_exit_code_is_told(self):
        (one,) = look(pod("p", "Failed", initContainerStatuses=[terminated(9, 4)])).failures
        assert (one.exit_code, one.time) == (9, time(4))


class TestOwner:
    def test_none_found(self):
        seen = look(pod("a"), no_owner=True)
        assert (seen.owner_found, seen.owner_deleting, seen.owner_uid) == (False, False, OWNER)

    def test_another_under_its_name_is_not_it(self):
        assert not look(its_owner=owner(uid="new")).owner_found

    def test_deleting(self):
        assert look(its_owner=owner(deleting=True)).owner_deleting

    def test_where_none_was_known_the_one_found_is_taken(self):
        assert look(owner_uid="").owner_uid == OWNER

    def test_the_anchors_deletion_is_seen(self):
        dying = object_facts({"metadata": {"name": "w", "uid": "a", "deletionTimestamp": "2026-01-01T11:00:00Z"}})
        assert look(anchor=dying).anchor_deleting
        assert not look(anchor=None).anchor_deleting


def test_revision_is_the_highest_version_given_unless_it_is_said():
    assert look(pod("a", version=40), pod("b", version=30)).revision == 40
    assert look(pod("a", version=40), revision=25).revision == 25


def test_what_the_observer_says_of_itself_is_passed_on():
    dark = (Interval(begin=time(1), end=time(2)),)
    seen = look(live=True, epoch=3, blind=dark)
    assert (seen.live, seen.epoch, seen.blind, seen.at) == (True, 3, dark, NOW)


def test_an_observation_survives_its_wire_form():
    seen = look(failed("f"), pod("a"), plan=(planned(pods=2, status=JOB),))
    assert Observation.model_validate_json(seen.model_dump_json(by_alias=True)) == seen


def test_the_plan_is_read_back_from_the_owner():
    plan = (planned(status=JOB), planned("service", kind="Service", api="v1", pods=0))
    raw = {"spec": {"plan": [one.model_dump(mode="json", by_alias=True) for one in plan]}}
    assert plan_of(raw) == plan
    assert plan_of({}) == ()


def test_the_plan_of_a_newer_release_is_read_too():
    (one,) = plan = (planned(status=JOB),)
    wire = one.model_dump(mode="json", by_alias=True)
    newer = {**wire, "status": {**wire["status"], "suspended": ["Held"]}, "priority": 3}
    assert plan_of({"spec": {"plan": [newer]}}) == plan


def ends_in(year: int) -> dict[str, Any]:
    """Return a pod of a Job that has failed at noon of the last day of a year, as its node's clock has it."""
    ended = terminated(1)
    ended["state"]["terminated"]["finishedAt"] = f"{year}-12-31T12:00:00Z"
    return pod("p", "Failed", containerStatuses=[ended])


@pytest.mark.row("D22", level="pure")
@pytest.mark.parametrize("year", [2025, NOW.year, 2999])
def test_D22_a_failure_that_its_node_dates_in_the_future_delays_nothing(year: int) -> None:
    job = {**component("work-0"), "spec": {"parallelism": 1, "completions": 1, "backoffLimit": 6}}
    seen = look(ends_in(year), objects={"work": job})
    (failure,) = seen.failures
    assert failure.time.year == year
    until = seen.components["work"].backs_off_until
    assert until is None if year >= NOW.year else until is not None and failure.time < until < NOW
