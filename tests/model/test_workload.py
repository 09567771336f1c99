"""A workload: refused with its path where it cannot be, and the same after a way through JSON."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from holdfast.errors import problems_of
from holdfast.model import (
    Action,
    ActionKind,
    Bounded,
    Budget,
    Component,
    FailureClass,
    Kind,
    Match,
    PodSet,
    Policy,
    Rule,
    Scope,
    StatusRule,
    Timings,
    Unbounded,
    Workload,
)

TEMPLATE = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"}, "spec": {}}


def workload(**fields: Any) -> Workload:
    values = {"name": "train-llm", "cluster": "dev", "components": (Component(name="train", template=TEMPLATE),)}
    return Workload(**{**values, **fields})


_WORDS = st.from_regex(r"[a-z]([-a-z0-9]{0,6}[a-z0-9])?", fullmatch=True)
_LABELS = st.dictionaries(_WORDS, _WORDS, max_size=3)
_SPANS = st.timedeltas(timedelta(0), timedelta(days=10_000))
_ACTIONS = st.builds(
    Action, kind=st.sampled_from(ActionKind), charge=st.sampled_from(["restart", None]), grace=st.booleans()
)
_MATCHES = st.builds(
    Match,
    classes=st.lists(st.sampled_from(FailureClass), max_size=2).map(tuple),
    scopes=st.lists(st.sampled_from(Scope), max_size=2).map(tuple),
    reasons=st.lists(st.sampled_from(["Error", "OOMKilled", "PodsNotRunning"]), max_size=2).map(tuple),
    exit_codes=st.lists(st.integers(0, 255), max_size=3).map(tuple),
    message_pattern=st.none() | st.sampled_from(["oom", "^x.*$"]),
)
_RULES = st.lists(st.builds(Rule, name=_WORDS, match=_MATCHES, action=_ACTIONS), max_size=3, unique_by=lambda r: r.name)
_POLICIES = st.builds(
    Policy,
    timings=st.builds(Timings, **dict.fromkeys(Timings.model_fields, _SPANS)),
    rules=_RULES.map(tuple),
    default=_ACTIONS,
    budgets=st.integers(0, 1000).map(lambda limit: (Budget(name="restart", limit=limit),)),
)
_POD_SETS = st.builds(
    PodSet,
    path=st.sampled_from(["template", "template.spec.template", "template.spec.jobs[0].template"]),
    replicas=st.integers(0, 2000),
    labels=_LABELS,
    node_selector=_LABELS,
)
_COMPONENTS = st.builds(
    Component,
    name=_WORDS,
    template=st.builds(lambda data: {**TEMPLATE, "data": data}, _LABELS),
    pod_sets=st.lists(_POD_SETS, max_size=2, unique_by=lambda each: each.path).map(tuple),
    status=st.builds(StatusRule, complete=st.sampled_from([(), ("Complete",)])),
)
_WORKLOADS = st.builds(
    Workload,
    name=_WORDS,
    namespace=_WORDS,
    cluster=_WORDS,
    kind=st.sampled_from(Kind),
    queue=_WORDS,
    priority=st.integers(0, 10),
    components=st.lists(_COMPONENTS, min_size=1, max_size=3, unique_by=lambda each: each.name).map(tuple),
    labels=_LABELS,
    suspend=st.booleans(),
    policy=_POLICIES,
    submitted_at=st.none() | st.datetimes(timezones=st.just(UTC)),
)


@given(_WORKLOADS)
def test_a_workload_comes_back_from_json_as_it_was(value: Workload) -> None:
    text = value.model_dump_json()
    again = Workload.model_validate_json(text)
    assert again == value
    assert again.model_dump_json() == text
    assert again.spec_hash() == value.spec_hash()


def test_who_submitted_it_when_does_not_change_the_hash_and_all_else_does() -> None:
    plain = workload()
    assert workload(uid="u1", submitted_at="2026-01-01T00:00:00Z").spec_hash() == plain.spec_hash()
    for change in ({"priority": 1}, {"queue": "other"}, {"suspend": True}, {"policy": Policy(profile="x")}):
        assert workload(**change).spec_hash() != plain.spec_hash()


def test_a_field_that_says_nothing_does_not_change_the_hash_of_older_workloads() -> None:
    """The memo of one that was started by an earlier release has its hash: the same file is no conflict with it."""
    plain = workload()
    before = plain.model_dump(mode="json", exclude={"uid", "submitted_at", "allow_missing_kinds"})
    text = json.dumps(before, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert plain.spec_hash() == hashlib.sha256(text.encode()).hexdigest()[:16]
    assert workload(allow_missing_kinds=True).spec_hash() != plain.spec_hash()


@pytest.mark.row("U14", level="pure")
@pytest.mark.parametrize(
    ("fields", "path", "says"),
    [
        ({"name": "Train"}, "name", "'Train': expected a Kubernetes name"),
        ({"namespace": "a.b"}, "namespace", "'a.b': expected a DNS label"),
        ({"cluster": ""}, "cluster", "expected a DNS label"),
        ({"queue": "-"}, "queue", "expected a DNS label"),
        ({"run_as": "A"}, "runAs", "expected a Kubernetes name"),
        ({"uid": "a b"}, "uid", "expected at most 63 characters"),
        ({"priority": 11}, "priority", "expected less than or equal to 10"),
        ({"priority": -1}, "priority", "expected greater than or equal to 0"),
        ({"labels": {"a b": "c"}}, "", "label key 'a b'"),
        ({"labels": {"a": "c d"}}, "", "label a: value 'c d'"),
        ({"components": ()}, "components", "at least 1 item"),
        ({"components": [{"name": "A", "template": TEMPLATE}]}, "components[0].name", "expected a DNS label"),
        ({"components": [{"name": "a", "template": TEMPLATE}] * 2}, "components[1].name", "'a' is used twice"),
        (
            {"components": [{"name": "a", "template": {**TEMPLATE, "metadata": {"name": "x", "namespace": "y"}}}]},
            "components[0].template.metadata.namespace",
            "'y' is another namespace",
        ),
        (
            {"components": [{"name": "a", "template": TEMPLATE, "podSets": [{"path": "spec"}]}]},
            "components[0].podSets[0].path",
            "'spec': expected a path that starts with template",
        ),
        (
            {"components": [{"name": "a", "template": TEMPLATE, "podSets": [{"path": "template"}] * 2}]},
            "components[0].podSets",
            "path 'template' is given 2 times",
        ),
        ({"submitted_at": "2026-01-01T00:00:00"}, "submittedAt", "a time needs its zone"),
        ({"policy": {"budgets": [{"name": "restart", "limit": -1}]}}, "policy.budgets[0].limit", "greater than or"),
        ({"policy": {"rules": [{"name": "a"}, {"name": "a"}]}}, "policy", "rule name 'a' is used 2 times"),
        ({"policy": {"default": {"unit": "Gang"}}}, "policy.default.unit", "expected Member, Component or Workload"),
        ({"policy": {"timings": {"successTtl": "-1s"}}}, "policy.timings.successTtl", "'-1s' is not a duration"),
    ],
)
def test_refused_with_the_path(fields: dict[str, Any], path: str, says: str) -> None:
    with pytest.raises(ValidationError) as caught:
        workload(**fields)
    problem = problems_of(caught.value, Workload)[0]
    assert problem.path == path
    assert says in str(problem)


@pytest.mark.row("L28", level="pure")
@pytest.mark.parametrize(
    "said", [{}, {"lifecycle": {"kind": "Bounded"}}, {"lifecycle": {"kind": "Bounded", "walltime": "0s"}}]
)
def test_a_service_without_a_walltime_has_no_end_and_reads_the_same_when_written(said: dict[str, Any]):
    serves = workload(kind=Kind.SERVICE, **said)
    assert serves.lifecycle == Unbounded()
    assert Workload.model_validate_json(serves.model_dump_json()) == serves
    assert Workload.model_validate(serves.model_dump(mode="json", by_alias=True)) == serves
    probed = workload(kind=Kind.SERVICE, components=(Component(name="train", template=TEMPLATE),), probe={"port": 80})
    assert probed.probe is not None


@pytest.mark.parametrize("kind", [Kind.BATCH, Kind.INTERACTIVE])
def test_what_is_no_service_ends_by_itself(kind: Kind):
    assert workload(kind=kind).lifecycle == Bounded()


def test_a_service_may_have_a_walltime():
    life = {"kind": "Bounded", "walltime": "1h"}
    assert workload(kind=Kind.SERVICE, lifecycle=life).lifecycle == Bounded(walltime=timedelta(hours=1))
