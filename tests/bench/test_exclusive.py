"""Which Jobs of exclusive topologies are not where they belong."""

from __future__ import annotations

import pytest

from bench.measures.exclusive import ANNOTATION, TOPOLOGY, document, misplaced
from bench.seeing import Seen
from holdfast.formats.jobset import reader
from tests.e2e.peers.jobsets import P


def seen(*pods: tuple[str, str]) -> Seen:
    """Return what a watch has of pods, each of a Job and on a node."""
    found = Seen({})
    for index, (job, node) in enumerate(pods):
        metadata = {"uid": str(index), "name": f"pod-{index}", "labels": {f"{P}job-key": job}}
        found.take("ADDED", {"metadata": metadata, "spec": {"nodeName": node}})
    return found


@pytest.mark.parametrize(
    ("pods", "wrong"),
    [
        ((("a", "n1"), ("a", "n1"), ("b", "n2")), set()),
        ((("a", "n1"), ("a", "n2"), ("b", "n3")), {"a"}),
        ((("a", "n1"), ("b", "n1"), ("c", "n2")), {"a", "b"}),
    ],
    ids=["apart", "on two nodes", "on one node with another"],
)
def test_a_job_is_misplaced_unless_it_has_one_node_to_itself(pods: tuple[tuple[str, str], ...], wrong: set[str]):
    assert misplaced(seen(*pods)) == wrong


def test_a_pod_that_is_gone_is_not_misplaced():
    found = seen(("a", "n1"), ("a", "n2"))
    found.take("DELETED", found.lives["1"].last)
    assert misplaced(found) == set()


def test_the_jobset_is_one_of_exclusive_topologies():
    made = document("train", 3, 2)
    assert made["metadata"]["annotations"] == {ANNOTATION: TOPOLOGY}
    (component,) = (one for one in reader.read(made, cluster="c", namespace="n").components if one.copies)
    assert component.copies == 3
