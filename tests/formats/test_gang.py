"""A gang in Holdfast's own document: what its author leaves out is filled in, what contradicts it is refused."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from holdfast import formats
from holdfast.errors import InvalidWorkload
from holdfast.model import Workload


def document(gang: dict[str, Any] | None = None, policy: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    pod = {"containers": [{"name": "agent", "image": "train", "command": ["holdfast", "agent", "--", "train"]}]}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"}}
    return {
        "apiVersion": "holdfast.dev/v1",
        "kind": "Workload",
        "metadata": {"name": "train"},
        "spec": {
            "gang": gang or {"min": 2, "max": 4},
            "components": [{"name": "trainer", "template": {**job, "spec": {"template": {"spec": pod}, **spec}}}],
            **({"policy": policy} if policy is not None else {}),
        },
    }


def read(given: dict[str, Any]) -> Workload:
    (found,) = formats.read(yaml.safe_dump(given), cluster="dev")
    return found


def test_a_gang_is_ruled_by_torchelastics_profile_and_expects_as_many_pods_as_it_needs() -> None:
    found = read(document())
    assert found.gang is not None
    assert (found.policy.profile, found.expected_pods, found.gang.pods) == ("torchelastic", 2, 4)
    assert found.members is not None
    assert found.members is found.components[0]
    assert found.members.status.complete == ("Complete",)


def test_another_profile_may_be_named_and_defaults_changed() -> None:
    assert read(document(policy={"profile": "lattice-batch"})).policy.profile == "lattice-batch"
    found = read(document({"min": 1, "max": 2, "maxRestarts": 0, "joinTimeout": "5m", "spares": 1}))
    assert found.gang is not None
    assert (found.gang.max_restarts, found.gang.pods, found.policy.profile) == (0, 3, "torchelastic")


def test_what_is_not_a_gang_reads_and_writes_as_before() -> None:
    given = document()
    del given["spec"]["gang"]
    found = read(given)
    assert (found.policy.profile, found.members) == ("manifests", None)
    assert "gang" not in found.model_dump(mode="json", by_alias=True)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (document({"min": 3, "max": 2}), "spec.gang.min: expected at most max, 2 (found 3)"),
        (document({"min": 1, "max": 2, "minimum": 1}), "spec.gang.minimum: is not a field here"),
        (document(parallelism=4), "spec.components[0].template.spec.parallelism: "),
        (document(completionMode="NonIndexed"), "completionMode: 'NonIndexed': expected Indexed"),
    ],
)
def test_what_contradicts_a_gang_is_refused_with_its_path(given: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidWorkload) as refused:
        read(given)
    assert words.split(":")[0] in str(refused.value)


def test_a_resized_workload_is_the_same_but_for_its_size() -> None:
    before = read(document())
    after = before.resized(1, 8)
    assert after.gang is not None
    assert (after.gang.min, after.gang.max, after.expected_pods) == (1, 8, 1)
    assert after.config_hashes == before.config_hashes
    assert after.resized(2, 4) == before
