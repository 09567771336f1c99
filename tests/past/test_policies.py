"""Reading another policy: what it leaves out stays, and what is wrong is named by its field."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
import yaml

from holdfast.errors import InvalidWorkload
from holdfast.formats import read
from holdfast.past.policies import read_policy, with_settings
from holdfast.profiles import PROFILES
from tests.policy.lives.life import workload

SPEC = workload()


@pytest.mark.parametrize("head", ["", "policy:\n", "spec:\n policy:\n"])
def test_what_is_not_named_stays_as_the_workload_has_it(head: str):
    policy = read_policy(f"{head}  timings: {{failureGracePeriod: 5s}}", SPEC, PROFILES, "other.yaml")
    expected = SPEC.policy.timings.model_copy(update={"failure_grace_period": timedelta(seconds=5)})
    assert policy == SPEC.policy.model_copy(update={"timings": expected, "own_failure_grace": True})


POLICIES = (
    "{}",
    "{profile: streams}",
    "{timings: {failureGracePeriod: 5s}}",
    "{timings: {failureGracePeriod: 1m, retryPausePeriod: 10s}}",
    "{budgets: [{name: restart, limit: 1}, {name: launch, limit: 2}]}",
    "{exclusion: {limit: 1}}",
    "{profile: jobset, deletion: {atEnd: All}, success: {operator: Any}}",
)


@pytest.mark.row("P6", level="pure")
@pytest.mark.parametrize("text", POLICIES)
def test_it_is_what_a_submission_with_this_policy_would_have(text: str):
    # The workload has the policy of its profile, which is where a submission begins.
    spec = workload(policy=PROFILES["appwrapper"])
    document = {**spec.model_dump(mode="json"), "policy": {"profile": "appwrapper", **yaml.safe_load(text)}}
    (submitted,) = read(json.dumps(document), cluster=spec.cluster)
    assert read_policy(text, spec, PROFILES, "other.yaml") == submitted.policy


def test_another_profile_brings_its_own():
    assert read_policy("profile: streams", SPEC, PROFILES, "other.yaml") == PROFILES["streams"]


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("timings: {failureGrace: 5s}", "timings.failureGrace"),
        ("spec: {policy: {timings: {failureGracePeriod: soon}}}", "spec.policy.timings.failureGracePeriod"),
        ("policy: {profile: unheard}", "policy.profile"),
        ("policy: []", "policy: expected an object"),
        ("{", "line 1, column 2"),
        ("[streams]", "line 1: expected an object"),
        ("", "expected an object"),
        ("profile: streams\n---\nprofile: streams", "expected one document, found 2"),
        ("retry: 1\nretry: 2", "key 'retry' is given twice"),
        ('profile: "\\ud800"', "profile: holds half of a letter"),
        ("timings: {failureGracePeriod: 1:30}", "timings.failureGracePeriod: '1:30' is not a duration"),
        ("profile: [streams]", "profile"),
        ("success: {components: [unheard]}", "success"),
        ("budgets: [{name: restart, limit: true}]", "budgets[0].limit: expected a whole number"),
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
