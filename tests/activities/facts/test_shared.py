"""Equal policies of many workloads are one object in memory; what is refused, is refused each time."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from holdfast.activities.facts.snapshot import selection_in
from holdfast.model import Policy, Workload
from holdfast.model.shared import Shared
from tests.model.test_workload import workload


def _wire() -> dict[str, Any]:
    return json.loads(workload().model_dump_json(by_alias=True))


def test_equal_policies_of_two_workloads_are_one_object():
    one, another = Workload.model_validate(_wire()), Workload.model_validate({**_wire(), "name": "another"})
    assert one.policy is another.policy
    assert one.policy == Policy.model_validate(_wire()["policy"])


def test_another_policy_is_another_object():
    wire = _wire()
    wire["policy"]["timings"]["admissionGracePeriod"] = 77.0
    assert Workload.model_validate(wire).policy != Workload.model_validate(_wire()).policy


def test_a_policy_is_refused_with_its_path_each_time():
    wire = _wire()
    wire["policy"]["rules"] = [{"name": 7}]
    for _ in range(2):
        with pytest.raises(ValidationError, match=r"policy\.rules\.0\.name"):
            Workload.model_validate(wire)


def test_keys_that_only_look_alike_in_json_are_told_apart():
    shared = Shared()
    assert shared({"1": "a"}, lambda value: dict(value)) == {"1": "a"}
    assert shared({1: "a"}, lambda value: dict(value)) == {1: "a"}


@given(st.lists(st.dictionaries(st.sampled_from("ab"), st.integers(0, 3) | st.booleans()), max_size=30))
def test_whatever_was_read_before_the_result_is_as_without_sharing(values: list[dict[str, Any]]):
    shared = Shared()
    for value in values:
        assert repr(shared(value, lambda raw: sorted(raw.items()))) == repr(sorted(value.items()))


def test_no_more_are_kept_than_a_few_hundred():
    shared = Shared()
    for number in range(1000):
        shared({"number": number}, lambda value: value)
    assert 0 < len(shared._known) <= 256


def test_attempts_of_equal_rules_share_them():
    selection = {"rules": [], "needed": ["a"]}
    first, second = ({"spec": {"selection": dict(selection)}} for _ in range(2))
    assert selection_in(first) is selection_in(second)
    assert selection_in({"spec": {"selection": {"rules": 7}}}) is None
    assert selection_in({"spec": {}}) is None


def test_equal_json_that_was_read_before_takes_the_place_of_what_is_given():
    shared, first = Shared(), {"a": [1]}
    assert shared.same({"a": [1]}) == {"a": [1]}
    shared(first, lambda value: value)
    assert shared.same({"a": [1]}) is first
    assert shared.same({"a": [2]}) == {"a": [2]}
    assert shared.same(7) == 7


def test_nothing_long_is_kept():
    shared, long = Shared(), {"a": "x" * 40_000}
    assert shared(long, lambda value: value) is long
    assert shared.same(dict(long)) == long
    assert not shared._known
