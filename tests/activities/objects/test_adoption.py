"""Which object that is there already is taken for the one that was to be created (row D28)."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.activities.objects.make import is_made_alike, is_sent_alike
from holdfast.model import Component
from holdfast.model.calls.cluster import PodBounds
from tests.activities.objects.test_inject import injected, job, part

pytestmark = pytest.mark.row("D28", level="pure")


def sent(component: Component, config_hash: str = "of-the-template", **more: Any) -> dict[str, Any]:
    given: dict[str, Any] = {"labels": {"team": "blue"}}
    return injected(component, config_hash=config_hash, **(given | more))


def test_D28_what_differs_in_what_holdfast_adds_alone_is_made_alike():
    found, wanted = sent(part()), sent(part(), bounds=PodBounds(termination_grace=40))
    found["spec"]["template"]["spec"]["containers"][0]["env"].pop()
    assert not is_sent_alike(found, wanted)
    assert is_made_alike(found, wanted)


@pytest.mark.parametrize(
    "other",
    [
        {"config_hash": "of-another-template"},
        {"config_hash": ""},
        {"launch": 1},
        {"labels": {"team": "red"}},
        {"labels": {}},
    ],
)
def test_D28_what_differs_in_what_its_user_wrote_is_not(other: dict[str, Any]):
    found, wanted = sent(part(), **other), sent(part(job()))
    assert not is_made_alike(found, wanted)


def test_D28_an_object_that_says_nothing_of_its_template_is_not_taken():
    nothing = sent(part(), config_hash="")
    assert not is_made_alike(nothing, nothing)
    assert is_sent_alike(nothing, nothing)
