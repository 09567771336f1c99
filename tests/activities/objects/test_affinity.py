"""Nodes that pods keep off: what is put into a template, and that the rest of it stays (rows A17, U9)."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from holdfast import names
from holdfast.activities.objects.inject import InjectionError
from holdfast.model import Component
from tests.activities.objects.test_inject import injected, job, part

ROW = pytest.mark.row
REQUIRED, PREFERRED = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
)
GPU = {"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}
OLD = {"matchExpressions": [{"key": "old", "operator": "DoesNotExist"}]}


def off(name: str) -> dict[str, Any]:
    return {"key": "metadata.name", "operator": "NotIn", "values": [name]}


def sent(
    component: Component,
    excluded: tuple[str, ...] = (),
    disliked: tuple[str, ...] = (),
    marked: tuple[str, ...] = (),
) -> dict[str, Any]:
    return injected(component, excluded=excluded, disliked=disliked, marked=marked)


def made(
    spec: dict[str, Any] | None = None,
    excluded: tuple[str, ...] = (),
    disliked: tuple[str, ...] = (),
    marked: tuple[str, ...] = (),
) -> dict[str, Any]:
    """Return the pod spec that a Job's template becomes."""
    template = job()
    template["spec"]["template"]["spec"] |= spec or {}
    before = copy.deepcopy(template)
    result = sent(part(template), excluded, disliked, marked)["spec"]["template"]["spec"]
    assert template == before, "the template is not changed"
    return result


@ROW("A17", level="pure")
def test_A17_each_excluded_node_is_one_requirement():
    """Kubernetes allows exactly one value a requirement on a field."""
    assert made(excluded=("node-9", "node-7"))["affinity"] == {
        "nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchFields": [off("node-7"), off("node-9")]}]}}
    }


@ROW("A17", level="pure")
def test_A17_every_term_of_the_template_is_narrowed_since_any_of_them_suffices():
    terms = [GPU, {**OLD, "matchFields": [off("mine")]}]
    affinity = made(
        {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}, "podAffinity": {"x": 1}}}, ("node-7",)
    )["affinity"]
    assert affinity["nodeAffinity"][REQUIRED]["nodeSelectorTerms"] == [
        {**GPU, "matchFields": [off("node-7")]},
        {**OLD, "matchFields": [off("mine"), off("node-7")]},
    ]
    assert affinity["podAffinity"] == {"x": 1}


@ROW("A17", level="pure")
def test_A17_an_empty_term_suits_no_node_and_still_does_not():
    terms = [{}, GPU, {"matchExpressions": []}]
    affinity = made({"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}}, ("n",))["affinity"]
    assert affinity["nodeAffinity"][REQUIRED]["nodeSelectorTerms"] == [
        {},
        {**GPU, "matchFields": [off("n")]},
        {"matchExpressions": []},
    ]


MARKS = ("gpuhealth=EVICT", "broken")
UNMARKED = [
    {"key": "gpuhealth", "operator": "NotIn", "values": ["EVICT"]},
    {"key": "broken", "operator": "DoesNotExist"},
]


def selected(spec: dict[str, Any], labels: dict[str, str], name: str) -> bool:
    """Whether Kubernetes' scheduler would consider a node, as far as required node affinity goes."""

    def suits(one: dict[str, Any], value: str | None) -> bool:
        match one["operator"]:
            case "In":
                return value in one["values"]
            case "NotIn":
                return value not in one["values"]
            case "Exists":
                return value is not None
            case _:
                return value is None

    terms = spec["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    return any(
        all(suits(one, labels.get(one["key"])) for one in term.get("matchExpressions", ()))
        and all(suits(one, name) for one in term.get("matchFields", ()))
        for term in terms
        if term.get("matchExpressions") or term.get("matchFields")
    )


@ROW("D21", level="pure")
def test_D21_of_a_thousand_nodes_the_hundred_marked_are_avoided_without_a_name():
    spec = made({"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [GPU, OLD]}}}}, marked=MARKS)
    labels = [
        {"gpu": "1", **({"gpuhealth": ("EVICT", "PASS", "WARN")[number % 3]} if number % 5 == 0 else {})}
        | ({"broken": "true"} if number % 29 == 0 else {})
        for number in range(1000)
    ]
    bad = [one for one in labels if one.get("gpuhealth") == "EVICT" or "broken" in one]
    assert len(bad) == 99
    chosen = [one for number, one in enumerate(labels) if selected(spec, one, f"node-{number}")]
    assert len(chosen) == 901
    assert not [one for one in chosen if one in bad]
    assert "matchFields" not in str(spec["affinity"])


@ROW("D21", level="pure")
def test_D21_marks_are_added_to_every_term_once_and_beside_names():
    known = {"matchExpressions": [UNMARKED[0], *GPU["matchExpressions"]]}
    affinity = made(
        {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [known, {}, OLD]}}}}, ("n",), (), MARKS
    )
    assert affinity["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"] == [
        {"matchExpressions": [*known["matchExpressions"], UNMARKED[1]], "matchFields": [off("n")]},
        {},
        {"matchExpressions": [*OLD["matchExpressions"], *UNMARKED], "matchFields": [off("n")]},
    ]


@ROW("D21", level="pure")
def test_D21_who_asks_for_marked_nodes_gets_them():
    asks = {"key": "gpuhealth", "operator": "In", "values": ["EVICT"]}
    term = made(
        {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [asks]}]}}}}, marked=MARKS
    )
    assert term["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"] == [
        {"matchExpressions": [asks, UNMARKED[1]]}
    ]
    for asked in ({"gpuhealth": "EVICT"}, {"broken": "anything"}):
        (left,) = [one for one in UNMARKED if one["key"] not in asked]
        spec = made({"nodeSelector": asked}, marked=MARKS)
        assert spec["affinity"]["nodeAffinity"][REQUIRED] == {"nodeSelectorTerms": [{"matchExpressions": [left]}]}
    either = {"key": "gpuhealth", "operator": "In", "values": ["EVICT", "PASS"]}
    spec = made(
        {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [either]}]}}}},
        marked=MARKS,
    )
    assert selected(spec, {"gpuhealth": "PASS"}, "n")
    assert not selected(spec, {"gpuhealth": "EVICT"}, "n")


@ROW("D21", level="pure")
def test_D21_a_template_that_names_its_node_and_one_without_marks_stay_as_they_are():
    assert "affinity" not in made({"nodeName": "node-7"}, marked=MARKS)
    assert "affinity" not in made(marked=())


@ROW("U9", level="pure")
def test_U9_a_disliked_node_is_one_preference_beside_the_templates_own():
    own = {"weight": 5, "preference": GPU}
    affinity = made({"affinity": {"nodeAffinity": {PREFERRED: [own]}}}, disliked=("b", "a"))["affinity"]
    assert affinity == {
        "nodeAffinity": {PREFERRED: [own, {"weight": 100, "preference": {"matchFields": [off("a"), off("b")]}}]}
    }


@ROW("U9", level="pure")
@pytest.mark.parametrize("affinity", [None, {}, {"nodeAffinity": None}, {"nodeAffinity": {REQUIRED: None}}])
def test_U9_nothing_there_is_room_enough(affinity: Any):
    node_affinity = made({"affinity": affinity}, ("x",), ("y",))["affinity"]["nodeAffinity"]
    assert node_affinity[REQUIRED] == {"nodeSelectorTerms": [{"matchFields": [off("x")]}]}
    assert node_affinity[PREFERRED] == [{"weight": 100, "preference": {"matchFields": [off("y")]}}]


def test_none_avoided_changes_nothing():
    assert "affinity" not in made()
    assert made({"affinity": {}})["affinity"] == {}


def test_a_pod_that_names_its_node_is_not_scheduled_and_left_as_it_is():
    spec = made({"nodeName": "node-7"}, ("node-7",), ("node-8",))
    assert "affinity" not in spec


def test_an_object_without_pods_is_left_as_it_is():
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"a": "b"}}
    component = Component(name="settings", template=config)
    assert sent(component, ("node-7",)) == sent(component)


def test_the_same_nodes_in_any_order_make_the_same_object():
    def digest(*nodes: str) -> str:
        return sent(part(), nodes, nodes)["metadata"]["annotations"][names.ANNOTATION_SENT_HASH]

    assert digest("a", "b", "c") == digest("c", "a", "b")
    assert digest("a", "b") != digest("a")


@pytest.mark.parametrize(
    ("affinity", "path"),
    [
        ("odd", "affinity: expected an object"),
        ({"nodeAffinity": []}, "affinity.nodeAffinity: expected an object"),
        ({"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": {}}}}, "nodeSelectorTerms: expected a list"),
        ({"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": ["odd"]}}}, "nodeSelectorTerms\\[0\\]: expected an object"),
    ],
)
def test_what_is_no_affinity_is_refused_by_its_path(affinity: Any, path: str):
    with pytest.raises(InjectionError, match=path):
        made({"affinity": affinity}, ("node-7",))
