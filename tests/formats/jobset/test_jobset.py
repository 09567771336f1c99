"""A JobSet's document as a workload: published defaults, components, labels, order, policy."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from holdfast.cli.app import app
from holdfast.errors import ManagedElsewhere
from holdfast.formats import read
from holdfast.formats.jobset.document import (
    EXCLUSIVE,
    FAIL_ON,
    NAMESPACED_JOB,
    NO_SCHEDULE,
    NODE_SELECTOR,
    FailureAction,
)
from holdfast.formats.jobset.policy import ACTIONS
from holdfast.model import ActionKind, CopyLabel, CopyWord, Scope
from holdfast.profiles.jobset import POLICY, RULES_BEFORE
from tests.formats.documents import PODS, Json
from tests.formats.jobset.jobsets import P, component, jobset_of, one, replicated

EXAMPLES = Path(__file__).parents[3] / "examples" / "jobset"
STORIES: dict[str, tuple[str, list[FailureAction], int, int]] = {
    "fail-jobset": ("fail-jobset-example", ["FailJobSet"], 10, 1),
    "restart-jobset": ("restart-jobset-example", ["RestartJobSet"], 10, 4),
    "ignore-max-restarts": ("ignore-max-restarts-example", ["RestartJobSetAndIgnoreMaxRestarts"], 10, 1),
    "different-policies": ("different-policies", ["RestartJobSetAndIgnoreMaxRestarts", "RestartJobSet"], 3, 15_001),
    "restart-replicated-job": ("restart-replicated-job-example", ["RestartReplicatedJob"], 10, 6),
    "fail-job": ("fail-job-example", ["FailJob"], 3, 3),
}
"""The proposal's user stories and future work: the name, the rules' actions, the restarts that count, the pods."""


def test_the_published_defaults_are_filled_in() -> None:
    workload = one(jobset_of())
    assert (workload.name, workload.namespace, workload.suspend) == ("train", "default", False)
    assert [each.name for each in workload.components] == ["network", "workers"]
    service = component(workload, "network")
    assert service.template == {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "train"},
        "spec": {
            "clusterIP": "None",
            "selector": {"jobset.sigs.k8s.io/jobset-name": "train"},
            "publishNotReadyAddresses": True,
        },
    }
    assert not service.pod_sets
    assert service.copies is None
    job = component(workload, "workers")
    assert job.copies == 1
    assert job.template["metadata"]["name"] == "train-workers"
    assert job.template["spec"]["completionMode"] == "Indexed"
    assert job.template["spec"]["suspend"] is False
    assert job.template["spec"]["template"]["spec"]["restartPolicy"] == "OnFailure"
    assert job.template["spec"]["template"]["spec"]["subdomain"] == "train"
    assert job.template["metadata"]["labels"][f"{P}group-name"] == "default"


def test_what_the_document_says_wins_over_the_defaults() -> None:
    document = jobset_of(replicated(job={"completionMode": "NonIndexed"}))
    document["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["restartPolicy"] = "Never"
    spec = component(one(document), "workers").template["spec"]
    assert (spec["completionMode"], spec["template"]["spec"]["restartPolicy"]) == ("NonIndexed", "Never")


def test_labels_and_annotations_are_the_published_ones_on_jobs_and_pods() -> None:
    documents = jobset_of(
        replicated("leader", groupName="front"),
        replicated("a", replicas=2),
        replicated("b", replicas=3, groupName="front"),
    )
    documents["spec"]["replicatedJobs"][2]["template"]["metadata"] = {
        "labels": {"own": "1", f"{P}jobset-name": "other", f"{P}job-index": "7"}
    }
    job = component(one(documents), "b")
    expected = {
        f"{P}jobset-name": "train",
        f"{P}replicatedjob-name": "b",
        f"{P}replicatedjob-replicas": "3",
        f"{P}global-replicas": "6",
        f"{P}group-name": "front",
        f"{P}group-replicas": "4",
    }
    pods = job.template["spec"]["template"]["metadata"]
    assert job.template["metadata"]["labels"] == {"own": "1", **expected}
    assert job.template["metadata"]["annotations"] == expected
    assert (pods["labels"], pods["annotations"]) == (expected, expected)
    assert {key: (label.word, label.offset) for key, label in job.copy_labels.items()} == {
        f"{P}jobset-uid": (CopyWord.WORKLOAD_UID, 0),
        f"{P}restart-attempt": (CopyWord.ATTEMPT, 0),
        f"{P}job-index": (CopyWord.INDEX, 0),
        f"{P}job-global-index": (CopyWord.INDEX, 3),
        f"{P}job-group-index": (CopyWord.INDEX, 1),
        f"{P}job-key": (CopyWord.KEY, 0),
    }


def test_the_coordinator_is_a_label_and_annotation_of_all() -> None:
    coordinator = {"replicatedJob": "workers", "jobIndex": 1, "podIndex": 3}
    document = jobset_of(
        replicated("driver"),
        replicated(replicas=2, job={"completions": 4, "parallelism": 4}),
        coordinator=coordinator,
        network={"subdomain": "net"},
    )
    for name in ("driver", "workers"):
        job = component(one(document), name).template
        for metadata in (job["metadata"], job["spec"]["template"]["metadata"]):
            assert metadata["labels"][f"{P}coordinator"] == "train-workers-1-3.net"
            assert metadata["annotations"][f"{P}coordinator"] == "train-workers-1-3.net"


@pytest.mark.parametrize(
    ("network", "service", "subdomain", "publish"),
    [
        ({}, "train", "train", True),
        ({"subdomain": "net"}, "net", "net", True),
        ({"publishNotReadyAddresses": False}, "train", "train", False),
        ({"enableDNSHostnames": False}, None, None, None),
        ({"enableDNSHostnames": False, "subdomain": "net"}, None, None, None),
    ],
)
def test_the_network(network: Json, service: str | None, subdomain: str | None, publish: bool | None) -> None:
    workload = one(jobset_of(network=network))
    found = [each.template for each in workload.components if each.template["kind"] == "Service"]
    assert [each["metadata"]["name"] for each in found] == ([service] if service else [])
    assert [each["spec"]["publishNotReadyAddresses"] for each in found] == ([publish] if service else [])
    pods = component(workload, "workers").template["spec"]["template"]["spec"]
    assert pods.get("subdomain") == subdomain


def test_a_replicated_job_may_have_the_name_of_the_network() -> None:
    names = [each.name for each in one(jobset_of(replicated("network"))).components]
    assert names == ["network-service", "network"]


def test_pods_are_counted_for_each_job() -> None:
    document = jobset_of(replicated(replicas=3, job={"parallelism": 4, "completions": 2}))
    job = component(one(document), "workers")
    assert [(each.path, each.replicas) for each in job.pod_sets] == [("template.spec.template", 2)]
    assert one(document).expected_pods == 6


@pytest.mark.row("J13", level="pure")
def test_J13_in_order_and_depends_on_become_what_each_waits_for() -> None:
    order = {"startupPolicyOrder": "InOrder"}
    jobs = (replicated("a"), replicated("b"), replicated("c"))
    waits = {each.name: each.after for each in one(jobset_of(*jobs, startupPolicy=order)).components}
    assert not waits["network"]
    assert not waits["a"]
    assert [(each.component, str(each.status)) for each in waits["b"]] == [("a", "Ready")]
    assert [(each.component, str(each.status)) for each in waits["c"]] == [("b", "Ready")]
    depends = [{"name": "a", "status": "Complete"}, {"name": "b", "status": "Ready"}]
    document = jobset_of(replicated("a"), replicated("b"), replicated("c", dependsOn=depends))
    job = component(one(document), "c")
    assert [(each.component, str(each.status)) for each in job.after] == [("a", "Complete"), ("b", "Ready")]
    assert not any(each.after for each in one(jobset_of(*jobs)).components)


def rules(**failure: Any) -> list[tuple[str, str, str | None]]:
    """Return the rules a failure policy is read as, the profile's own left out: name, kind, charge."""
    read = one(jobset_of(replicated("a"), replicated("b"), failurePolicy=failure)).policy.rules
    assert read[: len(RULES_BEFORE)] == RULES_BEFORE
    return [(each.name, each.action.kind.value, each.action.charge) for each in read[len(RULES_BEFORE) :]]


def test_without_a_failure_policy_the_first_failed_job_ends_it() -> None:
    policy = one(jobset_of()).policy
    assert policy.rules[-1].action.kind is ActionKind.FAIL
    assert policy.budget("restart").limit == 0


def test_each_action_is_a_rule_and_the_rest_restarts() -> None:
    actions = (
        "FailJobSet",
        "RestartJobSet",
        "RestartJobSetAndIgnoreMaxRestarts",
        "RestartReplicatedJob",
        "FailJob",
        "RestartJob",
        "RestartJobAndIgnoreMaxRestarts",
    )
    assert rules(rules=[{"action": each} for each in actions]) == [
        ("failurePolicyRule0", "Fail", None),
        ("failurePolicyRule1", "Restart", "restart"),
        ("failurePolicyRule2", "Restart", None),
        ("failurePolicyRule3", "Restart", "restart"),
        ("failurePolicyRule4", "Ignore", None),
        ("failurePolicyRule5", "Restart", "restart"),
        ("failurePolicyRule6", "Restart", None),
        ("no-failure-policy-rule", "Restart", "restart"),
    ]
    read = one(jobset_of(failurePolicy={"rules": [{"action": "RestartReplicatedJob"}]})).policy.rules
    assert [each.action.unit for each in read[-2:]] == [Scope.COMPONENT, Scope.WORKLOAD]
    assert not any(each.action.grace for each in read)


@pytest.mark.row("J23", level="pure")
@pytest.mark.parametrize("action", ["RestartJob", "RestartJobAndIgnoreMaxRestarts"])
def test_J23_a_rule_restarts_the_failed_job_alone_and_each_job_tells_how_often(action: str) -> None:
    read = one(jobset_of(replicated("a", replicas=1024), failurePolicy={"rules": [{"action": action}]}))
    assert read.policy.rules[-2].action.unit is Scope.MEMBER
    label = read.components[-1].copy_labels["jobset.sigs.k8s.io/job-restart-attempt"]
    assert label == CopyLabel(word=CopyWord.RESTARTS)
    plain = one(jobset_of(replicated("a"), failurePolicy={"rules": [{"action": "RestartJobSet"}]}))
    assert "jobset.sigs.k8s.io/job-restart-attempt" not in plain.components[-1].copy_labels


def test_a_rule_says_which_failures_it_means() -> None:
    rule = {
        "name": "host",
        "action": "FailJobSet",
        "onJobFailureReasons": ["PodFailurePolicy", "DeadlineExceeded"],
        "onJobFailureMessagePatterns": ["^a|b$", "(?i)c"],
        "targetReplicatedJobs": ["b"],
    }
    document = jobset_of(replicated("a"), replicated("b"), failurePolicy={"rules": [rule]})
    found = one(document).policy.rules[len(RULES_BEFORE)]
    assert found.name == "host"
    assert found.match.reasons == ("PodFailurePolicy", "DeadlineExceeded")
    assert found.match.components == ("b",)
    assert found.match.message_pattern == "(?:^a|b$)|(?:(?i)c)"
    assert found.match.scopes == (Scope.COMPONENT,)


@pytest.mark.row("J16", level="pure")
@pytest.mark.parametrize(
    ("pattern", "read"),
    [
        (r"\Qexit code [1]", r"(?:\Qexit code [1]\E)|(?:x)"),
        (r"\Qa\E \Q(b", r"(?:\Qa\E \Q(b\E)|(?:x)"),
        (r"\Qa[\E\d", r"(?:\Qa[\E\d)|(?:x)"),
        (r"C:\\Q", r"(?:C:\\Q)|(?:x)"),
    ],
)
def test_J16_a_quotation_in_a_pattern_may_be_left_open(pattern: str, read: str) -> None:
    rule = {"action": "FailJobSet", "onJobFailureMessagePatterns": [pattern, "x"]}
    (found,) = one(jobset_of(failurePolicy={"rules": [rule]})).policy.rules[len(RULES_BEFORE) : -1]
    assert found.match.message_pattern == read


@pytest.mark.parametrize(
    ("given", "limit"), [(None, 0), (0, 0), (3, 3), (-1, 0), (1_000_000, 1_000_000), (2_147_483_647, None)]
)
def test_max_restarts_is_the_budget(given: int | None, limit: int | None) -> None:
    failure = {} if given is None else {"maxRestarts": given}
    assert one(jobset_of(failurePolicy=failure)).policy.budget("restart").limit == limit


def test_the_end_of_its_time_to_live() -> None:
    timings = one(jobset_of(ttlSecondsAfterFinished=90)).policy.timings
    assert timings.success_ttl == timings.deletion_on_failure_grace_period == timedelta(seconds=90)
    never = one(jobset_of()).policy.timings
    assert never.success_ttl is never.deletion_on_failure_grace_period is None


@pytest.mark.parametrize(
    ("given", "operator", "targets"),
    [
        (None, "All", ()),
        ({"operator": "Any"}, "Any", ()),
        ({"operator": "All", "targetReplicatedJobs": ["b"]}, "All", ("b",)),
    ],
)
def test_the_success_policy(given: Json | None, operator: str, targets: tuple[str, ...]) -> None:
    document = jobset_of(replicated("a"), replicated("b"))
    if given is not None:
        document["spec"]["successPolicy"] = given
    success = one(document).policy.success
    assert (str(success.operator), success.components) == (operator, targets)


def test_an_operators_own_defaults_are_kept() -> None:
    timings = POLICY.timings.model_copy(update={"retry_pause_period": timedelta(seconds=7)})
    own = POLICY.model_copy(update={"timings": timings, "rules": RULES_BEFORE})
    policy = one(jobset_of(failurePolicy={"rules": [{"action": "FailJob"}]}), defaults=own).policy
    assert policy.timings.retry_pause_period == timedelta(seconds=7)
    assert [each.name for each in policy.rules[len(RULES_BEFORE) :]] == ["failurePolicyRule0", "no-failure-policy-rule"]


def test_a_suspended_set_is_a_suspended_workload() -> None:
    workload = one(jobset_of(suspend=True))
    assert workload.suspend
    assert component(workload, "workers").template["spec"]["suspend"] is False


def test_settings_of_holdfast_and_kueues_queue() -> None:
    document = jobset_of(annotations={"holdfast.dev/restartBudgetResetAfter": "24h", "holdfast.dev/priority": "7"})
    document["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "night"}
    workload = one(document)
    assert workload.policy.budget("restart").reset_after == timedelta(hours=24)
    assert (workload.queue, workload.priority) == ("night", 7)


@pytest.mark.parametrize("manager", ["jobset.sigs.k8s.io/jobset-controller", "holdfast.dev/holdfast"])
def test_the_controllers_own_and_our_managed_by_are_ours(manager: str) -> None:
    assert one(jobset_of(managedBy=manager)).name == "train"


def test_a_foreign_managed_by_is_left_alone() -> None:
    with pytest.raises(ManagedElsewhere, match=r"kueue\.x-k8s\.io/multikueue"):
        one(jobset_of(managedBy="kueue.x-k8s.io/multikueue"))


def test_the_name_may_be_given_beside_and_the_namespace_must_agree() -> None:
    document = jobset_of()
    document["metadata"] = {"generateName": "train-"}
    assert one(document, name="train-1").name == "train-1"
    document["metadata"] = {"name": "train", "namespace": "research"}
    assert one(document).namespace == "research"


@pytest.mark.row("J8", level="pure")
@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_J8_the_examples_are_valid(path: Path) -> None:
    result = CliRunner().invoke(app, ["validate", str(path), "-o", "json"])
    assert result.exit_code == 0, result.output
    (workload,) = read(path.read_text(), cluster="dev")
    name, actions, restarts, pods = STORIES[path.stem]
    assert workload.name == name
    found = [each.action for each in workload.policy.rules[len(RULES_BEFORE) : -1]]
    assert [each.model_copy(update={"limit": None, "pause": None}) for each in found] == [
        ACTIONS[each] for each in actions
    ]
    assert workload.policy.budget("restart").limit == restarts
    assert workload.expected_pods == pods


def test_J8_every_example_is_read() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.yaml")} == set(STORIES)


_TERM: Json = {
    "labelSelector": {"matchExpressions": [{"key": f"{P}jobset-name", "operator": "Exists"}]},
    "namespaceSelector": {},
    "topologyKey": "rack",
}
_TOGETHER: Json = {**_TERM, "matchLabelKeys": [f"{P}job-key"]}
_APART: Json = {**_TERM, "matchLabelKeys": [f"{P}priority"], "mismatchLabelKeys": [f"{P}job-key"]}
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def _terms(workload: Any, name: str) -> tuple[list[Json], list[Json]]:
    affinity = component(workload, name).template["spec"]["template"]["spec"].get("affinity", {})
    return tuple(affinity.get(kind, {}).get(_REQUIRED, []) for kind in ("podAffinity", "podAntiAffinity"))  # type: ignore[return-value]


@pytest.mark.row("J21", level="pure")
def test_J21_the_jobs_of_an_exclusive_topology_are_kept_apart_by_their_own_templates() -> None:
    workload = one(jobset_of(replicated("a", replicas=2), replicated("b"), annotations={EXCLUSIVE: "rack"}))
    for name in ("a", "b"):
        assert _terms(workload, name) == ([_TOGETHER], [_APART])
        job = component(workload, name)
        assert job.copy_labels[f"{P}priority"].word is CopyWord.PRIORITY
        assert not job.copy_selectors
        assert job.template["metadata"]["annotations"][EXCLUSIVE] == "rack"
        # JobSet's own controller, where there is one, would delete pods that its webhook has not placed.
        assert EXCLUSIVE not in job.template["spec"]["template"]["metadata"]["annotations"]


@pytest.mark.row("J21", level="pure")
def test_J21_a_replicated_job_may_ask_alone_and_keeps_the_affinities_that_it_has() -> None:
    there = {"labelSelector": {"matchLabels": {"app": "cache"}}, "topologyKey": "zone"}
    alone = replicated(
        "a", job={"template": {"spec": {**PODS["spec"], "affinity": {"podAffinity": {_REQUIRED: [there]}}}}}
    )
    alone["template"]["metadata"] = {"annotations": {EXCLUSIVE: "rack"}}
    workload = one(jobset_of(alone, replicated("b")))
    assert _terms(workload, "a") == ([there, _TOGETHER], [_APART])
    assert _terms(workload, "b") == ([], [])
    assert f"{P}priority" not in component(workload, "b").copy_labels
    # What it says itself counts before what the JobSet says.
    both = one(jobset_of(alone, replicated("b"), annotations={EXCLUSIVE: "zone"}))
    assert _terms(both, "a")[1] == [_APART]
    assert _terms(both, "b")[1] == [{**_APART, "topologyKey": "zone"}]


@pytest.mark.row("J21", level="pure")
def test_J21_with_labelled_nodes_each_job_selects_its_own() -> None:
    annotations = {EXCLUSIVE: "rack", NODE_SELECTOR: "true"}
    workload = one(jobset_of(replicated("a", replicas=2), annotations=annotations))
    job = component(workload, "a")
    assert _terms(workload, "a") == ([], [])
    assert job.copy_selectors[NAMESPACED_JOB].word is CopyWord.NAMESPACED_NAME
    pods = job.template["spec"]["template"]
    assert pods["spec"]["tolerations"] == [{"key": NO_SCHEDULE, "operator": "Exists", "effect": "NoSchedule"}]
    for metadata in (job.template["metadata"], pods["metadata"]):
        assert metadata["annotations"][NODE_SELECTOR] == "true"


@pytest.mark.row("J21", level="pure")
def test_J21_a_job_selects_labelled_nodes_by_its_own_annotation_and_that_of_a_jobset_that_asks() -> None:
    own = replicated("a")
    own["template"]["metadata"] = {"annotations": {NODE_SELECTOR: "yes"}}
    workload = one(jobset_of(own, replicated("b"), annotations={EXCLUSIVE: "rack"}))
    job = component(workload, "a")
    assert _terms(workload, "a") == ([], [])
    assert set(job.copy_selectors) == {NAMESPACED_JOB}
    assert job.template["metadata"]["annotations"][EXCLUSIVE] == "rack"
    assert job.template["spec"]["template"]["metadata"]["annotations"][NODE_SELECTOR] == "yes"
    assert _terms(workload, "b") == ([_TOGETHER], [_APART])
    # A JobSet that asks for no domains says nothing about those of its Jobs.
    asks = replicated("a")
    asks["template"]["metadata"] = {"annotations": {EXCLUSIVE: "rack"}}
    workload = one(jobset_of(asks, annotations={NODE_SELECTOR: "true"}))
    assert _terms(workload, "a") == ([_TOGETHER], [_APART])
    assert NODE_SELECTOR not in component(workload, "a").template["metadata"]["annotations"]


@pytest.mark.row("J27", level="pure")
def test_J27_a_job_counts_as_failed_from_the_condition_on_that_the_jobset_names() -> None:
    rules = {
        asked: component(one(jobset_of(replicated("a"), annotations={FAIL_ON: asked} if asked else None)), "a").status
        for asked in ("", "Failed", "FailureTarget")
    }
    assert rules["Failed"] == rules[""]
    assert (rules["Failed"].failed, rules["FailureTarget"].failed) == (("Failed",), ("FailureTarget", "Failed"))
    assert rules["FailureTarget"].complete == rules[""].complete
