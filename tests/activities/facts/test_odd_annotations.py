"""An annotation that is not understood counts as absent: anyone may write one (rows D11, D2, X14)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast import names
from holdfast.activities.facts.barrier import barrier_facts
from holdfast.activities.facts.node_annotations import own_marks
from holdfast.activities.facts.node_taints import fence, power_off
from holdfast.activities.facts.nodes import Marks
from holdfast.activities.facts.objects import object_facts, turn_of
from holdfast.activities.facts.pods import pod_facts
from holdfast.activities.kube.raw import annotated, number_in, time_of
from holdfast.model import NodeWord, OwnMarks
from holdfast.worker.gangs.sessions import pod_seen

ROW = pytest.mark.row
DIGITS = "1" * 4301
"""One digit more than `int` accepts."""
INDEX = "batch.kubernetes.io/job-completion-index"


def annotated_with(**annotations: str) -> dict[str, Any]:
    labels = {names.LABEL_ATTEMPT: "1", names.LABEL_WORKLOAD_UID: "w"}
    metadata = {"name": "x", "uid": "u", "namespace": "n", "labels": labels, "annotations": annotations}
    return {"metadata": metadata, "status": {"phase": "Running"}}


@ROW("D11", level="pure")
@ROW("D2", level="pure")
@pytest.mark.parametrize("read", [object_facts, pod_facts, pod_seen, barrier_facts])
@pytest.mark.parametrize("value", [DIGITS, "1" * 19, "-1", "", "one"])
def test_D11_a_number_that_is_none_is_as_absent(read: Callable[[Mapping[str, Any]], Any], value: str):
    keys = (names.ANNOTATION_TURN, names.ANNOTATION_PARKED, names.ANNOTATION_RESTART_REQUEST, INDEX)
    assert read(annotated_with(**dict.fromkeys(keys, value))) == read(annotated_with())


def test_a_number_has_at_most_18_digits():
    assert number_in("9" * 18) == 10**18 - 1
    assert number_in("9" * 19) is None
    assert number_in(7) is None
    assert turn_of(annotated_with(**{names.ANNOTATION_TURN: "3"}), names.ANNOTATION_TURN) == 3


@ROW("D11", level="pure")
@ROW("D2", level="pure")
@pytest.mark.parametrize("value", ["[" * 2000, '{"a":' * 100_000, "no JSON", "[]"])
def test_D11_an_annotation_of_a_node_that_is_not_understood_is_as_absent(value: str):
    node = annotated_with(**{names.node_annotation("i"): value})
    assert annotated(node, names.node_annotation("i")) == {}
    assert own_marks(node, "i") is None
    assert Marks(installation="i").of(node) is None


@ROW("D11", level="pure")
@ROW("D2", level="pure")
@pytest.mark.parametrize(
    "when",
    [
        "0001-01-01T00:00:00+01:00",
        "9999-12-31T23:59:59-01:00",
        "9999-12-31T23:59:59Z",
        "9000-01-01T00:00:01Z",
        "never",
    ],
)
def test_D11_a_time_outside_the_calendar_or_at_its_end_is_as_absent(when: str):
    said = f'{{"state": "%s", "why": "silent", "heard": "{when}", "since": "{when}"}}'
    node = annotated_with(**{names.node_annotation("i"): said % "Down"})
    assert time_of(when) is None
    assert own_marks(node, "i") == OwnMarks(word=NodeWord.DOWN, why="silent")
    off = annotated_with(
        **{
            names.fenced_annotation("i"): f'{{"at": "{when}", "why": "off"}}',
            names.node_annotation("i"): said % "Fencing",
        }
    )
    assert power_off(off, "i") == (datetime.min.replace(tzinfo=UTC), "off", "")
    assert fence(off, "i", datetime(2026, 1, 1, tzinfo=UTC), "off") is not None


def test_a_time_is_in_utc():
    found = time_of("2026-01-01T02:00:00+02:00")
    assert found == datetime(2026, 1, 1, tzinfo=UTC)
    assert found is not None
    assert found.tzinfo is UTC


@ROW("X14", level="pure")
def test_X14_the_words_on_a_node_can_be_sent_on():
    texts = {
        names.node_annotation("i"): r'{"state": "Down", "why": "\ud800\nx"}',
        names.fenced_annotation("i"): r'{"at": "2026-01-01T00:00:00Z", "why": "\udfff", "renewed": "\ud800"}',
    }
    own = own_marks(annotated_with(**texts), "i")
    assert own is not None
    assert OwnMarks.model_validate_json(own.model_dump_json()) == own
    assert own.why == "\ufffd x"
