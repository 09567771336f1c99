"""What differs between a workload in force and its file, and which of it can be changed while it runs (row E3)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast.model import After, Budget, Component, PodSet, Policy, Rule, StartStatus, Timings, Workload
from holdfast.policy.loop.change import changed, reconfigured
from holdfast.policy.loop.difference import ABSENT, HIDDEN, Difference, changes
from tests.client.conftest import a_workload

pytestmark = pytest.mark.row("E3", level="pure")
BEFORE = a_workload(name="train")


def with_policy(**fields: Any) -> Workload:
    return BEFORE.model_copy(update={"policy": BEFORE.policy.model_copy(update=fields)})


def with_image(image: str, replicas: int = 2, name: str = "main") -> Workload:
    template = {**BEFORE.components[0].template, "metadata": {"name": name}}
    template["spec"] = {"template": {"spec": {"containers": [{"name": "c", "image": image}]}}}
    sets = (PodSet(path="template.spec.template", replicas=replicas),)
    return BEFORE.model_copy(update={"components": (Component(name="main", template=template, pod_sets=sets),)})


def test_E3_what_belongs_to_a_submission_is_no_difference() -> None:
    there = BEFORE.model_copy(update={"uid": "u-1", "queued": True})
    assert changes(there, BEFORE).differences == ()


def test_E3_an_order_that_matters_only_where_it_begins_suspended_is_no_difference() -> None:
    def waiting(**fields: bool) -> Workload:
        wait = After(component="driver", status=StartStatus.READY, **fields)
        (main,) = BEFORE.components
        return BEFORE.model_copy(update={"components": (main.model_copy(update={"after": (wait,)}),)})

    there, file = waiting(), waiting(created_suspended=False)
    assert there.spec_hash() == file.spec_hash() != BEFORE.spec_hash()
    assert changes(there, file).differences == ()


def test_E3_waits_and_budgets_differ_field_by_field_and_can_change() -> None:
    timings = BEFORE.policy.timings.model_copy(update={"failure_grace_period": timedelta(seconds=30)})
    budget = Budget(name="restart", limit=5, reset_after=timedelta(hours=1))
    found = changes(BEFORE, with_policy(timings=timings, budgets=(budget,)))
    assert found.differences == (
        Difference("policy.timings.failureGracePeriod", "0s", "30s"),
        Difference("policy.budgets[restart].limit", 3, 5),
        Difference("policy.budgets[restart].resetAfter", None, "1h"),
    )
    assert found.fixed == ()
    assert found.policy is not None
    assert changed(BEFORE.policy, found.policy).budgets == (budget,)
    assert (found.components, found.scale) == (None, None)


def test_E3_a_timing_that_the_file_no_longer_gives_is_taken_away() -> None:
    there = with_policy(timings=Timings(launch_grace_period=timedelta(minutes=2)))
    found = changes(there, with_policy(timings=Timings()))
    assert found.differences == (Difference("policy.timings.launchGracePeriod", "2m", ABSENT),)
    assert found.policy is not None
    assert changed(there.policy, found.policy).timings == Timings()
    assert found.fixed == ()


def test_E3_a_rules_limit_and_pause_can_change_and_its_match_cannot() -> None:
    rule = {"name": "oom", "match": {"reasons": ["OOMKilled"]}, "action": {"limit": 2}}
    there = with_policy(rules=(Rule.model_validate(rule),))
    wanted = with_policy(rules=(Rule.model_validate({**rule, "action": {"limit": 4, "pause": "10s"}}),))
    found = changes(there, wanted)
    assert found.policy is not None
    assert (found.policy.rule_limits, found.policy.rule_pauses) == ({"oom": 4}, {"oom": "10s"})
    assert found.fixed == ()
    other = with_policy(rules=(Rule.model_validate({**rule, "match": {"reasons": ["Error"]}}),))
    assert [one.path for one in changes(there, other).fixed] == ["policy.rules[oom].match.reasons[0]"]


def test_E3_an_order_that_decides_is_a_difference_that_cannot_change() -> None:
    rules = [Rule.model_validate({"name": name, "match": {"reasons": [name]}}) for name in ("a", "b")]
    found = changes(with_policy(rules=tuple(rules)), with_policy(rules=tuple(reversed(rules))))
    assert found.differences == found.fixed == (Difference("policy.rules", ["a", "b"], ["b", "a"]),)


def test_E3_a_component_is_made_again_with_the_same_pods() -> None:
    found = changes(BEFORE, with_image("busybox:2"))
    path = "components[main].template.spec.template.spec.containers[c].image"
    assert found.differences == (Difference(path, "busybox", "busybox:2"),)
    assert found.components is not None
    assert reconfigured(BEFORE, found.components) == with_image("busybox:2")
    assert found.fixed == ()


@pytest.mark.parametrize(
    ("wanted", "path"),
    [
        (with_image("busybox", replicas=4), "components[main].podSets[0].replicas"),
        (with_image("busybox", name="other"), "components[main].template.metadata.name"),
        (BEFORE.model_copy(update={"queue": "gpus"}), "queue"),
        (BEFORE.model_copy(update={"labels": {"team": "x"}}), "labels.team"),
        (BEFORE.model_copy(update={"suspend": True}), "suspend"),
        (with_policy(budgets=()), "policy.budgets[restart]"),
        (with_policy(budgets=(Budget(name="restart", limit=None),)), "policy.budgets[restart].limit"),
    ],
)
def test_E3_what_cannot_change_is_named(wanted: Workload, path: str) -> None:
    assert [one.path for one in changes(BEFORE, wanted).fixed] == [path]


def test_E3_what_can_change_beside_it_is_not_called_fixed() -> None:
    wanted = with_policy(timings=Timings(), budgets=()).model_copy(update={"queue": "gpus"})
    found = changes(BEFORE, wanted)
    assert {one.path for one in found.fixed} == {"queue", "policy.budgets[restart]"}
    assert len(found.differences) > len(found.fixed)


def test_E3_a_gangs_size_can_change_with_its_pods() -> None:
    template = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "main"},
        "spec": {
            "completionMode": "Indexed",
            "template": {"spec": {"containers": [{"name": "c", "image": "busybox"}]}},
        },
    }

    def gang(least: int, most: int) -> Workload:
        sets = (PodSet(path="template.spec.template", replicas=least),)
        component = Component(name="main", template=template, pod_sets=sets)
        return a_workload(name="train", components=(component,), policy=Policy(), gang={"min": least, "max": most})

    found = changes(gang(2, 4), gang(3, 6))
    assert found.fixed == ()
    assert found.scale is not None
    assert (found.scale.min, found.scale.max) == (3, 6)
    assert found.components is None


def test_E3_a_secrets_values_are_not_shown() -> None:
    def secret(value: str) -> Workload:
        template = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key"}, "stringData": {"key": value}}
        return BEFORE.with_components((*BEFORE.components, Component(name="key", template=template)))

    (one,) = changes(secret("before"), secret("after")).differences
    assert one == Difference("components[key].template.stringData.key", HIDDEN, HIDDEN)
