"""Limits and pauses that are given by rules' names, as annotations and as settings (row J19)."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.errors import InvalidWorkload
from holdfast.formats import read
from holdfast.model import Scope
from holdfast.profiles.jobset import RULES_BEFORE
from tests.formats.documents import Json, job
from tests.formats.jobset.jobsets import jobset_of, one, refusal
from tests.formats.test_manifests import annotated

PARTS: Json = {
    "rules": [
        {"name": "part", "action": "RestartReplicatedJob"},
        {"name": "let", "action": "FailJob"},
    ]
}


@pytest.mark.row("J19", level="pure")
def test_J19_limits_and_pauses_of_rules_are_annotations() -> None:
    annotations = {
        "holdfast.dev/ruleLimits": "{part: 2, no-failure-policy-rule: 0}",
        "holdfast.dev/rulePauses": '{"part": "10m"}',
    }
    before = one(jobset_of(failurePolicy=PARTS)).policy
    policy = one(jobset_of(failurePolicy=PARTS, annotations=annotations)).policy
    part, let, rest = policy.rules[len(RULES_BEFORE) :]
    assert (part.action.limit, part.action.pause, part.action.unit) == (2, timedelta(minutes=10), Scope.COMPONENT)
    assert (rest.action.limit, rest.action.pause) == (0, None)
    assert (let, policy.rules[: len(RULES_BEFORE)]) == (before.rules[-2], RULES_BEFORE)
    (overridden,) = read(
        [jobset_of(failurePolicy=PARTS, annotations=annotations)],
        cluster="dev",
        overrides={"ruleLimits": "{part: 7}"},
    )
    assert [rule.action.limit for rule in overridden.policy.rules[-3:]] == [7, None, 0]


@pytest.mark.row("J19", level="pure")
@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("ruleLimits", "part=2", "expected rules by their names, as in {oom: 2} (found 'part=2')"),
        ("ruleLimits", "{part: 2", "expected rules by their names, as in {oom: 2}"),
        ("rulePauses", "[part]", "expected rules by their names, as in {oom: 10m} (found '[part]')"),
        ("ruleLimits", "{part: -1}", "part: expected a whole number from 0 to 1000000 (found '-1')"),
        ("ruleLimits", "{part: {}}", "part: expected a whole number from 0 to 1000000 (found '{}')"),
        ("rulePauses", "{part: soon}", "part: 'soon' is not a duration"),
        ("ruleLimits", "{parts: 2}", "expected the name of a rule that restarts; allowed: "),
        ("rulePauses", "{let: 2m}", "owner-deleted, part, no-failure-policy-rule (found 'let')"),
        ("ruleLimits", "{default: 2}", "expected the name of a rule that restarts"),
    ],
)
def test_J19_what_is_no_rule_or_no_limit_is_refused_by_the_annotation(name: str, value: str, says: str) -> None:
    (problem,) = refusal(jobset_of(failurePolicy=PARTS, annotations={f"holdfast.dev/{name}": value}))
    assert problem.path == f"metadata.annotations[holdfast.dev/{name}]"
    assert says in str(problem)


@pytest.mark.row("J19", level="pure")
def test_J19_of_plain_manifests_too_and_of_the_default() -> None:
    (workload,) = read([annotated(job(), ruleLimits="{default: 2}")], cluster="dev")
    assert workload.policy.default.limit == 2
    with pytest.raises(InvalidWorkload, match=r"ruleLimits\]: expected the name of a rule that restarts"):
        read([annotated(job(), ruleLimits="{oom: 2}")], cluster="dev")
    with pytest.raises(InvalidWorkload, match=r"overrides.rulePauses: expected the name of a rule that restarts"):
        read([job()], cluster="dev", overrides={"rulePauses": "{oom: 2m}"})
