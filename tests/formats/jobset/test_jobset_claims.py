"""A JobSet's claims as a workload's: names, labels, retention, the volumes of the pods that mount them (row J22)."""

from __future__ import annotations

import pytest

from holdfast.formats.jobset import reader
from tests.formats.documents import PODS, Json
from tests.formats.jobset.jobsets import component, jobset_of, one, replicated
from tests.formats.jobset.jobsets_refused import claim, claiming

pytestmark = pytest.mark.row("J22", level="pure")


def mounting(*names: str, where: str = "containers") -> Json:
    """Return the Job spec of pods one of whose containers mounts volumes of these names."""
    (container,) = PODS["spec"]["containers"]
    mounts = [{"name": name, "mountPath": f"/{name}"} for name in names]
    pods = {**PODS["spec"], where: [{**container, "name": "mounts", "volumeMounts": mounts}]}
    return {"template": {"spec": {**pods, "volumes": [{"name": "own", "emptyDir": {}}]}}}


def test_J22_claims_are_named_and_labelled_as_published_and_go_by_default():
    given = claiming(claim("data", labels={"team": "llm"}, annotations={"a": "b"}))
    (found,) = one(given).volume_claims
    assert (found.name, found.retain) == ("data-train", False)
    assert found.labels == {"team": "llm", "jobset.sigs.k8s.io/jobset-name": "train"}
    assert found.annotations == {"a": "b"}
    assert found.spec == claim("data")["spec"]


@pytest.mark.parametrize(
    ("policy", "retain"),
    [
        ({}, False),
        ({"whenDeleted": None}, False),
        ({"whenDeleted": "Delete"}, False),
        ({"whenDeleted": "Retain"}, True),
    ],
)
def test_J22_only_retained_claims_stay(policy: Json, retain: bool):
    (found,) = one(claiming(claim("data"), retentionPolicy=policy)).volume_claims
    assert found.retain is retain
    assert found.sentence() == f"data-train {'stays when it is removed' if retain else 'goes with it'}"


def test_J22_pods_that_mount_a_claim_get_its_volume_and_no_others():
    policies = [
        {"templates": [claim("data"), claim("model")]},
        {"templates": [claim("out")], "retentionPolicy": {"whenDeleted": "Retain"}},
    ]
    jobs = [
        replicated("a", job=mounting("data", "out")),
        replicated("b", job=mounting("model", where="initContainers")),
        replicated("c"),
    ]
    workload = one(jobset_of(*jobs, volumeClaimPolicies=policies))
    volumes = {
        name: component(workload, name).template["spec"]["template"]["spec"].get("volumes", []) for name in "abc"
    }
    own = {"name": "own", "emptyDir": {}}

    def volume(name: str) -> Json:
        return {"name": name, "persistentVolumeClaim": {"claimName": f"{name}-train"}}

    assert volumes == {"a": [own, volume("data"), volume("out")], "b": [own, volume("model")], "c": []}


def test_J22_a_document_without_claims_is_written_as_before():
    assert "volumeClaims" not in reader.read(jobset_of(), cluster="dev").model_dump(mode="json", by_alias=True)
