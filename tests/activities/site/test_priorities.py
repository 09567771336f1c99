"""The priority that pods get, from the cluster's PriorityClasses (row J21)."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.activities.site.priorities import by_name, priority_class


def _class(name: str, value: int, default: bool = False) -> dict[str, Any]:
    return {"metadata": {"name": name}, "value": value, **({"globalDefault": True} if default else {})}


@pytest.mark.parametrize(
    ("classes", "default"),
    [
        ([], 0),
        ([_class("a", 5)], 0),
        ([_class("a", 5, default=True)], 5),
        ([_class("a", 5, default=True), _class("b", 3, default=True)], 3),
        ([_class("a", -5, default=True)], -5),
    ],
)
@pytest.mark.row("J21", level="pure")
def test_J21_pods_without_a_class_have_the_default_priority(classes: list[dict[str, Any]], default: int) -> None:
    found = by_name(classes)
    assert found.pop("") == default
    assert found == {one["metadata"]["name"]: one["value"] for one in classes}


def test_J21_a_jobs_pods_name_their_class() -> None:
    assert priority_class({"spec": {"template": {"spec": {"priorityClassName": "high"}}}}) == "high"
    assert priority_class({"spec": {"template": {"spec": {}}}}) == priority_class({}) == ""
