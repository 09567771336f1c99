"""Admission queues as documents: all of them right, or nothing accepted (row L9)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from holdfast import formats, names
from holdfast.errors import InvalidWorkload
from holdfast.formats.graph import read_graph
from holdfast.formats.queue import read_queues
from holdfast.model.entities.queue import StopPolicy, Strategy

pytestmark = pytest.mark.row("L9", level="pure")
EXAMPLE = Path(__file__).parents[2] / "examples" / "queue" / "queues.yaml"


def text(spec: Any = None, *, name: Any = "gpus", **more: Any) -> str:
    document = {"apiVersion": names.API_VERSION, "kind": "Queue", "metadata": {"name": name}, "spec": spec or {}}
    return yaml.safe_dump({**document, **more})


def problems(given: str) -> list[str]:
    with pytest.raises(InvalidWorkload) as refused:
        read_queues(given, cluster="dev")
    return [str(one) for one in refused.value.problems]


def test_L9_the_example_is_read_as_it_stands() -> None:
    research, nightly = read_queues(EXAMPLE.read_text(), cluster="dev")
    assert (research.name, research.cluster, research.workflow_id) == ("research", "dev", "queue/dev/research")
    assert research.room == {"pods": 64_000, "nvidia.com/gpu": 16_000}
    assert (research.strategy, research.stop_policy) == (Strategy.BEST_EFFORT_FIFO, StopPolicy.NONE)
    assert nightly.stop_policy is StopPolicy.HOLD
    assert nightly.room["memory"] == 1024**4 * 1000


def test_L9_a_queue_with_nothing_said_of_it_bounds_nothing() -> None:
    (queue,) = read_queues(text(), cluster="dev")
    assert queue.room == {}


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (
            text({"quota": {"pods": "many"}}),
            "spec.quota.pods: 'many' is not a quantity: expected for example",
        ),
        (text({"quota": {"pods": "-1"}}), "'-1' is less than nothing"),
        (text({"quota": [1]}), "spec.quota: "),
        (text({"quotas": {}}), "spec.quotas: is not a field here; allowed: quota, strategy, stopPolicy"),
        (text({"strategy": "LIFO"}), "spec.strategy: "),
        (text({"stopPolicy": "HoldAndDrain"}), "spec.stopPolicy: "),
        (text(name="No.Dots"), "metadata.name: "),
        (text(name=None), "metadata.name: expected the queue's name"),
        (text(apiVersion="holdfast.dev/v9"), "apiVersion: is not accepted"),
        (text(more=1), "more: is not a field here"),
        (text(kind="Graph"), "kind: is no admission queue"),
        (text() + "---\n" + text(), "metadata.name: stands in two documents"),
        ("", "expected a document of kind Queue, found none"),
    ],
)
def test_L9_what_is_wrong_is_told_with_its_path(given: str, found: str) -> None:
    assert any(found in one for one in problems(given)), problems(given)


def test_L9_a_spec_that_is_no_object_is_refused() -> None:
    assert problems(text([1])) == ["spec: expected an object (found a list of 1)"]


def test_L9_a_queue_is_no_workload_and_no_graph() -> None:
    with pytest.raises(InvalidWorkload, match="is an admission queue, and no workload: `holdfast queue apply`"):
        formats.read(text(), cluster="dev")
    with pytest.raises(InvalidWorkload):
        read_graph(text(), cluster="dev")
