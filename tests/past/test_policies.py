"""Reading another policy: what it leaves out stays, and what is wrong is named by its field."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.errors import InvalidWorkload
from holdfast.model import Exclusion
from holdfast.past.policies import read_policy, with_settings
from holdfast.profiles import PROFILES
from tests.policy.lives.life import workload

SPEC = workload()


@pytest.mark.parametrize("head", ["", "policy:\n", "spec:\n policy:\n"])
def test_what_is_not_named_stays_as_the_workload_has_it(head: str):
    policy = read_policy(f"{head}  timings: {{failureGracePeriod: 5s}}", SPEC, PROFILES, "other.yaml")
    expected = SPEC.policy.timings.model_copy(update={"failure_grace_period": timedelta(seconds=5)})
    assert policy == SPEC.policy.model_copy(update={"timings": expected, "own_failure_grace": True})


def test_what_is_not_named_of_a_part_stays_as_the_workload_has_it():
    mine = SPEC.policy.model_copy(update={"exclusion": Exclusion(limit=5, expiry=timedelta(hours=2))})
    spec = SPEC.model_copy(update={"policy": mine})
    policy = read_policy("policy: {exclusion: {limit: 1}}", spec, PROFILES, "other.yaml")
    assert policy.exclusion == Exclusion(limit=1, expiry=timedelta(hours=2))


def test_another_profile_brings_its_own():
    assert read_policy("profile: streams", SPEC, PROFILES, "other.yaml") == PROFILES["streams"]


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("timings: {failureGrace: 5s}", "timings.failureGrace"),
        ("spec: {policy: {timings: {failureGracePeriod: soon}}}", "spec.policy.timings.failureGracePeriod"),
        ("policy: {profile: unheard}", "policy.profile"),
        ("policy: []", "policy: expected an object"),
        ("{", "is not YAML"),
        ("profile: [streams]", "profile"),
        ("success: {components: [unheard]}", "success"),
        ("rules: [{name: x, match: {components: [unheard]}, action: {kind: Fail}}]", "rules"),
    ],
)
def test_what_is_wrong_is_named_by_its_field(text: str, path: str):
    with pytest.raises(InvalidWorkload) as refused:
        read_policy(text, SPEC, PROFILES, "other.yaml")
    assert path in str(refused.value)


def test_settings_of_a_policy_are_taken_and_others_refused():
    policy = with_settings(SPEC.policy, {"failureGracePeriod": "7s", "retryLimit": "9"}, SPEC)
    assert policy.timings.failure_grace_period == timedelta(seconds=7)
    assert policy.budget("restart").limit == 9
    others = (("queue", "other"), ("runAs", "x"), ("walltime", "1h"), ("checkpoint", "annotation"))
    wrong = (("launchLimit", "3"), ("failureGracePeriod", "soon"), ("ruleLimits", "{nosuch: 1}"))
    for name, value in (*others, *wrong):
        with pytest.raises(InvalidWorkload, match=name):
            with_settings(SPEC.policy, {name: value}, SPEC)
