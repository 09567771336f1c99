"""A workload's own claims: what is made of them, and which that exist already are used (row J22). Pure."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import names
from holdfast.activities.objects.make import Refusal
from holdfast.activities.objects.volume_claims import claim_object, is_ours, recognized
from holdfast.model.calls.cluster import Target
from holdfast.model.spec.volume_claim import VolumeClaim

pytestmark = pytest.mark.row("J22", level="pure")
TARGET = Target(
    cluster="dev",
    namespace="default",
    name="train",
    workload_uid="mine",
    workflow_id="workload/dev/default/train",
    shard=0,
    run_as="runner",
)
OWNERS = [{"kind": names.ANCHOR_KIND, "name": "train", "uid": "anchor"}]
SPEC: dict[str, Any] = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


def claim(*, retain: bool = False) -> VolumeClaim:
    return VolumeClaim(name="data-train", labels={"team": "llm"}, annotations={"a": "b"}, spec=SPEC, retain=retain)


def there(uid: str = "", owner: str = "", spec: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    """Return a claim as the API server has it, with its defaults."""
    labels = {names.LABEL_WORKLOAD_UID: uid} if uid else {}
    owners = [{"kind": owner, "name": "train", "uid": "other"}] if owner else []
    whole = {**SPEC, "volumeMode": "Filesystem", "volumeName": "pv-1", **(spec or {})}
    return {"metadata": {"name": "data-train", "labels": labels, "ownerReferences": owners, **metadata}, "spec": whole}


def test_J22_a_claim_belongs_to_the_anchor_unless_it_is_retained():
    sent = claim_object(claim(), TARGET, "here", OWNERS)
    assert sent["metadata"]["ownerReferences"] == OWNERS
    assert sent["metadata"]["labels"] == {
        "team": "llm",
        names.LABEL_INSTALLATION: "here",
        names.LABEL_WORKLOAD_UID: "mine",
    }
    assert sent["metadata"]["annotations"] == {"a": "b", names.ANNOTATION_WORKLOAD: "train"}
    assert is_ours(TARGET, sent)
    assert "ownerReferences" not in claim_object(claim(retain=True), TARGET, "here", OWNERS)["metadata"]


def test_J22_a_claim_blocks_no_deletion_of_its_owner_which_would_need_a_right_on_that():
    strict = [{**one, "controller": True, "blockOwnerDeletion": True} for one in OWNERS]
    assert claim_object(claim(), TARGET, "here", strict)["metadata"]["ownerReferences"] == OWNERS


@pytest.mark.parametrize("retain", [True, False])
def test_J22_a_claim_that_an_earlier_attempt_made_is_left_as_it_is(retain: bool):
    found = there("mine", spec={"accessModes": ["ReadWriteMany"]})
    assert recognized(TARGET, claim(retain=retain), found) is found


@pytest.mark.parametrize("storage", ["1Gi", "1024Mi", "1073741824"])
def test_J22_a_claim_of_somebody_else_is_used_if_it_is_to_be_retained(storage: str):
    found = there(spec={"resources": {"requests": {"storage": storage}}})
    assert recognized(TARGET, claim(retain=True), found) is found


@pytest.mark.parametrize(
    ("found", "retain", "final", "says"),
    [
        (there(), False, True, "expected the retention policy Retain"),
        (there("another"), False, True, "expected the retention policy Retain"),
        (there(spec={"accessModes": ["ReadOnlyMany"]}), True, True, "spec.accessModes is ['ReadOnlyMany']: expected"),
        (there(spec={"resources": {"requests": {"storage": "2Gi"}}}), True, True, "spec.resources is"),
        (there("mine", deletionTimestamp="2026-01-01T00:00:00Z"), False, False, "is still being deleted"),
        (there("another", names.ANCHOR_KIND), True, False, "belongs to an earlier workload, and goes with it"),
    ],
)
def test_J22_any_other_claim_is_refused_for_good_or_until_it_is_gone(
    found: dict[str, Any], retain: bool, final: bool, says: str
):
    with pytest.raises(Refusal) as refused:
        recognized(TARGET, claim(retain=retain), found)
    assert (refused.value.final, says in refused.value.message) == (final, True), refused.value.message
