"""Copies of a component: what may be said of them, what follows from it, and that saying nothing changes nothing."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from holdfast.model import Component, ComponentView, CopyCounts, CopyLabel, CopyWord, ObjectRef, PodCounts, Workload
from holdfast.policy.loop.change import ComponentsChange, reconfigured


def job(name: str = "workers", **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, **metadata}, "spec": {}}


def component(copies: int | None = 3, template: dict[str, Any] | None = None, **fields: Any) -> Component:
    given: dict[str, Any] = {"pod_sets": ({"path": "template.spec.template", "replicas": 4},), **fields}
    return Component(name="workers", template=template or job(), copies=copies, **given)


def workload(one: Component, **fields: Any) -> Workload:
    return Workload(name="train", cluster="dev", components=(one,), **fields)


def refusal(**given: Any) -> str:
    with pytest.raises(ValidationError) as refused:
        component(**given)
    return str(refused.value)


def test_a_component_without_copies_is_written_as_before() -> None:
    plain = component(None)
    assert not {"copies", "copyLabels", "copy_labels"} & plain.model_dump(mode="json").keys()
    assert not {"copies", "copyLabels"} & plain.model_dump(mode="json", by_alias=True).keys()
    assert workload(plain).spec_hash() == "3955ab10d0ee6a73"  # as before there were copies
    assert workload(plain).config_hashes == {"workers": "6f201add9b22baef"}
    assert "copies" not in ComponentView().model_dump(mode="json", by_alias=True)
    assert "excused" not in ComponentView().model_dump(mode="json", by_alias=True)
    assert "copies" not in ObjectRef(api_version="v1", kind="Pod", name="a").model_dump(mode="json")


def test_copies_come_back_from_the_wire() -> None:
    labels = {"example.com/index": CopyLabel(word=CopyWord.INDEX, offset=4)}
    given = workload(component(copy_labels=labels))
    assert Workload.model_validate_json(given.model_dump_json(by_alias=True)) == given
    assert Workload.model_validate_json(given.model_dump_json()) == given
    view = ComponentView(copies=CopyCounts(expected=3, ready=2), excused=1)
    assert ComponentView.model_validate_json(view.model_dump_json(by_alias=True)) == view


def test_pods_are_expected_of_every_copy() -> None:
    assert [component(copies).expected_pods for copies in (None, 0, 1, 3)] == [4, 0, 4, 12]


def test_another_number_of_copies_is_another_workload() -> None:
    hashes = {workload(component(copies)).spec_hash() for copies in (None, 0, 1, 3)}
    assert len(hashes) == 4


def test_other_labels_are_another_configuration() -> None:
    labels = {"example.com/index": CopyLabel(word=CopyWord.INDEX)}
    digests = {str(workload(component(copy_labels=each)).config_hashes) for each in ({}, labels)}
    assert len(digests) == 2


def test_a_title_says_how_many() -> None:
    assert component().title == "Job workers (3 copies)"
    assert component(None).title == "Job workers"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"copies": -1}, "greater than or equal to 0"),
        ({"copies": 10_001}, "less than or equal to 10000"),
        (
            {"template": {**job(), "metadata": {"generateName": "w-"}}},
            "template.metadata.generateName: 'w-': copies are named by their index: expected metadata.name instead",
        ),
        ({"template": job("a" * 62)}, f"template.metadata.name: the copy '{'a' * 62}-2' has 64 characters"),
        ({"template": job("a" * 61), "copies": 11}, f"the copy '{'a' * 61}-10' has 64 characters: expected at most 63"),
        (
            {"copies": None, "copy_labels": {"a": {"word": "Index"}}},
            "copyLabels: expected only beside copies",
        ),
        ({"copy_labels": {"not a key": {"word": "Index"}}}, "copyLabels: label key 'not a key'"),
        ({"copy_labels": {"holdfast.dev/copy": {"word": "Index"}}}, "labels of holdfast.dev are Holdfast's own"),
        ({"copy_labels": {"a": {"word": "Key", "offset": 1}}}, "only Index has an offset"),
        ({"copy_labels": {"a": {"word": "Index", "offset": -1}}}, "greater than or equal to 0"),
        ({"copy_labels": {"a": {"word": "Sum"}}}, "Input should be 'Index', 'Key'"),
        (
            {
                "template": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c" * 70}},
                "pod_sets": (),
                "copy_labels": {"a": {"word": "Name"}},
            },
            "copyLabels[a]: the copy's name",
        ),
    ],
)
def test_what_no_copies_can_be_is_refused_with_its_field(given: dict[str, Any], said: str) -> None:
    assert said in refusal(**given)


def test_a_name_that_just_fits_is_accepted() -> None:
    assert component(10, job("a" * 61)).expected_pods == 40
    assert component(None, job("a" * 63)).expected_pods == 4


@pytest.mark.row("J23", level="pure")
def test_J23_a_copy_is_restarted_alone_for_its_own_failure_only() -> None:
    rule = {"name": "alone", "action": {"unit": "Member"}}
    with pytest.raises(ValidationError, match=r"policy.rules\[alone\].action.unit: Member: a copy of Job workers"):
        workload(component(), policy={"rules": [rule]})
    workload(component(), policy={"rules": [{**rule, "match": {"scopes": ["Component"]}}]})
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}
    workload(component(template=pod, pod_sets=({"path": "template"},)), policy={"rules": [rule]})


@pytest.mark.row("J23", level="pure")
def test_J23_a_copy_is_known_by_its_objects_name() -> None:
    names = ("workers-0", "workers-2", "workers-3", "workers-02", "workers", "other-1", "workers-x")
    assert [component().copy_index(name) for name in names] == [0, 2, None, None, None, None, None]
    assert component(None).copy_index("workers-0") is None


def test_their_number_cannot_be_changed_under_way() -> None:
    with pytest.raises(ValueError, match=r"components.workers.copies: expected 3 as before"):
        reconfigured(workload(component()), ComponentsChange(components=(component(2),)))


def test_pods_of_a_copy_that_has_ended_are_not_missed() -> None:
    pods = PodCounts(expected=6, running=4, failed=1)
    assert (ComponentView(pods=pods).absent, ComponentView(pods=pods).unready) == (1, 2)
    assert (ComponentView(pods=pods, excused=2).absent, ComponentView(pods=pods, excused=2).unready) == (0, 0)
