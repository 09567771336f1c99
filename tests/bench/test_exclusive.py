"""Which Jobs are not alone in their rack, as the bench counts them."""

from __future__ import annotations

import pytest

from bench.measures.exclusive import RACK, exclusive, misplaced
from bench.seeing import Life
from holdfast.formats.jobset import reader

RACKS = {"n1": "r1", "n2": "r1", "n3": "r2", "n4": "r3"}


def pod(job: str, node: str) -> Life:
    last = {"metadata": {"labels": {"batch.kubernetes.io/job-name": job}}, "spec": {"nodeName": node}}
    return Life(f"{job}-{node}", last, 0.0)


@pytest.mark.parametrize(
    ("pods", "wrong"),
    [
        ((("a", "n1"), ("a", "n2"), ("b", "n3")), set()),
        ((("a", "n1"), ("a", "n3"), ("b", "n4")), {"a"}),
        ((("a", "n1"), ("b", "n2"), ("c", "n3")), {"a", "b"}),
    ],
    ids=["apart", "in two racks", "in one rack with another"],
)
def test_a_job_is_misplaced_unless_it_has_one_rack_to_itself(pods: tuple[tuple[str, str], ...], wrong: set[str]):
    assert misplaced((pod(*one) for one in pods), RACKS) == wrong


def test_the_jobset_is_one_of_exclusive_topologies():
    made = exclusive(3, 2)
    assert RACK in made["metadata"]["annotations"].values()
    (component,) = (one for one in reader.read(made, cluster="c", namespace="n").components if one.copies)
    assert component.copies == 3
